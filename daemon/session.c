/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions. Owned by the server. This is where a client's misbehaviour and every error on its
 * behalf end: whatever happens here closes this session and touches no other. A session that is to
 * end is only marked and put in line: it ends at the end of the loop's turn, so that nobody up the
 * stack is left with a dangling pointer, or in as many turns as giving back what it has takes.
 *
 *	CONNECTED --HELLO--> READY
 *	    |                  |
 *	    +----> CLOSING <---+     protocol broken, hang-up, process dead, queue full
 *
 * How packets come in is intake.c's business, and what they mean the handlers'.
 */
#include "daemon/session.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "daemon/disposal.h"
#include "daemon/handlers/grant.h"
#include "daemon/hangup.h"
#include "daemon/intake.h"
#include "daemon/limits.h"
#include "daemon/log.h"
#include "daemon/peer.h"
#include "daemon/server.h"
#include "daemon/subscription.h"
#include "daemon/work.h"
#include "proto/base/fd.h"

static const char *const state_names[TDD_SESSION_STATE_COUNT] = {
	[TDD_SESSION_CONNECTED] = "connected",
	[TDD_SESSION_READY] = "ready",
	[TDD_SESSION_CLOSING] = "closing",
};

const char *tdd_session_state_name(enum tdd_session_state state)
{
	return state_names[state];
}

static void session_set_state(struct tdd_session *session, enum tdd_session_state state)
{
	/* Forward only. */
	assert(state > session->state);
	tdd_log(TDD_LOG_DEBUG, "client pid %" PRId64 ": %s -> %s", session->holder.process->pid,
		state_names[session->state], state_names[state]);
	session->state = state;
}

void tdd_session_set_ready(struct tdd_session *session)
{
	session_set_state(session, TDD_SESSION_READY);
}

/* What is queued behind descriptors goes as soon as the client has received those. */
static void session_follow_edges(struct tdd_session *session)
{
	struct tdd_edges *edges = session->server->edges;
	bool is_wanted = session->state != TDD_SESSION_CLOSING &&
			 session->outbox.block == TDD_OUTBOX_NEEDS_DRAIN &&
			 session->outbox.in_flight > 0;

	if (is_wanted == session->has_edge)
		return;
	/* Without one the server's timer does it. */
	if (is_wanted)
		is_wanted = tdd_edges_add(edges, session->socket_fd, session) == 0;
	else
		tdd_edges_remove(edges, session->socket_fd);
	session->has_edge = is_wanted;
}

/* Or a level-triggered loop would see nothing else until it has ended. */
static void session_stop_watching(struct tdd_session *session)
{
	session_follow_edges(session);
	session->socket_watch = tdd_watch_free(session->socket_watch);
	session->pidfd_watch = tdd_watch_free(session->pidfd_watch);
	session->pidfd = tdp_fd_close(session->pidfd);
}

void tdd_session_close(struct tdd_session *session)
{
	if (session->state == TDD_SESSION_CLOSING)
		return;
	session_set_state(session, TDD_SESSION_CLOSING);
	session_stop_watching(session);
	tdd_turns_end(&session->server->turns, session);
}

/* Are there events that wait for nothing but the next turn? */
static bool session_has_turn_left(const struct tdd_session *session)
{
	return session->outbox.block == TDD_OUTBOX_FREE && session->holder.notices;
}

/* Watch for what the outbox needs. Whoever does not read answers is not read either: what comes
 * then stays in the socket, and stops its sender when that is full. */
static void session_follow_outbox(struct tdd_session *session)
{
	int events = tdd_outbox_is_long(&session->outbox) ? TDD_WATCH_HANGUP : TDD_WATCH_READABLE;

	if (session->state == TDD_SESSION_CLOSING)
		return;
	if (session->is_deaf)
		events = 0;
	if (session->outbox.block == TDD_OUTBOX_NEEDS_ROOM || session_has_turn_left(session))
		events |= TDD_WATCH_WRITABLE;
	if (session->outbox.block == TDD_OUTBOX_NEEDS_DRAIN)
		tdd_server_retry_soon(session->server);
	session_follow_edges(session);
	if (events == session->watched_events)
		return;
	if (tdd_watch_set(session->socket_watch, events) < 0)
		tdd_session_close(session);
	session->watched_events = events;
}

