/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watches: from the broker's events to whoever reads them. Whichever thread receives puts an event
 * into the queue of its watch and wakes one reader. Does not receive itself: a reader that waits is
 * a call like any other (call.h).
 */
#include "client/lib/watch.h"

#include <stdlib.h>

#include <utlist.h>

#include "client/lib/call.h"
#include "client/lib/client.h"
#include "client/lib/pending.h"
#include "client/lib/waiters.h"
#include "include/tidl/pending.h"

static struct tidl_watch *watch_free(struct tidl_watch *watch)
{
	(void)tdc_client_unref(watch->client);
	(void)tdc_lease_forget(watch->lease);
	tdc_event_queue_deinit(&watch->queue);
	free(watch);
	return NULL;
}

static int watch_new(struct tidl_client *client, struct tidl_watch **ret_watch,
		     struct tdp_fault *fault)
{
	struct tidl_watch *watch = calloc(1, sizeof(*watch));
	int r;

	if (watch == NULL)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	watch->client = tdc_client_ref(client);
	r = tdc_lease_new(TDC_LEASE_WATCH, &watch->lease, fault);
	if (r < 0)
		(void)watch_free(watch);
	else
		*ret_watch = watch;
	return r;
}

int tdc_watch_open(struct tidl_client *client, const struct tdc_name *pattern, uint32_t kinds,
		   struct tidl_watch **ret_watch, struct tdp_fault *fault)
{
	struct tdp_message request = {
		.kind = TDP_MESSAGE_WATCH,
		.watch = {.pattern = pattern->path,
			  .any_owner = pattern->any_owner,
			  .has_owner = pattern->has_owner,
			  .owner_uid = pattern->owner_uid,
			  .kinds = kinds ? kinds : TDP_EVENT_KINDS_ALL},
	};
	struct tidl_watch *watch;
	int r = watch_new(client, &watch, fault);

	if (r < 0)
		return r;
	r = tdc_call_watch(client, &request, watch, fault);
	if (r < 0)
		tidl_unwatch(watch);
	else
		*ret_watch = watch;
	return r;
}

void tdc_watch_opened(struct tidl_client *client, struct tidl_watch *watch, uint64_t id)
{
	watch->id = id;
	watch->era = client->era;
	watch->lease->id = id;
	watch->lease->era = client->era;
	DL_APPEND(client->watches, watch);
}

bool tdc_watch_is_ready(const struct tidl_watch *watch)
{
	return !tdc_event_queue_is_empty(&watch->queue) || watch->is_stopped ||
	       watch->era != watch->client->era;
}

/* One reader for one event. */
static void watch_wake(struct tidl_client *client, struct tidl_watch *watch)
{
	struct tdc_call *call;

	tdc_attention_tell(client, &watch->ready);
	DL_FOREACH (client->calls, call) {
		if (call->watch == watch && !call->is_done) {
			tdc_waiters_end(client, call, 0);
			return;
		}
	}
}

void tdc_watches_deliver(struct tidl_client *client, const struct tdp_event *event)
{
	struct tidl_watch *watch;

	DL_FOREACH (client->watches, watch) {
		if (watch->id != event->watch_id)
			continue;
		tdc_event_queue_push(&watch->queue, event);
		watch_wake(client, watch);
		return;
	}
}

void tdc_watches_end_all(struct tidl_client *client)
{
	struct tidl_watch *watch;

	DL_FOREACH (client->watches, watch)
		tdc_attention_tell(client, &watch->ready);
}

void tdc_watches_forget_all(struct tidl_client *client)
{
	struct tidl_watch *watch;
	struct tidl_watch *following;

	DL_FOREACH_SAFE (client->watches, watch, following) {
		DL_DELETE(client->watches, watch);
		watch->id = 0;
	}
}

/* Why the empty watch has nothing more to wait for; 0: it has. Client locked. */
static int watch_refuse(const struct tidl_watch *watch, struct tdp_fault *fault)
{
	if (watch->is_stopped)
		return tdp_fault_set(fault, TIDL_ERR_CANCELLED,
				     "the watch was stopped: open another one");
	if (watch->era != watch->client->era)
		return tdp_fault_set(fault, TIDL_ERR_BROKER_GONE,
				     "the watch belongs to the process that this one was forked "
				     "from: open another one here");
	if (watch->client->state != TDC_CLIENT_STATE_OPEN)
		return tdc_client_refuse(watch->client, fault);
	return 0;
}

/* TDC_CALL_EXPIRED: nothing there, but there may be. */
static int watch_look(struct tidl_watch *watch, struct tidl_event *ret_event,
		      struct tdp_fault *fault)
{
	int r = 0;

	tdc_client_lock(watch->client);
	if (!tdc_event_queue_pop(&watch->queue, ret_event)) {
		r = watch_refuse(watch, fault);
		if (r == 0)
			r = TDC_CALL_EXPIRED;
	}
	tdc_client_unlock(watch->client);
	return r;
}

int tdc_watch_next(struct tidl_watch *watch, int64_t timeout_ms, struct tidl_event *ret_event,
		   struct tdp_fault *fault)
{
	int64_t deadline = tdc_deadline_after(timeout_ms);
	int r = watch_look(watch, ret_event, fault);

	if (r == TDC_CALL_EXPIRED && timeout_ms == 0) {
		/* What it finds wrong the second look finds, too. */
		if (tdc_pending_dispatch(watch->client, fault) < 0)
			fault->code = 0;
		return watch_look(watch, ret_event, fault);
	}
	while (r == TDC_CALL_EXPIRED) {
		r = tdc_call_await_event(watch->client, watch, deadline, fault);
		if (r != 0)
			return r;
		/* Another reader may have been faster. */
		r = watch_look(watch, ret_event, fault);
	}
	return r;
}

void tidl_watch_set_key(struct tidl_watch *watch, uint64_t key)
{
	tdc_client_lock(watch->client);
	watch->ready.key = key;
	if (tdc_watch_is_ready(watch) || watch->client->state != TDC_CLIENT_STATE_OPEN)
		tdc_attention_tell(watch->client, &watch->ready);
	tdc_client_unlock(watch->client);
}

void tidl_watch_stop(struct tidl_watch *watch)
{
	struct tidl_client *client = watch->client;
	struct tdc_call *call;

	tdc_client_lock(client);
	watch->is_stopped = true;
	if (watch->id != 0) {
		DL_DELETE(client->watches, watch);
		watch->id = 0;
		tdc_outbound_push(client, watch->lease);
		watch->lease = NULL;
		tdc_outbound_flush(client);
	}
	tdc_attention_tell(client, &watch->ready);
	DL_FOREACH (client->calls, call) {
		if (call->watch == watch && !call->is_done)
			tdc_waiters_end(client, call, 0);
	}
	tdc_client_unlock(client);
}

void tidl_unwatch(struct tidl_watch *watch)
{
	if (watch == NULL)
		return;
	tidl_watch_stop(watch);
	tdc_client_lock(watch->client);
	tdc_attention_forget(watch->client, &watch->ready);
	tdc_client_unlock(watch->client);
	(void)watch_free(watch);
}
