/* SPDX-License-Identifier: Apache-2.0 */
/* Who hears of what, in which order, and what is lost. */
#include <stdio.h>
#include <string.h>

#include "daemon/limits.h"
#include "daemon/subscription.h"
#include "tests/support/leak.h"
#include "tests/unit/daemon/domain.h"

enum { OWNER = 1, OTHER = 2, ADMIN = 3 };

static struct tdd_subscription *watch_owner(struct tt_domain *domain, struct tdd_holder *holder,
					    uint32_t owner_uid, const char *pattern, uint32_t kinds)
{
	struct tdp_watch watch = {.pattern = pattern, .kinds = kinds};
	struct tdd_subscription *subscription;
	struct tdp_fault fault;

	cr_assert_eq(tdd_subscription_new(&domain->registry, holder, &watch, owner_uid,
					  &subscription, &fault),
		     0, "%s", fault.text);
	return subscription;
}

static struct tdd_subscription *watch_any(struct tt_domain *domain, struct tdd_holder *holder,
					  const char *pattern)
{
	struct tdp_watch watch = {
		.pattern = pattern, .any_owner = true, .kinds = TDP_EVENT_KINDS_ALL};
	struct tdd_subscription *subscription;
	struct tdp_fault fault;

	cr_assert_eq(
		tdd_subscription_new(&domain->registry, holder, &watch, 0, &subscription, &fault),
		0, "%s", fault.text);
	return subscription;
}

static struct tdd_subscription *watch(struct tt_domain *domain, struct tdd_holder *holder,
				      const char *pattern)
{
	return watch_owner(domain, holder, OWNER, pattern, TDP_EVENT_KINDS_ALL);
}

/* The next thing that the holder is to hear. */
static void expect(struct tdd_holder *holder, const struct tdd_subscription *subscription,
		   enum tdp_event_kind kind, const char *name, uint64_t generation)
{
	struct tdp_event event;

	cr_assert(tdd_notice_view(holder, &event), "nothing came");
	cr_expect_eq(event.watch_id, subscription->id);
	cr_expect_eq(event.kind, kind, "%d instead of %d", event.kind, kind);
	if (name) {
		cr_expect_str_eq(event.name, name);
		cr_expect_eq(event.owner_uid, OWNER);
		cr_expect_eq(event.generation, generation);
	}
	tdd_notice_drop(holder);
}

static void expect_nothing(struct tdd_holder *holder)
{
	struct tdp_event event;

	cr_expect_not(tdd_notice_view(holder, &event), "event of kind %d", event.kind);
}

static void make_admin(struct tdd_holder *holder)
{
	holder->subject.is_admin = true;
}

TT_TEST(events, a_name_from_its_beginning_to_its_end)
{
	struct tt_domain domain;
	struct tdd_holder owner, reader;
	struct tdd_subscription *exact, *pattern;
	struct tdd_hold *lease;

	tt_domain_init(&domain);
	tt_holder_init(&domain, &owner, OWNER);
	tt_holder_init(&domain, &reader, OWNER);
	exact = watch(&domain, &owner, "a/x");
	pattern = watch(&domain, &owner, "a/*");
	cr_assert(exact->entry && !exact->audience);
	cr_assert(pattern->audience && !pattern->entry);
	tt_publish(&domain, &owner, "a/x", NULL);
	tt_publish(&domain, &owner, "b/x", NULL);
	lease = tt_lease(&domain, &reader, tt_publish(&domain, &owner, "a/x", NULL),
			 TIDL_ATTACH_READ);
	tdd_registry_unlist(&domain.registry, tdd_registry_find(&domain.registry, OWNER, "a/x"));
	tdd_hold_free(lease); /* of what is not listed any more */
	expect(&owner, exact, TDP_EVENT_PUBLISHED, "a/x", 1);
	expect(&owner, pattern, TDP_EVENT_PUBLISHED, "a/x", 1);
	expect(&owner, exact, TDP_EVENT_REPLACED, "a/x", 3);
	expect(&owner, pattern, TDP_EVENT_REPLACED, "a/x", 3);
	expect(&owner, exact, TDP_EVENT_LEASED, "a/x", 3);
	expect(&owner, pattern, TDP_EVENT_LEASED, "a/x", 3);
	expect(&owner, exact, TDP_EVENT_REMOVED, "a/x", 3);
	expect(&owner, pattern, TDP_EVENT_REMOVED, "a/x", 3);
	expect(&owner, exact, TDP_EVENT_RELEASED, "a/x", 3);
	expect(&owner, pattern, TDP_EVENT_RELEASED, "a/x", 3);
	expect_nothing(&owner);
	cr_expect_eq(tt_used(&domain, OWNER, TDD_QUOTA_EVENTS), 0);
	tt_holder_end(&domain, &reader);
	tt_holder_end(&domain, &owner);
	cr_expect_not(domain.registry.events.audiences);
	tt_domain_deinit(&domain);
}

