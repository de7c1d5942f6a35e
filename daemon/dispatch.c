/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of messages: which a client may send, in which state, and who handles it. Everything
 * that a handler may take for granted is proved here. A handler that has not finished is called
 * again, with the same request, until it has.
 */
#include "daemon/dispatch.h"

#include "daemon/handlers/handlers.h"
#include "daemon/intake.h"
#include "daemon/log.h"
#include "daemon/request.h"
#include "daemon/server.h"

struct dispatch_row {
	tdd_handler_fn handler; /* NULL: clients do not send this */
	enum tdd_session_state state;
	bool is_one_way;
};

static const struct dispatch_row rows[TDP_MESSAGE_KIND_COUNT] = {
	[TDP_MESSAGE_HELLO] = {.handler = tdd_handle_hello, .state = TDD_SESSION_CONNECTED},
	[TDP_MESSAGE_CANCEL] = {.handler = tdd_handle_cancel,
				.state = TDD_SESSION_READY,
				.is_one_way = true},
	[TDP_MESSAGE_GET_MORE] = {.handler = tdd_handle_get_more, .state = TDD_SESSION_READY},
	[TDP_MESSAGE_ALLOCATE] = {.handler = tdd_handle_allocate, .state = TDD_SESSION_READY},
	[TDP_MESSAGE_PUBLISH] = {.handler = tdd_handle_publish, .state = TDD_SESSION_READY},
	[TDP_MESSAGE_GET] = {.handler = tdd_handle_get, .state = TDD_SESSION_READY},
	[TDP_MESSAGE_RELEASE] = {.handler = tdd_handle_release,
				 .state = TDD_SESSION_READY,
				 .is_one_way = true},
	[TDP_MESSAGE_OPEN] = {.handler = tdd_handle_open, .state = TDD_SESSION_READY},
	[TDP_MESSAGE_WATCH_WRITER] = {.handler = tdd_handle_watch_writer,
				      .state = TDD_SESSION_READY},
	[TDP_MESSAGE_REMOVE] = {.handler = tdd_handle_remove, .state = TDD_SESSION_READY},
	[TDP_MESSAGE_LIST] = {.handler = tdd_handle_list, .state = TDD_SESSION_READY},
	[TDP_MESSAGE_INSPECT] = {.handler = tdd_handle_inspect, .state = TDD_SESSION_READY},
	[TDP_MESSAGE_PIN] = {.handler = tdd_handle_pin, .state = TDD_SESSION_READY},
	[TDP_MESSAGE_WAIT] = {.handler = tdd_handle_wait, .state = TDD_SESSION_READY},
	[TDP_MESSAGE_WATCH] = {.handler = tdd_handle_watch, .state = TDD_SESSION_READY},
	[TDP_MESSAGE_UNWATCH] = {.handler = tdd_handle_unwatch,
				 .state = TDD_SESSION_READY,
				 .is_one_way = true},
	[TDP_MESSAGE_GOODBYE] = {.handler = tdd_handle_goodbye,
				 .state = TDD_SESSION_READY,
				 .is_one_way = true},
	[TDP_MESSAGE_SHUTDOWN] = {.handler = tdd_handle_shutdown, .state = TDD_SESSION_READY},
};

/* The only message that brings one: a manifest. */
static bool dispatch_wants_descriptor(const struct tdp_message *message)
{
	return message->kind == TDP_MESSAGE_PUBLISH && message->publish.has_manifest;
}

/* Returns 0 or TIDL_ERR_PROTOCOL, which ends the session. */
static int dispatch_check(const struct tdd_session *session, const struct dispatch_row *row,
			  const struct tdp_message *message, struct tdp_fault *fault)
{
	const char *name = tdp_message_name(message->kind);
	uint32_t brought = session->server->received_fds.count;

	if (message->fd_count > brought)
		return tdp_fault_set(fault, TIDL_ERR_PROTOCOL,
				     "%s announced %u descriptors and brought %s", name,
				     message->fd_count, brought ? "one" : "none");
	if (message->fd_count < brought)
		return tdp_fault_set(fault, TIDL_ERR_PROTOCOL,
				     "%s brought a descriptor that it did not announce", name);
	if (dispatch_wants_descriptor(message) && brought == 0)
		return tdp_fault_set(fault, TIDL_ERR_PROTOCOL,
				     "%s came without the descriptor of its manifest", name);
	if (session->state == TDD_SESSION_CONNECTED && message->kind != TDP_MESSAGE_HELLO)
		return tdp_fault_set(fault, TIDL_ERR_PROTOCOL,
				     "the first message was %s: begin with HELLO", name);
	if (!row)
		return 0;
	if (!row->handler)
		return tdp_fault_set(fault, TIDL_ERR_PROTOCOL, "%s is the broker's to send", name);
	if (row->state != session->state)
		return tdp_fault_set(fault, TIDL_ERR_PROTOCOL,
				     "%s came on a connection that is %s: send it once, first",
				     name, tdd_session_state_name(session->state));
	if (message->request_id == 0 && !row->is_one_way)
		return tdp_fault_set(fault, TIDL_ERR_PROTOCOL,
				     "%s came with request id 0, so nobody could be answered",
				     name);
	return 0;
}