void tdd_session_listen(struct tdd_session *session, bool listens)
{
	if (session->is_deaf != listens)
		return;
	session->is_deaf = !listens;
	session_follow_outbox(session);
}

static void session_drop_slow(struct tdd_session *session, int code)
{
	const struct tdd_holder *holder = &session->holder;

	if (code != TIDL_ERR_CLOSED)
		tdd_log_peer(holder->subject.uid, holder->process->pid,
			     "dropped: its unread replies cannot be queued (%s)",
			     tdp_error_name(code));
	tdd_session_close(session);
}

/* False: it is not sent now. */
static bool session_send_notice(struct tdd_session *session)
{
	struct tdd_server *server = session->server;
	struct tdp_message message = {.kind = TDP_MESSAGE_EVENT};
	struct tdp_fault fault;
	size_t size_bytes;
	int r;

	if (!tdd_notice_view(&session->holder, &message.event))
		return false;
	r = tdp_message_pack(&message, server->packed, sizeof(server->packed), &size_bytes, &fault);
	if (r == 0)
		r = tdd_outbox_offer(&session->outbox, server->packed, size_bytes);
	if (r == TIDL_ERR_BUSY)
		return false;
	if (r < 0) {
		session_drop_slow(session, r);
		return false;
	}
	tdd_notice_drop(&session->holder);
	return true;
}

/* Events come after answers, and only what the socket takes: who does not read them loses some of
 * them, and nothing else. */
static void session_send_notices(struct tdd_session *session)
{
	int count = 0;

	while (count < TDD_EVENTS_PER_TURN && session->state != TDD_SESSION_CLOSING &&
	       tdd_outbox_is_empty(&session->outbox) && session_send_notice(session))
		count++;
}

void tdd_session_flush(struct tdd_session *session)
{
	if (session->state == TDD_SESSION_CLOSING)
		return;
	if (session->outbox.block == TDD_OUTBOX_FREE && !session->holder.notices)
		return;
	if (tdd_outbox_flush(&session->outbox) < 0)
		tdd_session_close(session);
	session_send_notices(session);
	session_follow_outbox(session);
}

/* Into server::packed. */
static int session_pack(struct tdd_session *session, const struct tdp_message *message,
			uint32_t fd_count, size_t *ret_size_bytes)
{
	struct tdd_server *server = session->server;
	struct tdp_message counted = *message;
	struct tdp_fault fault;

	counted.fd_count = fd_count;
	return tdp_message_pack(&counted, server->packed, sizeof(server->packed), ret_size_bytes,
				&fault);
}

static void session_sent(struct tdd_session *session, int r)
{
	if (r < 0)
		session_drop_slow(session, r);
	session_follow_outbox(session);
}

int tdd_session_try_reply(struct tdd_session *session, const struct tdp_message *message,
			  const int *fds, uint32_t fd_count)
{
	size_t size_bytes;
	int r;

	if (session->state == TDD_SESSION_CLOSING)
		return 0;
	r = session_pack(session, message, fd_count, &size_bytes);
	if (r == TIDL_ERR_LIMIT)
		return r;
	if (r == 0)
		r = tdd_outbox_send(&session->outbox, session->server->packed, size_bytes, fds,
				    fd_count);
	session_sent(session, r);
	return 0;
}

static void session_refuse_size(struct tdd_session *session, const struct tdp_message *message)
{
	tdd_log(TDD_LOG_ERROR, "a %s reply is too large for a packet",
		tdp_message_name(message->kind));
	tdd_session_close(session);
}