TT_TEST(events, who_holds_is_the_business_of_those_who_administrate)
{
	struct tt_domain domain;
	struct tdd_holder owner, other, admin;
	struct tdd_subscription *ours, *theirs;
	struct tdd_publication *publication;
	struct tdp_event event;

	tt_domain_init(&domain);
	tt_holder_init(&domain, &owner, OWNER);
	tt_holder_init(&domain, &other, OTHER);
	tt_holder_init(&domain, &admin, ADMIN);
	make_admin(&admin);
	ours = watch_any(&domain, &admin, "**");
	theirs = watch_any(&domain, &other, "**");
	publication = tt_publish(&domain, &owner, "x", NULL);
	expect_nothing(&other);
	expect(&admin, ours, TDP_EVENT_PUBLISHED, "x", 1);
	publication->rights.mode = 0604;
	tt_lease(&domain, &other, publication, TIDL_ATTACH_WRITE);
	expect_nothing(&other);
	cr_assert(tdd_notice_view(&admin, &event));
	cr_expect_eq(event.kind, TDP_EVENT_LEASED);
	cr_expect(event.has_holder);
	cr_expect_eq(event.holder_uid, OTHER);
	cr_expect_eq(event.holder_pid, 1);
	cr_expect_eq(event.attach, TIDL_ATTACH_WRITE);
	tdd_notice_drop(&admin);
	tdd_registry_unlist(&domain.registry, publication);
	expect(&other, theirs, TDP_EVENT_REMOVED, "x", 1);
	expect(&admin, ours, TDP_EVENT_REMOVED, "x", 1);
	tt_holder_end(&domain, &other);
	expect(&admin, ours, TDP_EVENT_RELEASED, "x", 1);
	tt_holder_end(&domain, &admin);
	tt_holder_end(&domain, &owner);
	tt_domain_deinit(&domain);
}

static void publish_with_mode(struct tt_domain *domain, struct tdd_holder *holder, uint32_t mode)
{
	tt_publish_as(
		domain, holder,
		(struct tt_publication){
			.name = "x", .retention = TIDL_RETENTION_PERSIST, .keep = 1, .mode = mode});
}

/* What one may not see does not exist, so a replacement may look like something else. */
TT_TEST(events, one_side_of_a_replacement)
{
	struct tt_domain domain;
	struct tdd_holder owner, other;
	struct tdd_subscription *subscription;

	tt_domain_init(&domain);
	tt_holder_init(&domain, &owner, OWNER);
	tt_holder_init(&domain, &other, OTHER);
	subscription = watch(&domain, &other, "*");
	publish_with_mode(&domain, &owner, 0600);
	expect_nothing(&other);
	publish_with_mode(&domain, &owner, 0604);
	expect(&other, subscription, TDP_EVENT_PUBLISHED, "x", 2);
	publish_with_mode(&domain, &owner, 0604);
	expect(&other, subscription, TDP_EVENT_REPLACED, "x", 3);
	publish_with_mode(&domain, &owner, 0600);
	expect(&other, subscription, TDP_EVENT_REMOVED, "x", 3);
	publish_with_mode(&domain, &owner, 0600);
	expect_nothing(&other);
	subscription->kinds = 1u << TDP_EVENT_REPLACED;
	publish_with_mode(&domain, &owner, 0604);
	publish_with_mode(&domain, &owner, 0600);
	expect_nothing(&other); /* neither was a replacement to it */
	tt_holder_end(&domain, &other);
	tt_holder_end(&domain, &owner);
	tt_domain_deinit(&domain);
}

