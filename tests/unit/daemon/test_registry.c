/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "daemon/waiter.h"
#include "tests/support/leak.h"
#include "tests/unit/daemon/domain.h"

TT_TEST(registry, each_uid_has_names_of_its_own)
{
	struct tt_domain domain;
	struct tdd_holder alice, bob;
	struct tdd_publication *hers;

	tt_domain_init(&domain);
	tt_holder_init(&domain, &alice, 1);
	tt_holder_init(&domain, &bob, 2);
	hers = tt_publish(&domain, &alice, "a/b", NULL);
	cr_expect_eq(tdd_registry_find(&domain.registry, 1, "a/b"), hers);
	cr_expect(!tdd_registry_find(&domain.registry, 2, "a/b"));
	cr_expect(!tdd_registry_find(&domain.registry, 1, "a"));
	cr_expect(!tdd_registry_find(&domain.registry, 1, "a/b/c"));
	tt_publish(&domain, &bob, "a/b", NULL);
	cr_expect_eq(tdd_registry_find(&domain.registry, 1, "a/b"), hers);
	tt_holder_end(&domain, &alice);
	tt_holder_end(&domain, &bob);
	cr_expect_eq(tdd_registry_count(&domain.registry), 2);
	tt_domain_deinit(&domain);
}

TT_TEST(registry, generations_never_repeat)
{
	struct tt_domain domain;
	struct tdd_holder holder;
	uint64_t last = 0;

	tt_domain_init(&domain);
	tt_holder_init(&domain, &holder, 1);
	for (int i = 0; i < 10; i++) {
		struct tdd_publication *publication = tt_publish(&domain, &holder, "x", NULL);

		cr_expect_gt(publication->generation, last);
		last = publication->generation;
		if (i % 2)
			tdd_registry_unlist(&domain.registry, publication);
	}
	cr_expect_eq(last, 10);
	tt_holder_end(&domain, &holder);
	tt_domain_deinit(&domain);
}

TT_TEST(registry, a_replaced_generation_stays_with_its_readers)
{
	struct tt_domain domain;
	struct tdd_holder holder;
	struct tdd_publication *old;
	struct tdd_hold *lease;

	tt_domain_init(&domain);
	tt_holder_init(&domain, &holder, 1);
	old = tt_publish(&domain, &holder, "x", NULL);
	lease = tt_lease(&domain, &holder, old, TIDL_ATTACH_READ);
	cr_expect_neq(tt_publish(&domain, &holder, "x", NULL), old);
	cr_expect_not(tdd_publication_is_listed(old));
	cr_expect_eq(old->lease_count, 1);
	cr_expect_str_eq(old->name, "x");
	cr_expect_eq(old->tensors[0].shape[1], 3);
	cr_expect_eq(tdd_registry_count(&domain.registry), 1);
	tdd_hold_free(lease);
	tt_holder_end(&domain, &holder);
	tt_domain_deinit(&domain);
}

/* Generations behind @cursor, in order. */
static size_t walk(const struct tdd_registry *registry, uint64_t cursor, uint64_t *generations)
{
	const struct tdd_index *index = &registry->index;
	size_t count = 0;

	for (size_t i = tdd_index_after(index, cursor); i < index->slot_count; i++) {
		if (index->slots[i].publication)
			generations[count++] = index->slots[i].generation;
	}
	return count;
}

TT_TEST(registry, a_listing_goes_on_behind_any_generation)
{
	struct tt_domain domain;
	struct tdd_holder holder;
	uint64_t generations[300];
	char name[16];

	tt_domain_init(&domain);
	tt_holder_init(&domain, &holder, 1);
	for (int i = 1; i <= 300; i++) {
		snprintf(name, sizeof(name), "n%d", i);
		tt_publish(&domain, &holder, name, NULL);
	}
	cr_assert_eq(walk(&domain.registry, 0, generations), 300);
	/* Take out all but every tenth: the gaps get closed on the way. */
	for (int i = 1; i <= 300; i++) {
		snprintf(name, sizeof(name), "n%d", i);
		if (i % 10 != 0)
			tdd_registry_unlist(&domain.registry,
					    tdd_registry_find(&domain.registry, 1, name));
	}
	cr_expect_eq(tdd_registry_count(&domain.registry), 30);
	cr_assert_eq(walk(&domain.registry, 0, generations), 30);
	for (size_t i = 0; i < 30; i++)
		cr_expect_eq(generations[i], 10 * (i + 1));
	cr_assert_eq(walk(&domain.registry, 15, generations), 29);
	cr_expect_eq(generations[0], 20);
	cr_assert_eq(walk(&domain.registry, 20, generations), 28);
	cr_expect_eq(generations[0], 30);
	cr_expect_eq(walk(&domain.registry, 300, generations), 0);
	cr_expect_eq(walk(&domain.registry, UINT64_MAX, generations), 0);
	tt_holder_end(&domain, &holder);
	tt_domain_deinit(&domain);
}

