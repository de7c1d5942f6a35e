/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request and its answer, for any number of threads at once. No thread of the library's own:
 * whoever waits first watches the socket for all (see waiters.c). The lock is held while sending
 * and receiving, which never block, and not while polling or in the interrupt handler.
 *
 *   send -> wait -> answer
 *             |  deadline or signal, of a waiting GET: CANCEL -> wait a little -> answer, or
 *             |                                                given up for good
 *             |  of any other: given up for good
 */
#include "client/lib/call.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <utlist.h>

#include "client/lib/client.h"
#include "client/lib/deadline.h"
#include "client/lib/receive.h"
#include "client/lib/stdio_guard.h"
#include "client/lib/waiters.h"
#include "client/lib/watch.h"
#include "proto/base/fd.h"
#include "proto/wire/packet.h"

/* How long a broker may take to answer a request that was given up, before its answer is left to
 * whoever receives it. Ends calls to a broker that is stopped. */
enum { GIVE_UP_GRACE_MS = 2000 };

void tdc_call_transmit(struct tidl_client *client, struct tdc_call *call, const void *packet,
		       size_t size_bytes)
{
	int r = tdp_packet_send(client->link.fd, packet, size_bytes, call->fds, call->fd_count);

	if (r == -EAGAIN)
		return;
	/* Whoever receives finds out that the peer is gone, after its last words. */
	if (r == 0 || r == -EPIPE || r == -ECONNRESET || r == -ENOTCONN)
		call->is_sent = true;
	else
		tdc_waiters_end(client, call,
				tdp_fault_errno(call->fault, -r,
						"the request to %s could not be sent",
						client->link.address));
}

static void call_send(struct tidl_client *client, struct tdc_call *call,
		      struct tdp_message *request)
{
	size_t size_bytes;
	int r;

	tdc_outbound_flush(client);
	request->request_id = call->request_id;
	request->fd_count = call->fd_count;
	r = tdp_message_pack(request, client->packet, TDP_PACKET_MAX_BYTES, &size_bytes,
			     call->fault);
	if (r < 0)
		tdc_waiters_end(client, call, r);
	else
		tdc_call_transmit(client, call, client->packet, size_bytes);
}

/* Best effort: a cancel that is lost only means that the answer comes later, to nobody. */
static void call_send_cancel(struct tidl_client *client, const struct tdc_call *call)
{
	struct tdp_message message = {
		.kind = TDP_MESSAGE_CANCEL,
		.cancel = {.request_id = call->request_id},
	};
	struct tdp_fault unused;
	size_t size_bytes;

	if (tdp_message_pack(&message, client->packet, TDP_PACKET_MAX_BYTES, &size_bytes, &unused) <
	    0)
		return;
	if (tdp_packet_send(client->link.fd, client->packet, size_bytes, NULL, 0) < 0)
		return;
}

/* The answer, when it comes, is nobody's. */
static void call_orphan(struct tidl_client *client, struct tdc_call *call, int result)
{
	if (call->is_sent && call->watch == NULL)
		client->orphan_count++;
	tdc_waiters_end(client, call, result);
}

/* Not a word about the name: the broker is the one to look at. */
static int call_unanswered(const struct tidl_client *client, const struct tdc_call *call, int code)
{
	if (code != TIDL_ERR_TIMEOUT)
		return tdp_fault_code(call->fault, code);
	return tdp_fault_set(call->fault, TIDL_ERR_TIMEOUT,
			     "the broker at %s does not answer: check whether it is stopped or "
			     "overloaded",
			     client->link.address);
}

/* The caller wants no more, because of @code. Only what the broker holds back can be cancelled, and
 * is worth waiting for a little longer. */
static void call_give_up(struct tidl_client *client, struct tdc_call *call, int code)
{
	if (call->watch != NULL) {
		tdc_waiters_end(client, call,
				code == TIDL_ERR_TIMEOUT ? TDC_CALL_EXPIRED
							 : tdp_fault_code(call->fault, code));
		return;
	}
	if (!call->is_sent || !call->is_wait || call->given_up != 0) {
		int reason = call->given_up != 0 ? call->given_up : code;

		call_orphan(client, call, call_unanswered(client, call, reason));
		return;
	}
	call->given_up = code;
	call->deadline = tdc_deadline_after(GIVE_UP_GRACE_MS);
	call_send_cancel(client, call);
}

