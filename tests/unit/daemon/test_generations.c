/* SPDX-License-Identifier: Apache-2.0 */
/* Generations that stay: kept, pinned, leased; who pays for them, and when they go. */
#include "daemon/clock.h"
#include "daemon/limits.h"
#include "daemon/pin.h"
#include "daemon/reader.h"
#include "daemon/waiter.h"
#include "tests/support/leak.h"
#include "tests/unit/daemon/domain.h"

enum { OWNER = 1, READER = 2, OTHER = 3, LATER_MS = 1000000 };

static void keep_more(struct tt_domain *domain, struct tdd_holder *holder, uint32_t keep)
{
	struct tdd_segment *segment = tt_allocate(domain, holder, 100);

	tt_publish_as(domain, holder,
		      (struct tt_publication){.name = "x",
					      .segment = segment,
					      .retention = TIDL_RETENTION_PERSIST,
					      .keep = keep,
					      .mode = 0600});
	tdd_hold_free(tdd_allocation_find(holder, segment->id));
}

static struct tdd_publication *publish_for(struct tt_domain *domain, struct tdd_holder *holder,
					   enum tidl_retention retention, uint64_t ttl_ms)
{
	return tt_publish_as(domain, holder,
			     (struct tt_publication){.name = "x",
						     .retention = retention,
						     .ttl_ms = ttl_ms,
						     .keep = 1,
						     .mode = 0600});
}

static struct tdd_publication *find(struct tt_domain *domain, uint64_t generation)
{
	return tdd_registry_find_generation(&domain->registry, OWNER, "x", generation);
}

static void pin(struct tdd_publication *publication, struct tdd_holder *holder, uint64_t until_ms)
{
	struct tdp_fault fault;

	cr_assert_eq(tdd_pin_put(publication, tdd_holder_uid_account(holder), holder->process,
				 until_ms, &fault),
		     0, "%s", fault.text);
}

static void pass_time(struct tt_domain *domain, uint64_t now_ms)
{
	tdd_timeline_expire(&domain->registry.timeline, now_ms);
}

TT_TEST(generations, the_last_ones_stay_and_are_their_owners_to_pay)
{
	struct tt_domain domain;
	struct tdd_holder owner;

	tt_domain_init(&domain);
	tt_holder_init(&domain, &owner, OWNER);
	for (int i = 0; i < 6; i++)
		keep_more(&domain, &owner, 3);
	for (uint64_t generation = 1; generation <= 6; generation++)
		cr_expect_eq(find(&domain, generation) != NULL, generation >= 4);
	cr_expect(tdd_publication_is_current(find(&domain, 6)));
	cr_expect(tdd_publication_is_listed(find(&domain, 4)));
	cr_expect_not(tdd_publication_is_current(find(&domain, 4)));
	cr_expect_eq(tdd_registry_count(&domain.registry), 1, "a listing shows the current one");
	cr_expect_eq(tt_used(&domain, OWNER, TDD_QUOTA_PUBLICATIONS), 3);
	cr_expect_eq(tt_used(&domain, OWNER, TDD_QUOTA_DESCRIPTORS), 6);
	keep_more(&domain, &owner, 2);
	cr_expect(!find(&domain, 5) && find(&domain, 6) && find(&domain, 7));
	keep_more(&domain, &owner, 0);
	cr_expect(!find(&domain, 7) && find(&domain, 8));
	tt_holder_end(&domain, &owner);
	tt_domain_deinit(&domain);
}

TT_TEST(generations, kept_ones_go_with_their_name)
{
	struct tt_domain domain;
	struct tdd_holder owner, reader;
	struct tdd_hold *lease;

	tt_domain_init(&domain);
	tt_holder_init(&domain, &owner, OWNER);
	tt_holder_init(&domain, &reader, READER);
	for (int i = 0; i < 4; i++)
		keep_more(&domain, &owner, 4);
	lease = tt_lease(&domain, &reader, find(&domain, 2), TIDL_ATTACH_READ);
	tdd_registry_unlist(&domain.registry, find(&domain, 3)); /* one of them alone */
	cr_expect(find(&domain, 1) && !find(&domain, 3) && find(&domain, 4));
	tdd_registry_unlist(&domain.registry, find(&domain, 4));
	cr_expect(!find(&domain, 1) && !find(&domain, 4));
	cr_expect_eq(find(&domain, 2), lease->publication, "its reader has it still");
	cr_expect_not(tdd_publication_is_attachable(lease->publication));
	cr_expect_eq(tt_used(&domain, OWNER, TDD_QUOTA_PUBLICATIONS), 0);
	cr_expect_eq(tt_used(&domain, READER, TDD_QUOTA_DESCRIPTORS), 2);
	cr_expect_not(tdd_registry_is_empty(&domain.registry));
	tdd_hold_free(lease);
	cr_expect(tdd_registry_is_empty(&domain.registry));
	tt_holder_end(&domain, &reader);
	tt_holder_end(&domain, &owner);
	tt_domain_deinit(&domain);
}

