/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_EVENT_QUEUE_H
#define TDC_EVENT_QUEUE_H

#include <stdbool.h>
#include <stddef.h>

#include "include/tidl/watch.h"
#include "proto/wire/message.h"

/* Events for a reader that is slower than they come: beyond these they are dropped. At most some
 * 300 bytes each. */
enum { TDC_EVENT_QUEUE_MAX = 4096 };

struct tdc_queued_event;

/* What a watch has been told and its reader has not taken. All zero is empty. */
struct tdc_event_queue {
	struct tdc_queued_event *head;
	size_t count;
	bool is_lossy; /* something was dropped, and no LOST says so yet */
};

/* In order; what there is no room for becomes one LOST in its place. */
void tdc_event_queue_push(struct tdc_event_queue *queue, const struct tdp_event *event);

bool tdc_event_queue_is_empty(const struct tdc_event_queue *queue);

/* Take the oldest. False: there is none. Fills in all but `size`. */
bool tdc_event_queue_pop(struct tdc_event_queue *queue, struct tidl_event *ret_event);

/* Forget all. */
void tdc_event_queue_deinit(struct tdc_event_queue *queue);

#endif