TT_TEST(events, only_the_kinds_and_the_owner_that_are_wanted)
{
	struct tt_domain domain;
	struct tdd_holder owner;
	struct tdd_subscription *removals;

	tt_domain_init(&domain);
	tt_holder_init(&domain, &owner, OWNER);
	removals = watch_owner(&domain, &owner, OWNER, "**", 1u << TDP_EVENT_REMOVED);
	watch_owner(&domain, &owner, OTHER, "**", TDP_EVENT_KINDS_ALL);
	watch_owner(&domain, &owner, OTHER, "x", TDP_EVENT_KINDS_ALL);
	tt_publish(&domain, &owner, "x", NULL);
	tdd_registry_unlist(&domain.registry, tt_publish(&domain, &owner, "x", NULL));
	expect(&owner, removals, TDP_EVENT_REMOVED, "x", 2);
	expect_nothing(&owner);
	tt_holder_end(&domain, &owner);
	tt_domain_deinit(&domain);
}

TT_TEST(events, a_full_queue_says_once_where_it_lost_something)
{
	struct tt_domain domain;
	struct tdd_holder owner;
	struct tdd_subscription *all, *few;
	uint64_t generation = 0;

	tt_domain_init(&domain);
	tt_holder_init(&domain, &owner, OWNER);
	all = watch(&domain, &owner, "**");
	for (int i = 0; i < TDD_EVENTS_PER_WATCH + 100; i++)
		tt_publish(&domain, &owner, "x", NULL);
	few = watch(&domain, &owner, "y");
	tt_publish(&domain, &owner, "y", NULL);
	cr_expect_eq(tt_used(&domain, OWNER, TDD_QUOTA_EVENTS), TDD_EVENTS_PER_WATCH + 1);
	expect(&owner, all, TDP_EVENT_PUBLISHED, "x", ++generation);
	for (int i = 1; i < TDD_EVENTS_PER_WATCH; i++)
		expect(&owner, all, TDP_EVENT_REPLACED, "x", ++generation);
	tt_publish(&domain, &owner, "z", NULL);
	expect(&owner, all, TDP_EVENT_LOST, NULL, 0);
	expect(&owner, few, TDP_EVENT_PUBLISHED, "y", TDD_EVENTS_PER_WATCH + 101);
	expect_nothing(&owner); /* z was published before the mark had been read */
	tt_publish(&domain, &owner, "x", NULL);
	expect(&owner, all, TDP_EVENT_REPLACED, "x", TDD_EVENTS_PER_WATCH + 103);
	expect_nothing(&owner);
	tt_holder_end(&domain, &owner);
	tt_domain_deinit(&domain);
}

