/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_SUBSCRIPTION_H
#define TDD_SUBSCRIPTION_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/events.h"
#include "daemon/holder.h"
#include "daemon/map.h"
#include "daemon/quota.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"
#include "proto/wire/message.h"

struct tdd_name;
struct tdd_registry;
struct tdd_subscription;

/* That a subscriber is to hear of an event: waits with the holder until its client can take it. */
struct tdd_notice {
	struct tdd_subscription *subscription;
	struct tdd_event *event; /* NULL: some were lost here */
	struct tdd_charge charge;
	struct tdd_notice *prev, *next; /* holder::notices */
};

/*
 * A watch of a client: which names, which kinds of events. Owned by its holder. What it is to hear
 * is bounded: beyond that it hears once that something was lost, where it was.
 */
struct tdd_subscription {
	uint64_t id;
	struct tdd_holder *holder;
	struct tdd_registry *registry;
	bool any_owner;
	uint32_t owner_uid;
	uint32_t kinds;
	struct tdd_name *entry;	       /* of the one name, or */
	struct tdd_audience *audience; /* of its uid, with a pattern */
	uint32_t notice_count;
	bool has_lost;		/* `lost` waits with the others */
	struct tdd_notice lost; /* needs no memory when there is none */
	struct tdd_charge charge;
	struct tdd_subscription *prev, *next; /* name::subscriptions, audience::subscriptions */
	struct tdd_subscription *sibling_prev, *sibling_next; /* holder::subscriptions */
	char pattern[];
};

/* Of a checked WATCH; @owner_uid is the owner that it means. */
int tdd_subscription_new(struct tdd_registry *registry, struct tdd_holder *holder,
			 const struct tdp_watch *watch, uint32_t owner_uid,
			 struct tdd_subscription **ret_subscription,
			 struct tdp_fault *fault) TDP_MUST_CHECK;

/* With what it has not heard yet. Returns NULL. */
struct tdd_subscription *tdd_subscription_free(struct tdd_subscription *subscription);

/* NULL: the holder has no such subscription. */
struct tdd_subscription *tdd_subscription_find(const struct tdd_holder *holder, uint64_t id);

bool tdd_subscription_wants(const struct tdd_subscription *subscription, enum tdp_event_kind kind);

/* Let it hear of the event; NULL: there was no memory for it. Too much is lost. */
void tdd_subscription_offer(struct tdd_subscription *subscription, struct tdd_event *event);
void tdd_subscription_lose(struct tdd_subscription *subscription);

/* The oldest notice, for the wire: valid until it is dropped. False: there is none. */
bool tdd_notice_view(const struct tdd_holder *holder, struct tdp_event *ret_event);
void tdd_notice_drop(struct tdd_holder *holder);

#endif
