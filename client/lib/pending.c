/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that no thread waits for: a call as any other, but on the heap, told of through the
 * client's attention. Whoever receives fills it in; whoever dispatches maps what came in part and
 * asks for the rest. Owned by the user; holds the client.
 */
#include "client/lib/pending.h"

#include <stdlib.h>
#include <string.h>

#include "client/lib/call.h"
#include "client/lib/client.h"
#include "client/lib/waiters.h"

struct tidl_pending {
	struct tidl_client *client;
	struct tdc_call call;
	struct tdc_ready ready;
	struct tdp_fault fault;
	enum tdp_message_kind expected;
	bool is_taken;
	struct tdc_lease *cancel; /* for the case that it is given up */

	/* Of an attach. The grant belongs to the thread that is at a part, else to the user's. */
	struct tdc_lease *lease;
	struct tdc_grant grant;
	struct tdc_reply *spare; /* the grant keeps the one that it came in */
	bool is_granted;	 /* the first part is mapped: nothing to cancel any more */
	bool is_abandoned;	 /* freed while a thread was at a part */
	enum tidl_attach attach;
	char *path;
	size_t key_count;
	char **keys;
};

static struct tidl_pending *pending_free(struct tidl_pending *pending)
{
	if (pending == NULL)
		return NULL;
	tdc_grant_deinit(&pending->grant);
	(void)tdc_client_unref(pending->client);
	(void)tdc_reply_free(pending->call.reply);
	(void)tdc_reply_free(pending->spare);
	(void)tdc_lease_forget(pending->cancel);
	(void)tdc_lease_forget(pending->lease);
	free(pending->call.unsent);
	free(pending->path);
	for (size_t i = 0; i < pending->key_count; i++)
		free(pending->keys[i]);
	free(pending->keys);
	free(pending);
	return NULL;
}

static int pending_new(struct tidl_client *client, enum tdp_message_kind expected,
		       struct tidl_pending **ret_pending, struct tdp_fault *fault)
{
	struct tidl_pending *pending = calloc(1, sizeof(*pending));
	int r;

	if (pending == NULL)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	pending->client = tdc_client_ref(client);
	pending->expected = expected;
	pending->call.wake_fd = -1;
	pending->call.fault = &pending->fault;
	pending->call.ready = &pending->ready;
	r = tdc_reply_new(&pending->call.reply, fault);
	if (r == 0)
		r = tdc_lease_new(TDC_LEASE_REQUEST, &pending->cancel, fault);
	if (r < 0)
		(void)pending_free(pending);
	else
		*ret_pending = pending;
	return r;
}

/* Client locked. */
static int pending_send(struct tidl_pending *pending, struct tdp_message *message,
			struct tdp_fault *fault)
{
	struct tidl_client *client = pending->client;
	struct tdc_call *call = &pending->call;
	size_t size_bytes;
	int r;

	call->request_id = client->next_request_id++;
	message->request_id = call->request_id;
	tdc_outbound_flush(client);
	r = tdp_message_pack(message, client->packet, TDP_PACKET_MAX_BYTES, &size_bytes, fault);
	if (r < 0)
		return r;
	tdc_call_transmit(client, call, client->packet, size_bytes);
	if (call->is_done) {
		*fault = *call->fault;
		return call->result;
	}
	if (!call->is_sent) {
		free(call->unsent);
		call->unsent = malloc(size_bytes);
		if (call->unsent == NULL)
			return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
		memcpy(call->unsent, client->packet, size_bytes);
		call->unsent_bytes = size_bytes;
		tdc_attention_await_room(client, true);
	}
	if (!call->is_linked)
		tdc_waiters_link(client, call);
	if (pending->cancel == NULL)
		return 0;
	pending->cancel->id = call->request_id;
	pending->cancel->era = client->era;
	return 0;
}

static int pending_start(struct tidl_pending *pending, struct tdp_message *message,
			 struct tdp_fault *fault)
{
	int r = tdc_client_lock_open(pending->client, fault);

