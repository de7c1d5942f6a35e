/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls in flight on one connection. One of them, the leader, polls the socket and hands out
 * what arrives; the others poll an eventfd of their own and are woken when they are done or when
 * the leader leaves. Plain poll() on both sides, so that signals reach every waiting thread. Does
 * not send or receive.
 */
#include "client/lib/waiters.h"

#include <sys/eventfd.h>

#include <utlist.h>

#include "client/lib/client.h"
#include "proto/base/fd.h"
#include "proto/mem/control.h"

static void call_wake(const struct tdc_call *call)
{
	/* Cannot block or fail: a counter of 64 bits never fills up. */
	if (call->wake_fd >= 0)
		(void)eventfd_write(call->wake_fd, 1);
}

void tdc_waiters_link(struct tidl_client *client, struct tdc_call *call)
{
	DL_APPEND(client->calls, call);
	call->is_linked = true;
}

void tdc_waiters_resign(struct tidl_client *client, struct tdc_call *call)
{
	struct tdc_call *other;

	if (client->leader != call)
		return;
	client->leader = NULL;
	DL_FOREACH (client->calls, other) {
		if (other != call && !other->is_done && other->ready == NULL) {
			call_wake(other);
			return;
		}
	}
}

void tdc_waiters_unlink(struct tidl_client *client, struct tdc_call *call)
{
	if (!call->is_linked)
		return;
	tdc_waiters_resign(client, call);
	DL_DELETE(client->calls, call);
	call->is_linked = false;
}

struct tdc_call *tdc_waiters_find(struct tidl_client *client, uint64_t request_id)
{
	struct tdc_call *call;

	DL_FOREACH (client->calls, call) {
		if (call->request_id == request_id && call->is_sent && !call->is_done)
			return call;
	}
	return NULL;
}

/* Does this answer say that there are more segments? */
static bool reply_has_more(const struct tdc_reply *reply)
{
	const struct tdp_message *message = &reply->message;

	if (reply->is_missing_fds)
		return false;
	return (message->kind == TDP_MESSAGE_GRANTED && message->granted.next_cursor != 0) ||
	       (message->kind == TDP_MESSAGE_MORE && message->more.next_cursor != 0);
}

void tdc_waiters_answered(struct tidl_client *client, struct tdc_call *call)
{
	if (call->part != TDC_PART_AWAITED || !reply_has_more(call->reply)) {
		tdc_waiters_end(client, call, 0);
		return;
	}
	/* The number is used up: a second answer to it would be one that nobody asked for. */
	call->request_id = 0;
	call->part = TDC_PART_ARRIVED;
	client->arrived_count++;
	tdc_attention_wake(client);
}

void tdc_waiters_end(struct tidl_client *client, struct tdc_call *call, int result)
{
	call->result = result;
	call->is_done = true;
	call_wake(call);
	if (call->part == TDC_PART_ARRIVED)
		client->arrived_count--;
	if (call->part != TDC_PART_TAKEN)
		call->part = TDC_PART_NONE;
	if (call->ready != NULL && call->part != TDC_PART_TAKEN)
		tdc_attention_tell(client, call->ready);
	if (call->sleepers != NULL)
		tdp_control_wake(call->sleepers);
}

void tdc_waiters_end_all(struct tidl_client *client, const struct tdp_fault *reason)
{
	struct tdc_call *call;

	DL_FOREACH (client->calls, call) {
		if (call->is_done)
			continue;
		*call->fault = *reason;
		tdc_waiters_end(client, call, reason->code);
	}
}

void tdc_waiters_forget_all(struct tidl_client *client)
{
	struct tdc_call *call;

	DL_FOREACH (client->calls, call) {
		call->wake_fd = tdp_fd_close(call->wake_fd);
		call->is_linked = false;
		/* The thread that was at a part is not here. */
		call->part = TDC_PART_NONE;
		if (call->is_done)
			continue;
		call->is_done = true;
		call->result = tdp_fault_set(call->fault, TIDL_ERR_CANCELLED,
					     "this process was forked in the middle of the call: "
					     "call again");
	}
	client->calls = NULL;
	client->leader = NULL;
	client->arrived_count = 0;
}