/* A message that this version does not know or not serve. The connection is fine. */
static void dispatch_unsupported(struct tdd_session *session, const struct tdp_message *message)
{
	struct tdp_fault fault;

	if (message->request_id == 0)
		return;
	tdp_fault_set(&fault, TIDL_ERR_UNSUPPORTED,
		      "this tidld does not serve this kind of request: a newer one may");
	tdd_session_reply_failure(session, message->request_id, &fault);
}

/* Nobody can be told why, since what it would take is not there. */
static void dispatch_drop(struct tdd_session *session, int code)
{
	const struct tdd_holder *holder = &session->holder;

	tdd_log_peer(holder->subject.uid, holder->process->pid,
		     "dropped: its request cannot be kept for later (%s)", tdp_error_name(code));
	tdd_session_close(session);
}

/* The rest of the request is for later turns. */
static void dispatch_keep(struct tdd_session *session)
{
	struct tdd_turns *turns = &session->server->turns;

	if (turns->spare == session->request)
		turns->spare = NULL;
	if (tdd_request_charge(session->request, &session->holder.account) < 0)
		dispatch_drop(session, TIDL_ERR_QUOTA);
}

static void dispatch_finish(struct tdd_session *session)
{
	struct tdd_turns *turns = &session->server->turns;
	struct tdd_request *request = session->request;

	session->request = NULL;
	tdd_request_clear(request);
	if (!turns->spare)
		turns->spare = request;
	else if (turns->spare != request)
		tdd_request_free(request);
}

/* Those that are ending may not have given back yet what it was refused for want of. */
static bool dispatch_may_try_again(const struct tdd_session *session, int code)
{
	const struct tdd_turns *turns = &session->server->turns;

	return session->state != TDD_SESSION_CLOSING &&
	       (code == TIDL_ERR_QUOTA || code == TIDL_ERR_LIMIT) &&
	       tdd_turns_expect_quota(turns, session, code == TIDL_ERR_LIMIT);
}

static void dispatch_handle(struct tdd_session *session, const struct dispatch_row *row)
{
	struct tdd_request *request = session->request;
	struct tdp_fault fault = {0};
	int r = row->handler(session, &request->message, &fault);

	if (dispatch_may_try_again(session, r))
		r = TDD_WORK_LEFT;
	if (r == TDD_WORK_LEFT) {
		dispatch_keep(session);
		return;
	}
	/* What a descriptor held broke the protocol. */
	if (r == TIDL_ERR_PROTOCOL)
		tdd_session_end(session, request->message.request_id, &fault);
	else if (r < 0 && !row->is_one_way)
		tdd_session_reply_failure(session, request->message.request_id, &fault);
	dispatch_finish(session);
}

void tdd_dispatch_go_on(struct tdd_session *session)
{
	dispatch_handle(session, &rows[session->request->message.kind]);
}

static void dispatch_message(struct tdd_session *session)
{
	const struct tdp_message *message = &session->request->message;
	bool is_served = message->kind != TDP_MESSAGE_NONE && message->kind != TDP_MESSAGE_UNBUILT;
	const struct dispatch_row *row = is_served ? &rows[message->kind] : NULL;
	struct tdp_fault fault = {0};

	if (dispatch_check(session, row, message, &fault) < 0) {
		tdd_session_end(session, message->request_id, &fault);
		dispatch_finish(session);
	} else if (!row) {
		dispatch_unsupported(session, message);
		dispatch_finish(session);
	} else {
		dispatch_handle(session, row);
	}
}

static void dispatch_unpack(struct tdd_session *session, const void *bytes, size_t size_bytes)
{
	struct tdd_request *request = session->request;
	struct tdp_message *message = &request->message;
	struct tdp_fault fault = {0};
	int r = tdp_message_unpack(&request->arena, bytes, size_bytes, message, &fault);

	if (session->refusal != 0) {
		tdp_fault_code(&fault, session->refusal);
		r = session->refusal;
	}
	if (session->server->received_fds.count > 0 &&
	    (r < 0 || !dispatch_wants_descriptor(message))) {
		tdd_intake_refuse_descriptors(session);
		dispatch_finish(session);
	} else if (r < 0) {
		tdd_session_end(session, message->request_id, &fault);
		dispatch_finish(session);
	} else {
		dispatch_message(session);
	}
}

void tdd_dispatch_packet(struct tdd_session *session, const void *bytes, size_t size_bytes)
{
	struct tdd_turns *turns = &session->server->turns;

	if (!turns->spare)
		turns->spare = tdd_request_new();
	session->request = turns->spare;
	if (session->request)
		dispatch_unpack(session, bytes, size_bytes);
	else
		dispatch_drop(session, TIDL_ERR_NO_MEMORY);
}
