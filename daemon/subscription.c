/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Subscriptions and what they are to hear. All notices of one holder are one queue, in the order of
 * what happened; their number is bounded by subscription, by session and by uid, and where there
 * was no room stands a mark instead. Whom an event concerns is found out by events.c.
 */
#include "daemon/subscription.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/limits.h"
#include "daemon/registry.h"

/* To one name of one owner, so that only what happens to that name costs anything. */
static bool watch_is_exact(const struct tdp_watch *watch)
{
	return !watch->any_owner && !strchr(watch->pattern, '*');
}

static int subscription_link(struct tdd_subscription *subscription, const struct tdp_watch *watch,
			     struct tdp_fault *fault)
{
	struct tdd_registry *registry = subscription->registry;
	int r;

	if (watch_is_exact(watch)) {
		r = tdd_registry_claim(registry, subscription->owner_uid, watch->pattern,
				       &subscription->entry, fault);
		if (r < 0)
			return r;
		DL_APPEND(subscription->entry->subscriptions, subscription);
		return 0;
	}
	subscription->audience =
		tdd_audience_claim(&registry->events, subscription->holder->subject.uid);
	if (!subscription->audience)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	DL_APPEND(subscription->audience->subscriptions, subscription);
	return 0;
}

int tdd_subscription_new(struct tdd_registry *registry, struct tdd_holder *holder,
			 const struct tdp_watch *watch, uint32_t owner_uid,
			 struct tdd_subscription **ret_subscription, struct tdp_fault *fault)
{
	size_t pattern_bytes = strlen(watch->pattern) + 1;
	struct tdd_subscription *subscription = calloc(1, sizeof(*subscription) + pattern_bytes);
	int r;

	if (!subscription)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	memcpy(subscription->pattern, watch->pattern, pattern_bytes);
	subscription->holder = holder;
	subscription->registry = registry;
	subscription->any_owner = watch->any_owner;
	subscription->owner_uid = owner_uid;
	subscription->kinds = watch->kinds;
	subscription->lost.subscription = subscription;
	r = tdd_charge_init(&subscription->charge, &holder->account, TDD_QUOTA_WATCHES, 1, fault);
	if (r == 0)
		r = subscription_link(subscription, watch, fault);
	if (r < 0) {
		tdd_charge_deinit(&subscription->charge);
		free(subscription);
		return r;
	}
	subscription->id = ++registry->events.last_subscription_id;
	registry->events.subscription_count++;
	DL_APPEND2(holder->subscriptions, subscription, sibling_prev, sibling_next);
	*ret_subscription = subscription;
	return 0;
}

static void subscription_unlink(struct tdd_subscription *subscription)
{
	struct tdd_registry *registry = subscription->registry;

	DL_DELETE2(subscription->holder->subscriptions, subscription, sibling_prev, sibling_next);
	if (subscription->entry) {
		DL_DELETE(subscription->entry->subscriptions, subscription);
		tdd_registry_unclaim(registry, subscription->entry);
	} else {
		DL_DELETE(subscription->audience->subscriptions, subscription);
		tdd_audience_unclaim(&registry->events, subscription->audience);
	}
	registry->events.subscription_count--;
}

static void notice_free(struct tdd_notice *notice)
{
	struct tdd_subscription *subscription = notice->subscription;

	DL_DELETE(subscription->holder->notices, notice);
	if (notice == &subscription->lost) {
		subscription->has_lost = false;
		return;
	}
	subscription->notice_count--;
	tdd_charge_deinit(&notice->charge);
	tdd_event_unref(notice->event);
	free(notice);
}

struct tdd_subscription *tdd_subscription_free(struct tdd_subscription *subscription)
{
	struct tdd_notice *notice, *next;

	if (!subscription)
		return NULL;
	DL_FOREACH_SAFE (subscription->holder->notices, notice, next) {
		if (notice->subscription == subscription)
			notice_free(notice);
	}
	if (!subscription->holder->notices)
		tdd_holder_take_off_news(subscription->holder);
	subscription_unlink(subscription);
	tdd_charge_deinit(&subscription->charge);
	free(subscription);
	return NULL;
}

struct tdd_subscription *tdd_subscription_find(const struct tdd_holder *holder, uint64_t id)
{
	struct tdd_subscription *subscription;

	DL_FOREACH2(holder->subscriptions, subscription, sibling_next)
	{
		if (subscription->id == id)
			return subscription;
	}
	return NULL;
}

bool tdd_subscription_wants(const struct tdd_subscription *subscription, enum tdp_event_kind kind)
{
	return subscription->kinds & 1u << kind;
}

/* NULL: beyond a limit, or no memory. */
static struct tdd_notice *notice_new(struct tdd_subscription *subscription, struct tdd_event *event)
{
	struct tdd_notice *notice;
	struct tdp_fault fault;

	if (!event || subscription->notice_count >= TDD_EVENTS_PER_WATCH)
		return NULL;
	notice = calloc(1, sizeof(*notice));
	if (!notice)
		return NULL;
	if (tdd_charge_init(&notice->charge, &subscription->holder->account, TDD_QUOTA_EVENTS, 1,
			    &fault) < 0) {
		free(notice);
		return NULL;
	}
	notice->subscription = subscription;
	notice->event = tdd_event_ref(event);
	subscription->notice_count++;
	return notice;
}

static void subscription_put(struct tdd_subscription *subscription, struct tdd_notice *notice)
{
	DL_APPEND(subscription->holder->notices, notice);
	tdd_holder_put_on_news(subscription->holder, &subscription->registry->events);
}

void tdd_subscription_offer(struct tdd_subscription *subscription, struct tdd_event *event)
{
	struct tdd_notice *notice;

	if (subscription->has_lost)
		return;
	notice = notice_new(subscription, event);
	if (notice)
		subscription_put(subscription, notice);
	else
		tdd_subscription_lose(subscription);
}

void tdd_subscription_lose(struct tdd_subscription *subscription)
{
	if (subscription->has_lost)
		return;
	subscription->has_lost = true;
	subscription_put(subscription, &subscription->lost);
}

bool tdd_notice_view(const struct tdd_holder *holder, struct tdp_event *ret_event)
{
	const struct tdd_notice *notice = holder->notices;
	const struct tdd_event *event = notice ? notice->event : NULL;

	if (!notice)
		return false;
	*ret_event =
		(struct tdp_event){.watch_id = notice->subscription->id, .kind = TDP_EVENT_LOST};
	if (!event)
		return true;
	ret_event->kind = event->kind;
	ret_event->owner_uid = event->owner_uid;
	ret_event->name = event->name;
	ret_event->generation = event->generation;
	ret_event->has_holder = event->has_holder;
	ret_event->holder_uid = event->holder_uid;
	ret_event->holder_pid = event->holder_pid;
	ret_event->attach = event->attach;
	return true;
}

void tdd_notice_drop(struct tdd_holder *holder)
{
	notice_free(holder->notices);
}
