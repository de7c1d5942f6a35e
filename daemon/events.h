/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_EVENTS_H
#define TDD_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/map.h"
#include "include/tidl/tensor.h"
#include "proto/base/attr.h"
#include "proto/wire/message.h"

struct tdd_account;
struct tdd_hold;
struct tdd_holder;
struct tdd_publication;
struct tdd_subscription;

/* Something that happened to a name, as all who hear of it share it; reference counted. */
struct tdd_event {
	uint32_t ref_count;
	enum tdp_event_kind kind;
	uint32_t owner_uid;
	uint64_t generation;
	bool has_holder; /* LEASED and RELEASED */
	uint32_t holder_uid;
	int64_t holder_pid;
	enum tidl_attach attach;
	char name[];
};

/*
 * All subscriptions of one uid with patterns, and what it may spend on them in this turn of the
 * loop: finding out whom an event concerns costs everybody's time, so that a uid with many or
 * costly patterns loses events of its own rather than delay others.
 */
struct tdd_audience {
	uint32_t uid;
	uint64_t turn;
	uint64_t steps; /* spent in that turn */
	bool is_over;	/* and lost what else there was in it */
	struct tdd_subscription *subscriptions;
	UT_hash_handle hh; /* events::audiences */
};

/* Who hears what. Part of the registry. */
struct tdd_events {
	struct tdd_audience *audiences; /* map by uid */
	uint32_t subscription_count;
	uint64_t last_subscription_id;
	uint64_t turn;
	struct tdd_holder *news; /* list: holders that have notices to be sent */
};

/* Every subscription must be gone. */
void tdd_events_deinit(struct tdd_events *events);

/* A new turn of the loop: everybody may spend again. */
void tdd_events_turn(struct tdd_events *events);

/* Somebody who has notices, taken off the list; NULL: nobody. */
struct tdd_holder *tdd_events_take_news(struct tdd_events *events);

/* The audience of a uid; made when it does not exist. NULL without memory. */
struct tdd_audience *tdd_audience_claim(struct tdd_events *events, uint32_t uid) TDP_MUST_CHECK;
/* It ends with its last subscription. */
void tdd_audience_unclaim(struct tdd_events *events, struct tdd_audience *audience);

struct tdd_event *tdd_event_ref(struct tdd_event *event);
/* Returns NULL. */
struct tdd_event *tdd_event_unref(struct tdd_event *event);

/* It has its name now; @previous (NULL: none) had it. */
void tdd_events_report_listed(struct tdd_events *events, const struct tdd_publication *publication,
			      const struct tdd_publication *previous);
/* It is about to lose its name. */
void tdd_events_report_unlisted(struct tdd_events *events,
				const struct tdd_publication *publication);
void tdd_events_report_orphaned(struct tdd_events *events,
				const struct tdd_publication *publication);
/* LEASED or RELEASED. */
void tdd_events_report_lease(struct tdd_events *events, enum tdp_event_kind kind,
			     const struct tdd_hold *lease);

#endif