TT_TEST(generations, another_name_or_owner_has_other_ones)
{
	struct tt_domain domain;
	struct tdd_holder owner, other;

	tt_domain_init(&domain);
	tt_holder_init(&domain, &owner, OWNER);
	tt_holder_init(&domain, &other, OTHER);
	tt_publish(&domain, &owner, "y", NULL);
	tt_publish(&domain, &other, "x", NULL);
	cr_expect_not(find(&domain, 0));
	cr_expect_not(find(&domain, 1));
	cr_expect_not(find(&domain, 2));
	cr_expect_not(find(&domain, UINT64_MAX));
	tt_holder_end(&domain, &owner);
	tt_holder_end(&domain, &other);
	tt_domain_deinit(&domain);
}

TT_TEST(generations, a_pin_outlives_name_and_holder_and_ends_by_time)
{
	struct tt_domain domain;
	struct tdd_holder owner, reader;
	uint64_t now_ms = tdd_clock_ms();

	tt_domain_init(&domain);
	tt_holder_init(&domain, &owner, OWNER);
	tt_holder_init(&domain, &reader, READER);
	keep_more(&domain, &owner, 1);
	pin(find(&domain, 1), &reader, now_ms + LATER_MS);
	cr_expect_eq(tt_used(&domain, READER, TDD_QUOTA_PINS), 1);
	cr_expect_eq(tt_used(&domain, READER, TDD_QUOTA_PUBLICATIONS), 0, "its owner still pays");
	tt_holder_end(&domain, &reader);
	tdd_registry_unlist(&domain.registry, find(&domain, 1));
	tt_holder_end(&domain, &owner);
	cr_assert(find(&domain, 1));
	cr_expect(tdd_publication_is_attachable(find(&domain, 1)));
	cr_expect_eq(tt_used(&domain, OWNER, TDD_QUOTA_DESCRIPTORS), 0);
	cr_expect_eq(tt_used(&domain, READER, TDD_QUOTA_DESCRIPTORS), 2);
	cr_expect_eq(tt_used(&domain, READER, TDD_QUOTA_PUBLICATIONS), 1);
	pass_time(&domain, now_ms + LATER_MS - 1);
	cr_expect(find(&domain, 1));
	pass_time(&domain, now_ms + LATER_MS);
	cr_expect_not(find(&domain, 1));
	cr_expect_not(domain.registry.segments);
	tt_domain_deinit(&domain);
}

TT_TEST(generations, to_pin_again_prolongs)
{
	struct tt_domain domain;
	struct tdd_holder owner, reader;
	uint64_t now_ms = tdd_clock_ms();
	struct tdd_publication *publication;

	tt_domain_init(&domain);
	tt_holder_init(&domain, &owner, OWNER);
	tt_holder_init(&domain, &reader, READER);
	publication = tt_publish(&domain, &owner, "x", NULL);
	pin(publication, &owner, now_ms + 10);
	pin(publication, &owner, now_ms + 30);
	pin(publication, &owner, now_ms + 20); /* never shortens */
	pin(publication, &reader, now_ms + 5);
	cr_expect_eq(tt_used(&domain, OWNER, TDD_QUOTA_PINS), 1);
	cr_expect_eq(tdd_publication_holder_count(publication), 2);
	pass_time(&domain, now_ms + 29);
	cr_expect_eq(tt_used(&domain, OWNER, TDD_QUOTA_PINS), 1);
	cr_expect_eq(tt_used(&domain, READER, TDD_QUOTA_PINS), 0);
	pass_time(&domain, now_ms + 30);
	cr_expect_not(publication->pins);
	cr_expect_eq(find(&domain, 1), publication, "the name has it");
	tt_holder_end(&domain, &owner);
	tt_holder_end(&domain, &reader);
	tt_domain_deinit(&domain);
}