TT_TEST(registry, objects_of_a_holder_end_with_it)
{
	struct tt_domain domain;
	struct tdd_holder owner, reader;
	struct tdd_publication *owned;

	tt_domain_init(&domain);
	tt_holder_init(&domain, &owner, 1);
	tt_holder_init(&domain, &reader, 1);
	owned = tt_publish(&domain, &owner, "mine", tt_allocate(&domain, &owner, 10));
	owned->owner = &owner;
	DL_APPEND2(owner.owned, owned, owner_prev, owner_next);
	tt_publish(&domain, &owner, "stays", NULL);
	tt_lease(&domain, &reader, owned, TIDL_ATTACH_READ);
	tt_holder_end(&domain, &owner);
	cr_expect(!tdd_registry_find(&domain.registry, 1, "mine"));
	cr_expect(tdd_registry_find(&domain.registry, 1, "stays") != NULL);
	cr_expect(domain.registry.segments != NULL, "the reader's memory has gone");
	tt_holder_end(&domain, &reader);
	cr_expect(!domain.registry.segments);
	tt_domain_deinit(&domain);
}

struct woken {
	int count;
	uint64_t ids[4];
};

static void wake_and_stay(struct tdd_waiter *waiter, struct tdd_publication *publication)
{
	struct woken *woken = waiter->context;

	(void)publication;
	woken->ids[woken->count++] = waiter->request_id;
}

static void wake_and_go(struct tdd_waiter *waiter, struct tdd_publication *publication)
{
	wake_and_stay(waiter, publication);
	tdd_waiter_free(waiter);
}

static void park(struct tt_domain *domain, struct tdd_holder *holder, const char *name,
		 uint64_t request_id, void (*wake)(struct tdd_waiter *, struct tdd_publication *),
		 struct woken *woken)
{
	struct tdd_waiter_spec spec = {
		.owner_uid = 1,
		.name = name,
		.request_id = request_id,
		.attach = TIDL_ATTACH_READ,
		.wake = wake,
		.context = woken,
	};
	struct tdp_fault fault;

	cr_assert_eq(tdd_waiter_park(&domain->registry, holder, &spec, &fault), 0);
}

TT_TEST(registry, waiters_are_woken_in_order_and_by_their_name_only)
{
	struct tt_domain domain;
	struct tdd_holder holder;
	struct woken woken = {0};

	tt_domain_init(&domain);
	tt_holder_init(&domain, &holder, 1);
	park(&domain, &holder, "x", 1, wake_and_go, &woken);
	park(&domain, &holder, "x", 2, wake_and_stay, &woken);
	park(&domain, &holder, "y", 3, wake_and_go, &woken);
	park(&domain, &holder, "x", 4, wake_and_go, &woken);
	tdd_waiters_wake(tt_publish(&domain, &holder, "x", NULL));
	cr_assert_eq(woken.count, 3);
	cr_expect_eq(woken.ids[0], 1);
	cr_expect_eq(woken.ids[1], 2);
	cr_expect_eq(woken.ids[2], 4);
	cr_expect(!tdd_waiter_find(&holder, 1));
	cr_expect(tdd_waiter_find(&holder, 2) != NULL);
	cr_expect(tdd_waiter_find(&holder, 3) != NULL);
	cr_expect_eq(holder.account.used[TDD_QUOTA_WAITS], 2);
	tt_holder_end(&domain, &holder);
	tt_domain_deinit(&domain);
}

TT_TEST(registry, a_name_goes_with_its_last_waiter)
{
	struct tt_domain domain;
	struct tdd_holder holder;
	struct woken woken = {0};

	tt_domain_init(&domain);
	tt_holder_init(&domain, &holder, 1);
	park(&domain, &holder, "x", 1, wake_and_go, &woken);
	park(&domain, &holder, "x", 2, wake_and_go, &woken);
	tdd_waiter_free(tdd_waiter_find(&holder, 1));
	cr_expect(domain.registry.names != NULL);
	tdd_waiter_free(tdd_waiter_find(&holder, 2));
	cr_expect(!domain.registry.names);
	tt_holder_end(&domain, &holder);
	tt_domain_deinit(&domain);
}