	if (r < 0)
		return r;
	r = pending_send(pending, message, fault);
	tdc_attention_forget(pending->client, &pending->ready);
	tdc_client_unlock(pending->client);
	return r;
}

int tdc_pending_begin(struct tidl_client *client, struct tdp_message *message,
		      enum tdp_message_kind expected, struct tidl_pending **ret_pending,
		      struct tdp_fault *fault)
{
	struct tidl_pending *pending;
	int r = pending_new(client, expected, &pending, fault);

	if (r < 0)
		return r;
	r = pending_start(pending, message, fault);
	if (r < 0)
		(void)pending_free(pending);
	else
		*ret_pending = pending;
	return r;
}

/* What the answer will be held against. */
static int pending_keep(struct tidl_pending *pending, const struct tdc_attach_request *request,
			struct tdp_fault *fault)
{
	pending->attach = request->attach;
	pending->path = strdup(request->name->path);
	pending->keys = calloc(request->key_count + 1, sizeof(*pending->keys));
	if (pending->path == NULL || pending->keys == NULL)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	for (; pending->key_count < request->key_count; pending->key_count++) {
		char *key = strdup(request->keys[pending->key_count]);

		if (key == NULL)
			return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
		pending->keys[pending->key_count] = key;
	}
	return 0;
}

int tdc_pending_attach(struct tidl_client *client, const struct tdc_attach_request *request,
		       struct tidl_pending **ret_pending, struct tdp_fault *fault)
{
	struct tdp_message message = tdc_attach_message(request);
	struct tidl_pending *pending;
	int r = pending_new(client, TDP_MESSAGE_GRANTED, &pending, fault);

	if (r < 0)
		return r;
	pending->call.part = TDC_PART_AWAITED;
	r = pending_keep(pending, request, fault);
	if (r == 0)
		r = tdc_reply_new(&pending->spare, fault);
	if (r == 0)
		r = tdc_lease_new(TDC_LEASE_PUBLICATION, &pending->lease, fault);
	if (r == 0)
		r = pending_start(pending, &message, fault);
	if (r < 0)
		(void)pending_free(pending);
	else
		*ret_pending = pending;
	return r;
}

/* ---- answers in parts ---- */

/* What the answer has to be. */
static struct tdc_grant_request pending_wanted(const struct tidl_pending *pending)
{
	return (struct tdc_grant_request){
		.name = pending->path,
		.attach = pending->attach,
		.key_count = pending->key_count,
		.keys = (const char *const *)pending->keys,
	};
}

/* Map what has come in `call.reply`. No lock held: nobody else is at it. */
static int pending_map_part(struct tidl_pending *pending, struct tdp_fault *fault)
{
	const struct tdc_grant_request wanted = pending_wanted(pending);
	bool is_first = pending->grant.origin == NULL;
	struct tdc_reply *reply = pending->call.reply;
	struct tdc_call seen = {.reply = reply, .fault = fault};
	struct tdc_lease *lease;
	int r = tdc_call_conclude(pending->client, &seen,
				  is_first ? TDP_MESSAGE_GRANTED : TDP_MESSAGE_MORE);

	if (r < 0)
		return r;
	if (!is_first) {
		r = tdc_parts_more(&pending->grant.parts, reply, fault);
		tdc_reply_reset(reply);
		return r;
	}
	lease = pending->lease;
	pending->lease = NULL;
	r = tdc_grant_begin(pending->client, &wanted, reply, lease, &pending->grant, fault);
	if (r == 0) {
		pending->call.reply = pending->spare;
		pending->spare = NULL;
	}
	return r;
}

/* Client locked. */
static int pending_ask_more(struct tidl_pending *pending, struct tdp_fault *fault)
{
	struct tdp_message message = tdc_parts_request(&pending->grant.parts);

	if (pending->client->state != TDC_CLIENT_STATE_OPEN)
		return tdc_client_refuse(pending->client, fault);
	pending->is_granted = true;
	pending->cancel = tdc_lease_forget(pending->cancel);
	pending->call.is_sent = false;
	return pending_send(pending, &message, fault);
}

