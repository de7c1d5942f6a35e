/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events: whom does it concern that a name was published, removed, attached? Subscriptions to one
 * name hang on that name; those with patterns are tried one after the other, at the cost of their
 * uid. Part of the registry; sends nothing: what a subscriber is to hear waits with its holder.
 */
#include "daemon/events.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/lease.h"
#include "daemon/limits.h"
#include "daemon/publication.h"
#include "daemon/registry.h"
#include "daemon/subscription.h"
#include "daemon/work.h"
#include "proto/names.h"

/* Something that happened, before anybody has heard of it. */
struct occurrence {
	enum tdp_event_kind kind;
	const struct tdd_publication *publication;
	const struct tdd_publication *previous; /* REPLACED */
	const struct tdd_hold *lease;		/* LEASED and RELEASED */
	struct tdd_event *event;		/* made for the first who hears */
};

void tdd_events_deinit(struct tdd_events *events)
{
	assert(!events->audiences && events->subscription_count == 0 && !events->news);
	(void)events;
}

void tdd_events_turn(struct tdd_events *events)
{
	events->turn++;
}

struct tdd_holder *tdd_events_take_news(struct tdd_events *events)
{
	struct tdd_holder *holder = events->news;

	if (holder)
		tdd_holder_take_off_news(holder);
	return holder;
}

struct tdd_audience *tdd_audience_claim(struct tdd_events *events, uint32_t uid)
{
	struct tdd_audience *audience = NULL;

	HASH_FIND(hh, events->audiences, &uid, sizeof(uid), audience);
	if (audience)
		return audience;
	audience = calloc(1, sizeof(*audience));
	if (!audience)
		return NULL;
	audience->uid = uid;
	HASH_ADD(hh, events->audiences, uid, sizeof(audience->uid), audience);
	if (!audience->hh.tbl) {
		free(audience);
		return NULL;
	}
	return audience;
}

void tdd_audience_unclaim(struct tdd_events *events, struct tdd_audience *audience)
{
	if (audience->subscriptions)
		return;
	HASH_DELETE(hh, events->audiences, audience);
	free(audience);
}

struct tdd_event *tdd_event_ref(struct tdd_event *event)
{
	event->ref_count++;
	return event;
}

struct tdd_event *tdd_event_unref(struct tdd_event *event)
{
	if (event && --event->ref_count == 0)
		free(event);
	return NULL;
}

/* One reference; NULL without memory. */
static struct tdd_event *event_new(enum tdp_event_kind kind,
				   const struct tdd_publication *publication,
				   const struct tdd_hold *lease)
{
	size_t name_bytes = strlen(publication->name) + 1;
	struct tdd_event *event = calloc(1, sizeof(*event) + name_bytes);

	if (!event)
		return NULL;
	event->ref_count = 1;
	event->kind = kind;
	event->owner_uid = publication->rights.owner_uid;
	event->generation = publication->generation;
	memcpy(event->name, publication->name, name_bytes);
	if (lease) {
		event->has_holder = true;
		event->holder_uid = lease->holder->subject.uid;
		event->holder_pid = lease->holder->process->pid;
		event->attach = lease->attach;
	}
	return event;
}

/* Who attaches what is the business of those alone who may administrate it. */
static bool occurrence_may_be_seen(const struct occurrence *occurrence,
				   const struct tdd_subject *subject)
{
	const struct tdd_rights *rights = &occurrence->publication->rights;

	if (occurrence->lease)
		return tdd_policy_may_remove(subject, rights);
	return tdd_policy_may_see(subject, rights);
}

/* Who may see only one of the two sides of a replacement sees something come or go. Such are few,
 * and get an event of their own. */
static void tell_one_side(const struct occurrence *occurrence,
			  struct tdd_subscription *subscription, bool sees_new)
{
	enum tdp_event_kind kind = sees_new ? TDP_EVENT_PUBLISHED : TDP_EVENT_REMOVED;
	struct tdd_event *event;

	if (!tdd_subscription_wants(subscription, kind))
		return;
	event = event_new(kind, sees_new ? occurrence->publication : occurrence->previous, NULL);
	tdd_subscription_offer(subscription, event);
	tdd_event_unref(event);
}

