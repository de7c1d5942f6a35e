/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_WATCH_H
#define TDC_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "client/lib/attention.h"
#include "client/lib/event_queue.h"
#include "client/lib/lease.h"
#include "client/lib/owner.h"
#include "include/tidl/watch.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"
#include "proto/wire/message.h"

struct tidl_client;

/* A watch. Owned by the user; holds the client. All but `client` is guarded by the client's lock.
 */
struct tidl_watch {
	struct tidl_client *client;
	struct tdc_lease *lease; /* tells the broker of the end; NULL once it was told */
	uint64_t id;		 /* the broker's; 0: not in the client's list */
	uint64_t era;
	bool is_stopped;
	struct tdc_event_queue queue;
	struct tdc_ready ready;
	struct tidl_watch *prev, *next;
};

/* Open one; one round trip. @kinds: 0 for all. */
int tdc_watch_open(struct tidl_client *client, const struct tdc_name *pattern, uint32_t kinds,
		   struct tidl_watch **ret_watch, struct tdp_fault *fault) TDP_MUST_CHECK;

/* The next event, or why there is none. Fills in all but `size`. */
int tdc_watch_next(struct tidl_watch *watch, int64_t timeout_ms, struct tidl_event *ret_event,
		   struct tdp_fault *fault) TDP_MUST_CHECK;

/* All of these: client locked. */

/* The broker opened it: events may be right behind the answer. */
void tdc_watch_opened(struct tidl_client *client, struct tidl_watch *watch, uint64_t id);

/* Is there something to take, or a reason not to wait? */
bool tdc_watch_is_ready(const struct tidl_watch *watch);

/* An event goes to its watch; one of none, which was just ended, goes nowhere. */
void tdc_watches_deliver(struct tidl_client *client, const struct tdp_event *event);

/* The connection is over: tell the loops. */
void tdc_watches_end_all(struct tidl_client *client);

/* In a forked child: they are the parent's. */
void tdc_watches_forget_all(struct tidl_client *client);

#endif