/* A part has arrived: take it, and ask for the next. Client locked on entry and exit. */
static void pending_go_on(struct tidl_client *client, struct tidl_pending *pending)
{
	struct tdc_call *call = &pending->call;
	struct tdp_fault fault;
	int r;

	client->arrived_count--;
	call->part = TDC_PART_TAKEN;
	tdc_client_unlock(client);
	r = pending_map_part(pending, &fault);
	tdc_client_lock(client);
	call->part = TDC_PART_AWAITED;
	if (pending->is_abandoned) {
		tdc_client_unlock(client);
		(void)pending_free(pending);
		tdc_client_lock(client);
	} else if (call->is_done) {
		/* The connection ended meanwhile. */
		tdc_attention_tell(client, &pending->ready);
	} else {
		if (r == 0)
			r = pending_ask_more(pending, &fault);
		if (r < 0) {
			pending->fault = fault;
			tdc_waiters_end(client, call, r);
		}
	}
}

/* Client locked. */
static struct tidl_pending *pending_find_arrived(const struct tidl_client *client)
{
	struct tdc_call *call = client->arrived_count > 0 ? client->calls : NULL;

	while (call != NULL && call->part != TDC_PART_ARRIVED)
		call = call->next;
	return call != NULL ? TDP_CONTAINER_OF(call, struct tidl_pending, call) : NULL;
}

int tdc_pending_dispatch(struct tidl_client *client, struct tdp_fault *fault)
{
	struct tidl_pending *pending;
	int r = tdc_call_dispatch(client, fault);

	tdc_client_lock(client);
	while ((pending = pending_find_arrived(client)) != NULL)
		pending_go_on(client, pending);
	tdc_client_unlock(client);
	return r;
}

/* ---- the end ---- */

/* Client locked. */
static bool pending_is_done(const struct tidl_pending *pending)
{
	return pending->call.is_done && pending->call.part != TDC_PART_TAKEN;
}

int tidl_pending_is_done(struct tidl_pending *pending)
{
	bool is_done;

	tdc_client_lock(pending->client);
	if (pending->call.part == TDC_PART_ARRIVED)
		pending_go_on(pending->client, pending);
	is_done = pending_is_done(pending);
	tdc_client_unlock(pending->client);
	return is_done;
}

/* The answer may be taken now, and by whom. */
static int pending_take(struct tidl_pending *pending, enum tdp_message_kind expected,
			struct tdp_fault *fault)
{
	if (pending->expected != expected)
		return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT,
				     "this request asked for something else: take its answer with "
				     "the function that belongs to it");
	if (!tidl_pending_is_done(pending))
		return tdp_fault_set(fault, TIDL_ERR_BUSY,
				     "there is no answer yet: call tidl_dispatch() when tidl_fd() "
				     "is readable");
	if (pending->is_taken)
		return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT,
				     "the answer was taken already");
	pending->is_taken = true;
	if (pending->call.result < 0)
		*fault = pending->fault;
	return pending->call.result;
}

int tdc_pending_take(struct tidl_pending *pending, enum tdp_message_kind expected,
		     struct tdc_reply **ret_reply, struct tdp_fault *fault)
{
	int r = pending_take(pending, expected, fault);

	if (r < 0)
		return r;
	r = tdc_call_conclude(pending->client, &pending->call, expected);
	if (r < 0)
		*fault = pending->fault;
	else
		*ret_reply = pending->call.reply;
	return r;
}

int tdc_pending_grant(struct tidl_pending *pending, struct tdc_grant *ret_grant,
		      struct tdp_fault *fault)
{
	const struct tdc_grant_request wanted = pending_wanted(pending);
	int r = pending_take(pending, TDP_MESSAGE_GRANTED, fault);

	if (r == 0)
		r = pending_map_part(pending, fault);
	if (r == 0)
		r = tdc_grant_finish(&pending->grant, &wanted, fault);
	if (r < 0)
		return r;
	*ret_grant = pending->grant;
	pending->grant = TDC_GRANT_NONE;
	return 0;
}