void tdd_session_reply(struct tdd_session *session, const struct tdp_message *message,
		       const int *fds, uint32_t fd_count)
{
	if (tdd_session_try_reply(session, message, fds, fd_count) < 0)
		session_refuse_size(session, message);
}

void tdd_session_reply_leased(struct tdd_session *session, const struct tdp_message *message,
			      uint64_t lease_id, uint32_t fd_count)
{
	size_t size_bytes;
	int r;

	if (session->state == TDD_SESSION_CLOSING)
		return;
	r = session_pack(session, message, fd_count, &size_bytes);
	if (r == TIDL_ERR_LIMIT) {
		session_refuse_size(session, message);
		return;
	}
	if (r == 0)
		r = tdd_outbox_send_leased(&session->outbox, session->server->packed, size_bytes,
					   lease_id);
	session_sent(session, r);
}

void tdd_session_reply_done(struct tdd_session *session, uint64_t request_id)
{
	struct tdp_message message = {.kind = TDP_MESSAGE_DONE, .request_id = request_id};

	tdd_session_reply(session, &message, NULL, 0);
}

void tdd_session_reply_failure(struct tdd_session *session, uint64_t request_id,
			       const struct tdp_fault *fault)
{
	struct tdp_message message = {
		.kind = TDP_MESSAGE_FAILURE,
		.request_id = request_id,
		.failure = {.code = fault->code, .message = fault->text},
	};

	tdd_session_reply(session, &message, NULL, 0);
}

void tdd_session_end(struct tdd_session *session, uint64_t request_id,
		     const struct tdp_fault *fault)
{
	const struct tdd_holder *holder = &session->holder;
	char quoted[TDD_LOG_QUOTE_SIZE];

	if (session->state == TDD_SESSION_CLOSING)
		return;
	tdd_log_peer(holder->subject.uid, holder->process->pid, "%s ended: %s %s",
		     state_names[session->state], tdp_error_name(fault->code),
		     tdd_log_quote(fault->text, quoted));
	tdd_session_reply_failure(session, request_id, fault);
	tdd_session_close(session);
}

static void session_socket_ready(void *context, int events)
{
	struct tdd_session *session = context;

	if (events & TDD_WATCH_WRITABLE)
		tdd_session_flush(session);
	if (session->state != TDD_SESSION_CLOSING && events & TDD_WATCH_READABLE)
		tdd_intake_ready(session);
}

/* The process has ended, whoever else may still have its socket open. */
static void session_process_ended(void *context, int events)
{
	(void)events;
	tdd_session_close(context);
}

static int session_init_holder(struct tdd_session *session, struct tdd_peer *peer,
			       struct tdp_fault *fault)
{
	struct tdd_server *server = session->server;
	struct tdd_account *account = tdd_quota_ref_uid(&server->quota, peer->uid);
	struct tdd_process *process = tdd_process_new(peer->uid, peer->gid, peer->pid);
	struct tdd_subject subject;

	if (!account || !process) {
		tdd_account_unref(account);
		tdd_process_unref(process);
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	}
	tdd_subject_init(&subject, peer->uid, peer->gid, peer->groups, peer->group_count,
			 server->config.admin_gid);
	peer->groups = NULL;
	tdd_holder_init(&session->holder, &subject, process, account);
	if (peer->uid == server->config.overflow_uid)
		session->refusal = TIDL_ERR_PEER_REFUSED;
	return 0;
}

/* Whoever may stop the broker must get in to do so. */
static enum tdd_quota_claim session_claim(const struct tdd_session *session)
{
	return tdd_policy_may_shut_down(&session->holder.subject, session->server->uid)
		       ? TDD_CLAIM_ADMIN
		       : TDD_CLAIM_SESSION;
}

