/* SPDX-License-Identifier: Apache-2.0 */
/* The greeting: agree on a version, learn who the client says it is. */
#include <string.h>

#include <tidl/version.h>

#include "daemon/handlers/handlers.h"
#include "daemon/server.h"
#include "proto/wire/limits.h"

static uint64_t server_segment_limit(const struct tdd_server *server)
{
	uint64_t total_bytes = server->config.quota_total_bytes;
	uint64_t uid_bytes = server->config.quota_uid_bytes;

	return uid_bytes < total_bytes ? uid_bytes : total_bytes;
}

static void reply_welcome(struct tdd_session *session, uint64_t request_id)
{
	const struct tdd_server *server = session->server;
	struct tdp_message reply = {
		.kind = TDP_MESSAGE_WELCOME,
		.request_id = request_id,
		.welcome = {.version = TDP_PROTOCOL_MAX,
			    .epoch = server->epoch,
			    .server_version = TIDL_VERSION,
			    .uid = session->holder.subject.uid,
			    .is_private = server->config.is_private,
			    .max_packet_bytes = TDP_PACKET_MAX_BYTES,
			    .max_fds = TDP_PACKET_MAX_FDS,
			    .max_segment_bytes = server_segment_limit(server)},
	};

	memcpy(reply.welcome.broker_id, server->id, sizeof(reply.welcome.broker_id));
	tdd_session_reply(session, &reply, NULL, 0);
}

int tdd_handle_hello(struct tdd_session *session, const struct tdp_message *request,
		     struct tdp_fault *fault)
{
	const struct tdp_hello *hello = &request->hello;

	if (hello->min_version > TDP_PROTOCOL_MAX || hello->max_version < TDP_PROTOCOL_MIN) {
		tdp_fault_set(fault, TIDL_ERR_VERSION,
			      "the client speaks protocol versions %u to %u, tidld %s speaks %d to "
			      "%d: update the older of the two",
			      hello->min_version, hello->max_version, TIDL_VERSION,
			      TDP_PROTOCOL_MIN, TDP_PROTOCOL_MAX);
		tdd_session_end(session, request->request_id, fault);
		return 0;
	}
	int r = tdd_process_describe(session->holder.process, hello->client_name, hello->command,
				     hello->cgroup, fault);

	if (r < 0) {
		tdd_session_end(session, request->request_id, fault);
		return 0;
	}
	tdd_session_set_ready(session);
	reply_welcome(session, request->request_id);
	return 0;
}

int tdd_handle_goodbye(struct tdd_session *session, const struct tdp_message *request,
		       struct tdp_fault *fault)
{
	(void)request;
	(void)fault;
	/* The client ends the connection itself: what it sent before has to be answered first. */
	session->holder.said_goodbye = true;
	return 0;
}