TT_TEST(events, a_uid_pays_for_its_patterns_and_for_no_others)
{
	static char pattern[TDP_PATTERN_MAX_BYTES + 1], name[TDP_NAME_MAX_BYTES + 1];
	struct tt_domain domain;
	struct tdd_holder costly, modest;
	struct tdd_subscription *first, *ours;
	uint64_t most = 0;

	tt_domain_init(&domain);
	tt_holder_init(&domain, &costly, OTHER);
	tt_holder_init(&domain, &modest, OWNER);
	memset(name, 'a', sizeof(name) - 1);
	for (size_t i = 0; i + 1 < sizeof(pattern); i++)
		pattern[i] = i % 2 ? 'a' : '*';
	pattern[sizeof(pattern) - 2] = 'b';
	first = watch(&domain, &costly, pattern);
	for (int i = 1; i < TDD_WATCHES_PER_SESSION; i++)
		watch(&domain, &costly, pattern);
	ours = watch(&domain, &modest, "a*");
	for (int i = 0; i < 1000; i++) {
		tt_publish(&domain, &modest, name, NULL);
		most = first->audience->steps > most ? first->audience->steps : most;
	}
	cr_expect(first->has_lost, "it could not pay for all of them");
	cr_expect_leq(most,
		      (uint64_t)TDD_WATCH_STEPS + UINT64_C(255) * 255 + TDD_WATCH_VISIT_STEPS);
	for (uint64_t generation = 1; generation <= 1000; generation++)
		expect(&modest, ours, generation == 1 ? TDP_EVENT_PUBLISHED : TDP_EVENT_REPLACED,
		       name, generation);
	/* The next turn of the loop. */
	expect(&costly, first, TDP_EVENT_LOST, NULL, 0);
	tdd_events_turn(&domain.registry.events);
	tt_publish(&domain, &modest, "short", NULL);
	cr_expect_not(first->has_lost);
	tt_holder_end(&domain, &costly);
	tt_holder_end(&domain, &modest);
	tt_domain_deinit(&domain);
}

TT_TEST(events, limits_of_watches_and_of_unread_events)
{
	struct tdp_watch watch_of = {.pattern = "x*", .kinds = TDP_EVENT_KINDS_ALL};
	struct tt_domain domain;
	struct tdd_holder owner;
	struct tdd_subscription *subscription;
	struct tdp_fault fault;

	tt_domain_init(&domain);
	tt_holder_init(&domain, &owner, OWNER);
	for (int i = 0; i < TDD_WATCHES_PER_SESSION; i++)
		subscription = watch(&domain, &owner, "x*");
	cr_expect_eq(tdd_subscription_new(&domain.registry, &owner, &watch_of, OWNER, &subscription,
					  &fault),
		     TIDL_ERR_QUOTA);
	cr_expect_not_null(strstr(fault.text, "watches"));
	for (int i = 0; i < 100; i++) {
		tdd_events_turn(&domain.registry.events);
		tt_publish(&domain, &owner, "x", NULL);
	}
	cr_expect_eq(tt_used(&domain, OWNER, TDD_QUOTA_EVENTS), TDD_EVENTS_PER_SESSION);
	cr_expect(subscription->has_lost);
	/* The end of a watch gives back what it did not hear. */
	while (owner.subscriptions)
		tdd_subscription_free(owner.subscriptions);
	cr_expect_eq(tt_used(&domain, OWNER, TDD_QUOTA_EVENTS), 0);
	expect_nothing(&owner);
	cr_expect_not(domain.registry.events.news);
	tt_holder_end(&domain, &owner);
	tt_domain_deinit(&domain);
}

TT_TEST(events, a_watch_of_a_name_that_nobody_knows_yet)
{
	struct tt_domain domain;
	struct tdd_holder owner;
	struct tdd_subscription *subscription;

	tt_domain_init(&domain);
	tt_holder_init(&domain, &owner, OWNER);
	subscription = watch(&domain, &owner, "later");
	cr_expect_eq(tdd_subscription_find(&owner, subscription->id), subscription);
	cr_expect_not(tdd_subscription_find(&owner, subscription->id + 1));
	cr_assert(tdd_registry_find_name(&domain.registry, OWNER, "later"));
	tdd_registry_unlist(&domain.registry, tt_publish(&domain, &owner, "later", NULL));
	expect(&owner, subscription, TDP_EVENT_PUBLISHED, "later", 1);
	tdd_subscription_free(subscription);
	expect_nothing(&owner);
	cr_expect_not(tdd_registry_find_name(&domain.registry, OWNER, "later"));
	tt_holder_end(&domain, &owner);
	tt_domain_deinit(&domain);
}