/* A signal ran while polling. The handler may do anything, even call the same client, so this
 * call must not lead meanwhile. Locked on entry and exit. */
static void call_interrupted(struct tidl_client *client, struct tdc_call *call)
{
	bool is_stopped;

	if (client->interrupt.handler == NULL)
		return;
	tdc_waiters_resign(client, call);
	tdc_client_unlock(client);
	is_stopped = tdc_interrupt_is_asked(&client->interrupt);
	tdc_client_lock(client);
	if (is_stopped && !call->is_done)
		call_give_up(client, call, TIDL_ERR_INTERRUPTED);
}

/* Lead when nobody does, else get an eventfd to follow with. Who waits for events needs one in any
 * case: the watch can be stopped from outside, and the socket would not tell. */
static int call_take_role(struct tidl_client *client, struct tdc_call *call)
{
	if (client->leader == NULL)
		client->leader = call;
	if ((client->leader == call && call->watch == NULL) || call->wake_fd >= 0)
		return 0;
	call->wake_fd = tdc_above_stdio(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (call->wake_fd < 0)
		return tdp_fault_errno(call->fault, errno,
				       "a call beside others needs one descriptor to wait with");
	return 0;
}

/* The socket and the eventfd; poll() passes over what is negative. */
static void call_fill_poll(const struct tidl_client *client, const struct tdc_call *call,
			   struct pollfd fds[2])
{
	const short writable = call->is_sent ? 0 : POLLOUT;
	const bool is_leader = client->leader == call;

	fds[0] = (struct pollfd){
		.fd = is_leader || !call->is_sent ? client->link.fd : -1,
		.events = (short)(is_leader ? POLLIN | writable : writable),
	};
	fds[1] = (struct pollfd){.fd = call->wake_fd, .events = POLLIN};
}

/* Something happened. Locked on entry and exit. */
static void call_awake(struct tidl_client *client, struct tdc_call *call, const struct pollfd *fds)
{
	eventfd_t wakes;

	if (fds[1].revents != 0)
		(void)eventfd_read(call->wake_fd, &wakes);
	if (client->leader != call || (fds[0].revents & ~POLLOUT) == 0)
		return;
	if (tdc_receive(client, &call->reply) == TDC_RECEIVE_HANDLED && !call->is_done) {
		/* Another call's empty reply, or an orphan's full one. */
		tdc_client_unlock(client);
		tdc_reply_reset(call->reply);
		tdc_client_lock(client);
	}
}

/* Poll once and handle what happened. Locked on entry and exit. */
static void call_wait(struct tidl_client *client, struct tdc_call *call)
{
	struct pollfd fds[2];
	int r = call_take_role(client, call);
	int error;

	if (r < 0) {
		call_orphan(client, call, r);
		return;
	}
	call_fill_poll(client, call, fds);
	tdc_client_unlock(client);
	r = poll(fds, 2, tdc_deadline_poll_ms(call->deadline));
	error = errno;
	tdc_client_lock(client);
	if (call->is_done)
		return;
	if (r < 0 && error == EINTR)
		call_interrupted(client, call);
	else if (r < 0)
		call_orphan(client, call, tdp_fault_errno(call->fault, error, "poll() failed"));
	else if (r == 0)
		call_give_up(client, call, TIDL_ERR_TIMEOUT);
	else
		call_awake(client, call, fds);
}

/* Send and wait, until the call is done. Locked on entry and exit. */
static void call_run(struct tidl_client *client, struct tdc_call *call, struct tdp_message *request)
{
	int cancel_state;

	/* The call is on this thread's stack and in everybody's list: the thread must not be
	 * cancelled in poll(). */
	(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	if (call->watch == NULL)
		call->request_id = client->next_request_id++;
	tdc_waiters_link(client, call);
	while (!call->is_done) {
		if (request != NULL && !call->is_sent)
			call_send(client, call, request);
		if (!call->is_done)
			call_wait(client, call);
	}
	tdc_waiters_unlink(client, call);
	(void)pthread_setcancelstate(cancel_state, NULL);
}

/* An answer that is not handed on. Only one of the wrong kind breaks the connection. */
static void reply_refuse(struct tidl_client *client, const struct tdc_reply *reply,
			 const struct tdp_fault *broken)
{
	tdc_client_lock(client);
	if (broken == NULL)
		tdc_reply_give_back(client, reply);
	else if (client->state == TDC_CLIENT_STATE_OPEN && client->era == reply->era)
		tdc_client_break(client, broken);
	tdc_client_unlock(client);
}

int tdc_call_conclude(struct tidl_client *client, const struct tdc_call *call,
		      enum tdp_message_kind expected)
{
	const struct tdp_message *message = &call->reply->message;

	if (message->kind == TDP_MESSAGE_FAILURE) {
		if (call->given_up == TIDL_ERR_INTERRUPTED)
			return tdp_fault_code(call->fault, call->given_up);
		if (call->given_up != 0 && message->failure.code == TIDL_ERR_CANCELLED)
			return TDC_CALL_EXPIRED;
		return tdp_fault_set(call->fault, message->failure.code, "%s",
				     message->failure.message);
	}
	if (call->given_up == TIDL_ERR_INTERRUPTED) {
		reply_refuse(client, call->reply, NULL);
		return tdp_fault_code(call->fault, call->given_up);
	}
	if (call->reply->is_missing_fds) {
		reply_refuse(client, call->reply, NULL);
		return tdp_fault_code(call->fault, TIDL_ERR_DESCRIPTORS);
	}
	if (message->kind == expected)
		return 0;
	(void)tdp_fault_set(call->fault, TIDL_ERR_PROTOCOL,
			    "the broker answered with %s where %s was due: check its version",
			    tdp_message_name(message->kind), tdp_message_name(expected));
	reply_refuse(client, call->reply, call->fault);
	return call->fault->code;
}

static bool is_held_back(const struct tdp_message *request)
{
	return request->kind == TDP_MESSAGE_WAIT ||
	       (request->kind == TDP_MESSAGE_GET && request->get.wait);
}

/* On success the answer is in the call's reply; there is none else. */
static int call_do(struct tidl_client *client, struct tdc_call *call, struct tdp_message *request,
		   enum tdp_message_kind expected)
{
	int r = tdc_reply_new(&call->reply, call->fault);

	if (r < 0)
		return r;
	call->wake_fd = -1;
	call->is_wait = is_held_back(request);
	r = tdc_client_lock_open(client, call->fault);
	if (r == 0) {
		if (!call->is_wait)
			call->deadline = tdc_deadline_after(client->answer_timeout_ms);
		call_run(client, call, request);
		tdc_client_unlock(client);
		(void)tdp_fd_close(call->wake_fd);
		r = call->result < 0 ? call->result : tdc_call_conclude(client, call, expected);
	}
	if (r != 0)
		call->reply = tdc_reply_free(call->reply);
	return r;
}

int tdc_call(struct tidl_client *client, struct tdp_message *request, int64_t deadline,
	     enum tdp_message_kind expected, struct tdc_reply **ret_reply, struct tdp_fault *fault)
{
	struct tdc_call call = {.deadline = deadline, .fault = fault};
	int r = call_do(client, &call, request, expected);

	if (r == 0)
		*ret_reply = call.reply;
	return r;
}

int tdc_call_watch(struct tidl_client *client, struct tdp_message *request,
		   struct tidl_watch *watch, struct tdp_fault *fault)
{
	struct tdc_call call = {.opened = watch, .fault = fault};
	int r = call_do(client, &call, request, TDP_MESSAGE_WATCHING);

	(void)tdc_reply_free(call.reply);
	return r;
}

int tdc_call_await_event(struct tidl_client *client, struct tidl_watch *watch, int64_t deadline,
			 struct tdp_fault *fault)
{
	struct tdc_call call = {
		.watch = watch,
		.is_sent = true,
		.wake_fd = -1,
		.deadline = deadline,
		.fault = fault,
	};
	int r = tdc_reply_new(&call.reply, fault);

	if (r < 0)
		return r;
	tdc_client_lock(client);
	if (!tdc_watch_is_ready(watch) && client->state == TDC_CLIENT_STATE_OPEN)
		call_run(client, &call, NULL);
	tdc_client_unlock(client);
	(void)tdp_fd_close(call.wake_fd);
	(void)tdc_reply_free(call.reply);
	return call.result;
}

int tdc_call_with_fd(struct tidl_client *client, struct tdp_message *request, int fd,
		     enum tdp_message_kind expected, struct tdc_reply **ret_reply,
		     struct tdp_fault *fault)
{
	struct tdc_call call = {.fds = &fd, .fd_count = 1, .fault = fault};
	int r = call_do(client, &call, request, expected);

	if (r == 0)
		*ret_reply = call.reply;
	return r;
}

/* Requests that no thread waits for go out here. False: the socket is full. */
static bool calls_flush(struct tidl_client *client)
{
	struct tdc_call *call;

	DL_FOREACH (client->calls, call) {
		if (call->ready == NULL || call->is_sent || call->is_done)
			continue;
		tdc_call_transmit(client, call, call->unsent, call->unsent_bytes);
		if (!call->is_sent && !call->is_done)
			return false;
	}
	return true;
}

/* Handle one packet. Client locked and open. */
static enum tdc_receive_result dispatch_once(struct tidl_client *client, struct tdc_reply **reply)
{
	bool is_empty;

	tdc_attention_settle(client);
	tdc_outbound_flush(client);
	is_empty = calls_flush(client) && client->outbound.head == NULL;
	tdc_attention_await_room(client, !is_empty);
	/* With a leader, what arrives is in hands already. */
	return client->leader == NULL ? tdc_receive(client, reply) : TDC_RECEIVE_NOTHING;
}

/* With a leader, what arrives is in hands already. Client locked. */
static bool look_is_due(struct tidl_client *client)
{
	struct pollfd item = {.fd = client->link.fd, .events = POLLIN};

	if (client->state != TDC_CLIENT_STATE_OPEN)
		return false;
	tdc_outbound_flush(client);
	(void)calls_flush(client);
	return client->leader == NULL && poll(&item, 1, 0) > 0;
}

void tdc_call_look(struct tidl_client *client)
{
	tdc_auto_reply *reply = NULL;
	struct tdp_fault unused;
	bool is_due;

	do {
		tdc_client_lock(client);
		is_due = look_is_due(client);
		/* Not for nothing: most looks find nothing. Without memory, the next one. */
		if (is_due && reply == NULL && tdc_reply_new(&reply, &unused) < 0)
			is_due = false;
		is_due = is_due && tdc_receive(client, &reply) == TDC_RECEIVE_HANDLED;
		tdc_client_unlock(client);
		if (reply != NULL)
			tdc_reply_reset(reply);
	} while (is_due);
}

int tdc_call_dispatch(struct tidl_client *client, struct tdp_fault *fault)
{
	tdc_auto_reply *reply = NULL;
	enum tdc_receive_result result;
	int r = tdc_reply_new(&reply, fault);

	if (r < 0)
		return r;
	do {
		tdc_client_lock(client);
		/* A forked child has nothing to handle before its first call. */
		if (client->state == TDC_CLIENT_STATE_FORKED) {
			tdc_client_unlock(client);
			return 0;
		}
		if (client->state != TDC_CLIENT_STATE_OPEN) {
			r = tdc_client_refuse(client, fault);
			tdc_client_unlock(client);
			return r;
		}
		result = dispatch_once(client, &reply);
		tdc_client_unlock(client);
		tdc_reply_reset(reply);
	} while (result != TDC_RECEIVE_NOTHING);
	return 0;
}
