/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way in from one client. One packet is taken at a time, and none before the last is answered
 * or parked, so that the kernel's queue bounds what a client can ask for. When it is taken is for
 * turns.c to say.
 */
#include "daemon/intake.h"

#include <errno.h>

#include "daemon/dispatch.h"
#include "daemon/disposal.h"
#include "daemon/limits.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "daemon/work.h"
#include "proto/wire/packet.h"

void tdd_intake_refuse_descriptors(struct tdd_session *session)
{
	struct tdp_fault fault;

	tdp_fault_set(&fault, TIDL_ERR_PROTOCOL,
		      "descriptors came with a message that may not carry any: send none");
	tdd_session_end(session, 0, &fault);
}

static void session_refuse_packet(struct tdd_session *session, int receive_error)
{
	struct tdp_fault fault;

	switch (receive_error) {
	case -ECONNRESET: /* an empty packet */
		tdd_intake_refuse_descriptors(session);
		return;
	case -EMSGSIZE:
		tdp_fault_set(&fault, TIDL_ERR_PROTOCOL,
			      "a packet was larger than %d bytes: send smaller ones",
			      TDP_PACKET_MAX_BYTES);
		break;
	case -EMFILE:
		tdp_fault_set(&fault, TIDL_ERR_PROTOCOL,
			      "descriptors were sent and did not all arrive: send none");
		break;
	default:
		tdp_fault_set(&fault, TIDL_ERR_PROTOCOL,
			      "a packet carried ancillary data other than descriptors");
		break;
	}
	tdd_session_end(session, 0, &fault);
}

static void session_take_packet(struct tdd_session *session, size_t size_bytes)
{
	struct tdd_server *server = session->server;

	/* One descriptor may be a manifest; the dispatcher knows with which message. */
	if (server->received_fds.count > 1 ||
	    (server->received_fds.count == 1 && session->state != TDD_SESSION_READY)) {
		tdd_intake_refuse_descriptors(session);
		return;
	}
	tdd_session_flush(session);
	if (session->state != TDD_SESSION_CLOSING)
		tdd_dispatch_packet(session, server->received, size_bytes);
}

static void session_receive(struct tdd_session *session)
{
	struct tdd_server *server = session->server;
	struct tdp_fdset *fds = &server->received_fds;
	size_t size_bytes = 0;
	int r = tdp_packet_receive(session->socket_fd, server->received, fds, &size_bytes);

	if (r == -EAGAIN)
		return;
	tdd_work_count(TDD_PACKET_STEPS + TDD_BYTE_STEPS * size_bytes);
	if (r == 0)
		session_take_packet(session, size_bytes);
	else if (fds->count > 0 || r == -EMSGSIZE || r == -EMFILE || r == -EPROTO)
		session_refuse_packet(session, r);
	else
		tdd_session_close(session);
	/* What nobody took is suspect, whatever came with it. */
	tdd_disposal_take(session->holder.subject.uid, fds);
}

void tdd_intake_go_on(struct tdd_session *session)
{
	struct tdd_turns *turns = &session->server->turns;

	tdd_work_begin(TDD_SLICE_STEPS);
	if (session->request)
		tdd_dispatch_go_on(session);
	else
		session_receive(session);
	tdd_turns_charge(turns, session, tdd_work_done());
	if (!session->request)
		tdd_session_listen(session, true);
}

/* One packet a turn: the watch is level-triggered, so what is left wakes the loop again, after the
 * other sessions had their turn. */
void tdd_intake_ready(struct tdd_session *session)
{
	struct tdd_turns *turns = &session->server->turns;

	/* It has been in line for a turn at least: say so once, and not in each turn. */
	if (session->request || tdd_place_is_waiting(&session->place)) {
		tdd_session_listen(session, false);
		return;
	}
	if (!tdd_turns_must_wait(turns, session))
		tdd_intake_go_on(session);
	else
		tdd_turns_wait(turns, session);
	if (session->request)
		tdd_turns_wait(turns, session);
}