void tidl_pending_set_key(struct tidl_pending *pending, uint64_t key)
{
	tdc_client_lock(pending->client);
	pending->ready.key = key;
	if (pending_is_done(pending))
		tdc_attention_tell(pending->client, &pending->ready);
	tdc_client_unlock(pending->client);
}

void tdc_pending_wakes(struct tidl_pending *pending, const struct tdp_control *control)
{
	pending->call.sleepers = control;
}

int tdc_pending_peek(const struct tidl_pending *pending, struct tdp_fault *fault)
{
	const struct tdc_call *call = &pending->call;

	if (!call->is_done)
		return 0;
	if (call->result < 0) {
		*fault = *call->fault;
		return call->result;
	}
	if (call->reply->message.kind == TDP_MESSAGE_FAILURE)
		return tdp_fault_set(fault, call->reply->message.failure.code, "%s",
				     call->reply->message.failure.message);
	return tdp_fault_set(fault, TIDL_ERR_PROTOCOL,
			     "the broker answered with %s what it could only refuse: check its "
			     "version",
			     tdp_message_name(call->reply->message.kind));
}

/* Client locked. */
static void pending_send_cancel(struct tidl_pending *pending)
{
	struct tidl_client *client = pending->client;

	if (pending->cancel == NULL)
		return;
	tdc_outbound_push(client, pending->cancel);
	pending->cancel = NULL;
	tdc_outbound_flush(client);
	if (client->outbound.head != NULL)
		tdc_attention_await_room(client, true);
}

void tidl_pending_cancel(struct tidl_pending *pending)
{
	struct tdc_call *call = &pending->call;
	bool can_cancel;

	tdc_client_lock(pending->client);
	can_cancel = !call->is_done && call->request_id != 0 && !pending->is_granted;
	if (can_cancel && call->is_sent)
		pending_send_cancel(pending);
	else if (can_cancel)
		tdc_waiters_end(pending->client, call,
				tdp_fault_code(call->fault, TIDL_ERR_CANCELLED));
	tdc_client_unlock(pending->client);
}

/* What is on its way, or has come and was not taken, is nobody's. Client locked. */
static void pending_leave(struct tidl_pending *pending)
{
	struct tidl_client *client = pending->client;
	struct tdc_call *call = &pending->call;
	bool has_arrived = call->part == TDC_PART_ARRIVED;

	if (has_arrived) {
		client->arrived_count--;
		call->part = TDC_PART_AWAITED;
	} else if (!call->is_done && call->is_sent && call->request_id != 0) {
		client->orphan_count++;
		pending_send_cancel(pending);
	}
	if (has_arrived || (pending_is_done(pending) && !pending->is_taken && call->result == 0))
		tdc_reply_give_back(client, call->reply);
}

void tidl_pending_free(struct tidl_pending *pending)
{
	struct tidl_client *client;
	bool is_in_use;

	if (pending == NULL)
		return;
	client = pending->client;
	tdc_client_lock(client);
	pending_leave(pending);
	tdc_waiters_unlink(client, &pending->call);
	tdc_attention_forget(client, &pending->ready);
	/* Then the thread that is at a part does the rest. */
	is_in_use = pending->call.part == TDC_PART_TAKEN;
	pending->is_abandoned = is_in_use;
	tdc_client_unlock(client);
	if (!is_in_use)
		(void)pending_free(pending);
}

size_t tidl_due(struct tidl_client *client)
{
	struct tdc_call *call;
	size_t count;

	tdc_client_lock(client);
	count = client->orphan_count;
	for (call = client->calls; call != NULL; call = call->next) {
		/* What the library itself asked for is nothing to watch a descriptor for. */
		if (call->ready != NULL && call->sleepers == NULL && !call->is_done)
			count++;
	}
	tdc_client_unlock(client);
	return count;
}

uint64_t tidl_ready(struct tidl_client *client)
{
	uint64_t key;

	tdc_client_lock(client);
	key = tdc_attention_take(client);
	tdc_client_unlock(client);
	return key;
}