TT_TEST(generations, limit_of_pins)
{
	struct tt_domain domain;
	struct tdd_holder owner, reader;
	struct tdd_publication *publication;
	struct tdd_charge full = {0};
	struct tdp_fault fault;

	tt_domain_init(&domain);
	tt_holder_init(&domain, &owner, OWNER);
	tt_holder_init(&domain, &reader, READER);
	publication = tt_publish(&domain, &owner, "x", NULL);
	cr_assert_eq(tdd_charge_init(&full, tdd_holder_uid_account(&reader), TDD_QUOTA_PINS,
				     TDD_PINS_PER_UID, &fault),
		     0);
	cr_expect_eq(tdd_pin_put(publication, tdd_holder_uid_account(&reader), reader.process, 1,
				 &fault),
		     TIDL_ERR_QUOTA);
	cr_expect_not(publication->pins);
	pin(publication, &owner, 1); /* which concerns nobody else */
	tdd_charge_deinit(&full);
	tt_holder_end(&domain, &owner);
	tt_holder_end(&domain, &reader);
	tt_domain_deinit(&domain); /* the pin ends with the broker */
}

/* ---- seconds to live, owners that die ---- */

TT_TEST(generations, seconds_to_live)
{
	struct tt_domain domain;
	struct tdd_holder owner;
	uint64_t now_ms;

	tt_domain_init(&domain);
	tt_holder_init(&domain, &owner, OWNER);
	now_ms = tdd_clock_ms();
	publish_for(&domain, &owner, TIDL_RETENTION_SECONDS, 500);
	pass_time(&domain, now_ms + 499);
	cr_expect(tdd_registry_find(&domain.registry, OWNER, "x"));
	pass_time(&domain, tdd_clock_ms() + 500);
	cr_expect_not(tdd_registry_find(&domain.registry, OWNER, "x"));
	/* What was removed before leaves no deadline behind. */
	tdd_registry_unlist(&domain.registry,
			    publish_for(&domain, &owner, TIDL_RETENTION_SECONDS, 500));
	cr_expect_eq(tdd_timeline_next_ms(&domain.registry.timeline), UINT64_MAX);
	/* For longer than any clock goes. */
	publish_for(&domain, &owner, TIDL_RETENTION_SECONDS, UINT64_MAX);
	pass_time(&domain, UINT64_MAX - 1);
	cr_expect(tdd_registry_find(&domain.registry, OWNER, "x"));
	tt_holder_end(&domain, &owner);
	tt_domain_deinit(&domain);
}

TT_TEST(generations, a_dead_owners_stay_for_the_grace_period)
{
	struct tt_domain domain;
	struct tdd_holder owner, heir;
	struct tdd_publication *publication;
	uint64_t now_ms;

	tt_domain_init(&domain);
	domain.registry.owner_grace_ms = 700;
	tt_holder_init(&domain, &owner, OWNER);
	tt_holder_init(&domain, &heir, OWNER);
	publication = publish_for(&domain, &owner, TIDL_RETENTION_OWNER, 0);
	cr_expect_not(tdd_publication_is_orphaned(publication));
	now_ms = tdd_clock_ms();
	tt_holder_end(&domain, &owner);
	cr_expect(tdd_publication_is_orphaned(publication));
	pass_time(&domain, now_ms + 699);
	cr_expect_eq(tdd_registry_find(&domain.registry, OWNER, "x"), publication);
	pass_time(&domain, tdd_clock_ms() + 700);
	cr_expect_not(tdd_registry_find(&domain.registry, OWNER, "x"));

	publish_for(&domain, &heir, TIDL_RETENTION_OWNER, 0);
	heir.said_goodbye = true;
	tt_holder_end(&domain, &heir);
	cr_expect_not(tdd_registry_find(&domain.registry, OWNER, "x"), "it wanted to go");
	tt_domain_deinit(&domain);
}

TT_TEST(generations, without_a_grace_period_they_go_at_once)
{
	struct tt_domain domain;
	struct tdd_holder owner;

	tt_domain_init(&domain);
	tt_holder_init(&domain, &owner, OWNER);
	publish_for(&domain, &owner, TIDL_RETENTION_OWNER, 0);
	tt_holder_end(&domain, &owner);
	cr_expect(tdd_registry_is_empty(&domain.registry));
	tt_domain_deinit(&domain);
}

/* ---- released ---- */

static int woken;

static void wake(struct tdd_waiter *waiter, struct tdd_publication *publication)
{
	cr_assert(publication);
	woken++;
	tdd_waiter_free(waiter);
}