static int session_charge(struct tdd_session *session, struct tdp_fault *fault)
{
	struct tdd_account *account = &session->holder.account;
	int r = tdd_charge_init(&session->count, account, TDD_QUOTA_SESSIONS, 1, fault);

	if (r < 0)
		return r;
	session->descriptors.claim = session_claim(session);
	r = tdd_charge_init(&session->descriptors, account, TDD_QUOTA_DESCRIPTORS,
			    TDD_DESCRIPTORS_PER_SESSION, fault);
	if (r < 0)
		return r;
	if (tdd_disposal_pending(account->uid) < TDD_SUSPECTS_PER_UID)
		return 0;
	return tdp_fault_set(fault, TIDL_ERR_LIMIT,
			     "descriptors that uid %" PRIu32
			     " sent cannot be closed: end what makes them hang first",
			     account->uid);
}

static int session_watch(struct tdd_session *session, struct tdp_fault *fault)
{
	struct tdd_loop *loop = session->server->loop;
	int r = tdd_watch_new(loop, session->socket_fd, session_socket_ready, session,
			      &session->socket_watch, fault);

	if (r < 0)
		return r;
	session->watched_events = TDD_WATCH_READABLE;
	if (tdd_watch_set(session->socket_watch, session->watched_events) < 0)
		return tdp_fault_code(fault, TIDL_ERR_SYSTEM);
	if (session->pidfd < 0)
		return 0;
	r = tdd_watch_new(loop, session->pidfd, session_process_ended, session,
			  &session->pidfd_watch, fault);
	if (r < 0)
		return r;
	if (tdd_watch_set(session->pidfd_watch, TDD_WATCH_READABLE) < 0)
		return tdp_fault_code(fault, TIDL_ERR_SYSTEM);
	return 0;
}

static struct tdd_session *session_release(struct tdd_session *session)
{
	session_stop_watching(session);
	tdd_outbox_deinit(&session->outbox);
	tdd_charge_deinit(&session->count);
	tdd_charge_deinit(&session->descriptors);
	tdd_holder_deinit(&session->holder);
	free(session);
	return NULL;
}

int tdd_session_new(struct tdd_server *server, int socket_fd, struct tdd_session **ret_session,
		    struct tdp_fault *fault)
{
	struct tdd_session *session = calloc(1, sizeof(*session));
	struct tdd_peer peer;
	int r;

	if (!session)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	session->server = server;
	session->socket_fd = socket_fd;
	r = tdd_peer_identify(socket_fd, &peer, fault);
	if (r < 0) {
		free(session);
		return r;
	}
	r = session_init_holder(session, &peer, fault);
	session->pidfd = tdp_fd_steal(&peer.pidfd);
	if (r < 0) {
		tdp_fd_close(session->pidfd);
		free(session);
		tdd_peer_deinit(&peer);
		return r;
	}
	tdd_outbox_init(&session->outbox, socket_fd, &session->holder.account, &server->flight);
	session->outbox.refill = tdd_grant_refill;
	session->outbox.refill_context = session;
	r = session_charge(session, fault);
	if (r == 0)
		r = session_watch(session, fault);
	if (r < 0) {
		session_release(session);
		return r;
	}
	*ret_session = session;
	return 0;
}

bool tdd_session_end_some(struct tdd_session *session)
{
	if (!session->holder.is_ending) {
		session_stop_watching(session);
		session->request = tdd_request_free(session->request);
		session->holder.process->is_connected = false;
		tdd_work_count(TDD_SESSION_STEPS);
	}
	return tdd_holder_drop_some(&session->holder, &session->server->registry);
}

struct tdd_session *tdd_session_free(struct tdd_session *session)
{
	int socket_fd;

	if (!session)
		return NULL;
	socket_fd = session->socket_fd;
	while (!tdd_session_end_some(session))
		;
	/* What does not go now never will. */
	(void)(tdd_outbox_flush(&session->outbox) == 0);
	session_release(session);
	tdd_hang_up(socket_fd);
	return NULL;
}
