/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of messages: which a client may send, in which state, and who handles it. Everything
 * that a handler may take for granted is proved here.
 */
#include "daemon/dispatch.h"

#include "daemon/handlers/handlers.h"
#include "daemon/server.h"
#include "proto/base/arena.h"
#include "proto/wire/limits.h"

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

static void dispatch_message(struct tdd_session *session, const struct tdp_message *message)
{
	bool is_served = message->kind != TDP_MESSAGE_NONE && message->kind != TDP_MESSAGE_UNBUILT;
	const struct dispatch_row *row = is_served ? &rows[message->kind] : NULL;
	struct tdp_fault fault = {0};
	int r = dispatch_check(session, row, message, &fault);

	if (r < 0) {
		tdd_session_end(session, message->request_id, &fault);
		return;
	}
	if (!row) {
		dispatch_unsupported(session, message);
		return;
	}
	r = row->handler(session, message, &fault);
	/* What a descriptor held broke the protocol. */
	if (r == TIDL_ERR_PROTOCOL)
		tdd_session_end(session, message->request_id, &fault);
	else if (r < 0 && !row->is_one_way)
		tdd_session_reply_failure(session, message->request_id, &fault);
}

void tdd_dispatch_packet(struct tdd_session *session, const void *bytes, size_t size_bytes)
{
	tdp_auto_arena arena;
	struct tdp_message message = {0};
	struct tdp_fault fault = {0};
	int r;

	tdp_arena_init(&arena, TDP_UNPACK_MAX_BYTES);
	r = tdp_message_unpack(&arena, bytes, size_bytes, &message, &fault);
	if (session->refusal != 0) {
		tdp_fault_code(&fault, session->refusal);
		r = session->refusal;
	}
	if (session->server->received_fds.count > 0 &&
	    (r < 0 || !dispatch_wants_descriptor(&message)))
		tdd_session_refuse_descriptors(session);
	else if (r < 0)
		tdd_session_end(session, message.request_id, &fault);
	else
		dispatch_message(session, &message);
}
