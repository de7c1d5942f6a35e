/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bounded queue of one watch. Owned by the watch. Whoever receives fills it, so it can refuse
 * nothing: events that there is no room or no memory for are lost, and say so.
 */
#include "client/lib/event_queue.h"

#include <stdlib.h>
#include <string.h>

#include <utlist.h>

struct tdc_queued_event {
	struct tdc_queued_event *prev, *next;
	enum tidl_event_kind kind;
	enum tidl_attach attach;
	uint32_t owner_uid;
	uint32_t holder_uid;
	int64_t holder_pid;
	uint64_t generation;
	char name[];
};

_Static_assert((int)TIDL_EVENT_PUBLISHED == (int)TDP_EVENT_PUBLISHED &&
		       (int)TIDL_EVENT_LOST == (int)TDP_EVENT_LOST &&
		       (int)TIDL_EVENT_RECALLED == (int)TDP_EVENT_RECALLED,
	       "the API's kinds are the wire's");

/* Longer names are refused by the codec. */
_Static_assert(TIDL_NAME_MAX_BYTES == TDP_NAME_MAX_BYTES, "every name fits into an event");

static bool queue_append(struct tdc_event_queue *queue, const struct tdp_event *event)
{
	const char *name = event->name ? event->name : "";
	size_t length = strnlen(name, TIDL_NAME_MAX_BYTES);
	struct tdc_queued_event *queued = malloc(sizeof(*queued) + length + 1);

	if (queued == NULL)
		return false;
	*queued = (struct tdc_queued_event){
		.kind = (enum tidl_event_kind)event->kind,
		.attach = event->has_holder ? event->attach : 0,
		.owner_uid = event->owner_uid,
		.holder_uid = event->has_holder ? event->holder_uid : 0,
		.holder_pid = event->has_holder ? event->holder_pid : 0,
		.generation = event->generation,
	};
	memcpy(queued->name, name, length);
	queued->name[length] = '\0';
	DL_APPEND(queue->head, queued);
	queue->count++;
	return true;
}

void tdc_event_queue_push(struct tdc_event_queue *queue, const struct tdp_event *event)
{
	const struct tdp_event lost = {.kind = TDP_EVENT_LOST};

	if (event->kind == TDP_EVENT_LOST || queue->count >= TDC_EVENT_QUEUE_MAX) {
		queue->is_lossy = true;
		return;
	}
	if (queue->is_lossy)
		queue->is_lossy = !queue_append(queue, &lost);
	if (queue->is_lossy || !queue_append(queue, event))
		queue->is_lossy = true;
}

bool tdc_event_queue_is_empty(const struct tdc_event_queue *queue)
{
	return queue->head == NULL && !queue->is_lossy;
}

bool tdc_event_queue_pop(struct tdc_event_queue *queue, struct tidl_event *ret_event)
{
	struct tdc_queued_event *queued = queue->head;

	if (queued == NULL && !queue->is_lossy)
		return false;
	*ret_event = (struct tidl_event){.kind = TIDL_EVENT_LOST};
	if (queued == NULL) {
		queue->is_lossy = false;
		return true;
	}
	ret_event->kind = queued->kind;
	ret_event->attach = queued->attach;
	ret_event->owner_uid = queued->owner_uid;
	ret_event->holder_uid = queued->holder_uid;
	ret_event->holder_pid = queued->holder_pid;
	ret_event->generation = queued->generation;
	memcpy(ret_event->name, queued->name, strlen(queued->name) + 1);
	DL_DELETE(queue->head, queued);
	queue->count--;
	free(queued);
	return true;
}

void tdc_event_queue_deinit(struct tdc_event_queue *queue)
{
	struct tdc_queued_event *queued;
	struct tdc_queued_event *following;

	DL_FOREACH_SAFE (queue->head, queued, following) {
		DL_DELETE(queue->head, queued);
		free(queued);
	}
	*queue = (struct tdc_event_queue){.head = NULL};
}