/* The subscription's name or pattern fits. */
static void tell(struct occurrence *occurrence, struct tdd_subscription *subscription)
{
	const struct tdd_subject *subject = &subscription->holder->subject;
	bool sees_it = occurrence_may_be_seen(occurrence, subject);

	if (occurrence->previous) {
		bool saw_previous = tdd_policy_may_see(subject, &occurrence->previous->rights);

		if (sees_it != saw_previous) {
			tell_one_side(occurrence, subscription, sees_it);
			return;
		}
	}
	if (!sees_it || !tdd_subscription_wants(subscription, occurrence->kind))
		return;
	tdd_work_count(TDD_WATCH_EVENT_STEPS);
	if (!occurrence->event)
		occurrence->event =
			event_new(occurrence->kind, occurrence->publication, occurrence->lease);
	tdd_subscription_offer(subscription, occurrence->event);
	if (subscription->audience)
		subscription->audience->steps += TDD_WATCH_EVENT_STEPS;
}

/* The turn's share of this uid is spent: whatever else happens in it is lost to it. */
static void audience_lose(struct tdd_audience *audience)
{
	struct tdd_subscription *subscription;

	if (audience->is_over)
		return;
	audience->is_over = true;
	DL_FOREACH (audience->subscriptions, subscription)
		tdd_subscription_lose(subscription);
}

static void audience_hear(struct tdd_audience *audience, uint64_t turn,
			  struct occurrence *occurrence)
{
	uint32_t owner_uid = occurrence->publication->rights.owner_uid;
	struct tdd_subscription *subscription;

	if (audience->turn != turn) {
		audience->turn = turn;
		audience->steps = 0;
		audience->is_over = false;
	}
	DL_FOREACH (audience->subscriptions, subscription) {
		if (audience->steps >= TDD_WATCH_STEPS) {
			audience_lose(audience);
			return;
		}
		audience->steps += TDD_WATCH_VISIT_STEPS;
		if (!subscription->any_owner && subscription->owner_uid != owner_uid)
			continue;
		if (tdp_pattern_match_counted(subscription->pattern, occurrence->publication->name,
					      &audience->steps))
			tell(occurrence, subscription);
	}
}

static void events_report(struct tdd_events *events, struct occurrence *occurrence)
{
	const struct tdd_publication *publication = occurrence->publication;
	struct tdd_audience *audience, *next_audience;
	struct tdd_subscription *subscription;
	struct tdd_name *entry;

	if (events->subscription_count == 0)
		return;
	/* What is not listed any more does not know its name's entry. */
	entry = publication->entry
			? publication->entry
			: tdd_registry_find_name(publication->registry,
						 publication->rights.owner_uid, publication->name);
	if (entry) {
		DL_FOREACH (entry->subscriptions, subscription) {
			tdd_work_count(TDD_WATCH_VISIT_STEPS);
			tell(occurrence, subscription);
		}
	}
	HASH_ITER (hh, events->audiences, audience, next_audience) {
		uint64_t steps = audience->turn == events->turn ? audience->steps : 0;

		audience_hear(audience, events->turn, occurrence);
		tdd_work_count(audience->steps - steps);
	}
	tdd_event_unref(occurrence->event);
}

void tdd_events_report_listed(struct tdd_events *events, const struct tdd_publication *publication,
			      const struct tdd_publication *previous)
{
	struct occurrence occurrence = {
		.kind = previous ? TDP_EVENT_REPLACED : TDP_EVENT_PUBLISHED,
		.publication = publication,
		.previous = previous,
	};

	events_report(events, &occurrence);
}

void tdd_events_report_unlisted(struct tdd_events *events,
				const struct tdd_publication *publication)
{
	struct occurrence occurrence = {.kind = TDP_EVENT_REMOVED, .publication = publication};

	events_report(events, &occurrence);
}

void tdd_events_report_orphaned(struct tdd_events *events,
				const struct tdd_publication *publication)
{
	struct occurrence occurrence = {.kind = TDP_EVENT_OWNER_DIED, .publication = publication};

	events_report(events, &occurrence);
}

void tdd_events_report_lease(struct tdd_events *events, enum tdp_event_kind kind,
			     const struct tdd_hold *lease)
{
	struct occurrence occurrence = {
		.kind = kind, .publication = lease->publication, .lease = lease};

	events_report(events, &occurrence);
}