static void wait_released(struct tt_domain *domain, struct tdd_holder *holder,
			  struct tdd_publication *publication)
{
	struct tdd_waiter_spec spec = {.publication = publication, .request_id = 1, .wake = wake};
	struct tdp_fault fault;

	woken = 0;
	cr_assert_eq(tdd_waiter_park(&domain->registry, holder, &spec, &fault), 0);
}

TT_TEST(generations, released_when_no_other_has_a_lease)
{
	struct tt_domain domain;
	struct tdd_holder owner, reader, other;
	struct tdd_publication *publication;
	struct tdd_hold *own, *first, *second;

	tt_domain_init(&domain);
	tt_holder_init(&domain, &owner, OWNER);
	tt_holder_init(&domain, &reader, READER);
	tt_holder_init(&domain, &other, OTHER);
	publication = tt_publish(&domain, &owner, "x", NULL);
	cr_expect(tdd_publication_is_released(publication, &owner));
	own = tt_lease(&domain, &owner, publication, TIDL_ATTACH_READ);
	cr_expect(tdd_publication_is_released(publication, &owner), "one's own do not count");
	cr_expect_not(tdd_publication_is_released(publication, &reader));
	first = tt_lease(&domain, &reader, publication, TIDL_ATTACH_READ);
	second = tt_lease(&domain, &reader, publication, TIDL_ATTACH_READ);
	tt_lease(&domain, &other, publication, TIDL_ATTACH_READ);
	cr_expect_eq(publication->reader_count, 3);
	cr_expect(tdd_holder_reads(&reader, publication));
	wait_released(&domain, &owner, publication);
	tdd_registry_unlist(&domain.registry, publication);
	tdd_hold_free(first);
	cr_expect_eq(woken, 0);
	tdd_hold_free(second);
	cr_expect_eq(woken, 0);
	tdd_hold_free(own);
	cr_expect_eq(woken, 0, "there is still another");
	tt_holder_end(&domain, &other);
	cr_expect_eq(woken, 1);
	cr_expect(tdd_registry_is_empty(&domain.registry));
	tt_holder_end(&domain, &reader);
	tt_holder_end(&domain, &owner);
	tt_domain_deinit(&domain);
}

TT_TEST(generations, a_pin_is_not_released)
{
	struct tt_domain domain;
	struct tdd_holder owner;
	struct tdd_publication *publication;
	uint64_t now_ms = tdd_clock_ms();

	tt_domain_init(&domain);
	tt_holder_init(&domain, &owner, OWNER);
	publication = tt_publish(&domain, &owner, "x", NULL);
	pin(publication, &owner, now_ms + 1);
	cr_expect_not(tdd_publication_is_released(publication, &owner),
		      "whoever gets it will read it");
	wait_released(&domain, &owner, publication);
	pass_time(&domain, now_ms + 1);
	cr_expect_eq(woken, 1);
	tt_holder_end(&domain, &owner);
	tt_domain_deinit(&domain);
}

TT_TEST(generations, who_waits_for_a_release_may_end)
{
	struct tt_domain domain;
	struct tdd_holder owner, reader;
	struct tdd_publication *publication;

	tt_domain_init(&domain);
	tt_holder_init(&domain, &owner, OWNER);
	tt_holder_init(&domain, &reader, READER);
	publication = tt_publish(&domain, &owner, "x", NULL);
	tt_lease(&domain, &reader, publication, TIDL_ATTACH_READ);
	wait_released(&domain, &owner, publication);
	tt_holder_end(&domain, &owner);
	tt_holder_end(&domain, &reader);
	cr_expect_eq(woken, 0);
	tt_domain_deinit(&domain);
}

/* ---- newer ---- */

TT_TEST(generations, a_wait_for_a_later_one_sleeps_through_the_others)
{
	struct tt_domain domain;
	struct tdd_holder owner;
	struct tdd_waiter_spec spec = {
		.owner_uid = OWNER, .name = "x", .newer_than = 3, .wake = wake};
	struct tdp_fault fault;

	tt_domain_init(&domain);
	tt_holder_init(&domain, &owner, OWNER);
	woken = 0;
	cr_assert_eq(tdd_waiter_park(&domain.registry, &owner, &spec, &fault), 0);
	for (int i = 1; i <= 5; i++) {
		tdd_waiters_wake(tt_publish(&domain, &owner, "x", NULL));
		cr_expect_eq(woken, i > 3);
	}
	tt_holder_end(&domain, &owner);
	tt_domain_deinit(&domain);
}
