/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the socket to the call that waits. Whatever breaks the protocol here ends the connection:
 * after that nothing could be matched with anything.
 */
#include "client/lib/receive.h"

#include <errno.h>

#include "client/lib/client.h"
#include "client/lib/waiters.h"
#include "client/lib/watch.h"
#include "proto/wire/packet.h"

static enum tdc_receive_result receive_break(struct tidl_client *client,
					     const struct tdp_fault *reason)
{
	tdc_client_break(client, reason);
	return TDC_RECEIVE_BROKEN;
}

static enum tdc_receive_result receive_fail(struct tidl_client *client, int error)
{
	struct tdp_fault fault;

	if (error == -ECONNRESET)
		(void)tdp_fault_set(&fault, TIDL_ERR_BROKER_GONE,
				    "the broker at %s went away: connect again; memory that is "
				    "mapped stays valid",
				    client->link.address);
	else if (error == -EMSGSIZE || error == -EPROTO)
		(void)tdp_fault_set(&fault, TIDL_ERR_PROTOCOL,
				    "the broker at %s sent a packet that no tidl broker sends: "
				    "check its version",
				    client->link.address);
	else
		(void)tdp_fault_set(&fault, TIDL_ERR_BROKER_GONE,
				    "the connection to %s failed with errno %d: connect again",
				    client->link.address, -error);
	return receive_break(client, &fault);
}

/* A code of the group that says that the connection is lost, whatever the reason was called. */
static int connection_code(int code)
{
	return code <= TIDL_ERR_NO_BROKER && tdp_error_is_known(code) ? code : TIDL_ERR_BROKER_GONE;
}

/* A packet that answers no request: an event, the broker's last words, or something newer. */
static enum tdc_receive_result receive_unasked(struct tidl_client *client,
					       const struct tdp_message *message)
{
	struct tdp_fault fault;

	if (message->kind == TDP_MESSAGE_EVENT)
		tdc_watches_deliver(client, &message->event);
	if (message->kind != TDP_MESSAGE_FAILURE)
		return TDC_RECEIVE_HANDLED;
	(void)tdp_fault_set(&fault, connection_code(message->failure.code),
			    "the broker ended the connection: %s", message->failure.message);
	return receive_break(client, &fault);
}

static enum tdc_receive_result receive_deliver(struct tidl_client *client, struct tdc_reply **reply)
{
	const struct tdp_message *message = &(*reply)->message;
	struct tdc_call *call;
	struct tdc_reply *own;
	struct tdp_fault fault;

	if (message->request_id == 0)
		return receive_unasked(client, message);
	call = tdc_waiters_find(client, message->request_id);
	if (call != NULL) {
		if (call->opened != NULL && message->kind == TDP_MESSAGE_WATCHING)
			tdc_watch_opened(client, call->opened, message->watching.watch_id);
		own = call->reply;
		call->reply = *reply;
		*reply = own;
		tdc_waiters_answered(client, call);
		return TDC_RECEIVE_HANDLED;
	}
	if (client->orphan_count > 0) {
		client->orphan_count--;
		tdc_reply_give_back(client, *reply);
		return TDC_RECEIVE_HANDLED;
	}
	(void)tdp_fault_set(&fault, TIDL_ERR_PROTOCOL,
			    "the broker at %s answered what was not asked: check its version",
			    client->link.address);
	return receive_break(client, &fault);
}

enum tdc_receive_result tdc_receive(struct tidl_client *client, struct tdc_reply **reply)
{
	struct tdc_reply *target = *reply;
	struct tdp_fault fault;
	size_t size_bytes = 0;
	int r = tdp_packet_receive(client->link.fd, client->packet, &target->fds, &size_bytes);

	/* A peer that closes with unread requests leaves ECONNRESET in front of its last packet,
	 * which may say why; the second call gets past it. Only an empty packet has nothing behind
	 * it, and nobody may send one. */
	if (r == -ECONNRESET) {
		r = tdp_packet_receive(client->link.fd, client->packet, &target->fds, &size_bytes);
		if (r == -EAGAIN)
			r = -EPROTO;
	}
	if (r == -EAGAIN)
		return TDC_RECEIVE_NOTHING;
	if (r < 0 && r != -EMFILE)
		return receive_fail(client, r);
	target->is_missing_fds = r == -EMFILE;
	target->era = client->era;
	if (tdp_message_unpack(&target->arena, client->packet, size_bytes, &target->message,
			       &fault) < 0) {
		fault.code = TIDL_ERR_PROTOCOL;
		return receive_break(client, &fault);
	}
	if (!target->is_missing_fds && target->message.fd_count != target->fds.count) {
		(void)tdp_fault_set(&fault, TIDL_ERR_PROTOCOL,
				    "the broker at %s announced %u descriptors and sent %u: "
				    "check its version",
				    client->link.address, target->message.fd_count,
				    target->fds.count);
		return receive_break(client, &fault);
	}
	return receive_deliver(client, reply);
}
