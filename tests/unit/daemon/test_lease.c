/* SPDX-License-Identifier: Apache-2.0 */
/* Life times of segments, and who pays for them meanwhile. */
#include <fcntl.h>

#include "tests/support/leak.h"
#include "tests/unit/daemon/domain.h"

enum { CREATOR = 1, READER = 2, LATER_READER = 3 };

TT_TEST(lease, an_unpublished_segment_ends_with_its_allocation)
{
	struct tt_domain domain;
	struct tdd_holder holder;
	struct tdd_segment *segment;
	uint64_t charged;

	tt_domain_init(&domain);
	tt_holder_init(&domain, &holder, CREATOR);
	segment = tt_allocate(&domain, &holder, 5000);
	charged = tt_used(&domain, CREATOR, TDD_QUOTA_BYTES);
	cr_expect_eq(charged, segment->geometry.size_bytes);
	cr_expect_geq(charged, 5000);
	cr_expect_eq(tdd_segment_find(domain.registry.segments, segment->id), segment);
	tdd_hold_free(tdd_allocation_find(&holder, segment->id));
	cr_expect(!domain.registry.segments);
	cr_expect_eq(tt_used(&domain, CREATOR, TDD_QUOTA_BYTES), 0);
	tt_holder_end(&domain, &holder);
	tt_domain_deinit(&domain);
}

TT_TEST(lease, a_listed_segment_needs_no_holder)
{
	struct tt_domain domain;
	struct tdd_holder holder;
	struct tdd_segment *segment;

	tt_domain_init(&domain);
	tt_holder_init(&domain, &holder, CREATOR);
	segment = tt_allocate(&domain, &holder, 100);
	tt_publish(&domain, &holder, "x", segment);
	tt_holder_end(&domain, &holder);
	cr_assert_eq(tdd_segment_find(domain.registry.segments, 1), segment);
	cr_expect_geq(fcntl(segment->read_fd, F_GETFD), 0);
	cr_expect_eq(tt_used(&domain, CREATOR, TDD_QUOTA_DESCRIPTORS), 2);
	tdd_registry_unlist(&domain.registry, tdd_registry_find(&domain.registry, CREATOR, "x"));
	cr_expect(!domain.registry.segments);
	tt_domain_deinit(&domain);
}

TT_TEST(lease, the_charge_follows_to_the_oldest_holder)
{
	struct tt_domain domain;
	struct tdd_holder creator, reader, later;
	struct tdd_segment *segment;
	struct tdd_publication *publication;
	struct tdd_hold *first;

	tt_domain_init(&domain);
	tt_holder_init(&domain, &creator, CREATOR);
	tt_holder_init(&domain, &reader, READER);
	tt_holder_init(&domain, &later, LATER_READER);
	segment = tt_allocate(&domain, &creator, 100);
	publication = tt_publish(&domain, &creator, "x", segment);
	first = tt_lease(&domain, &reader, publication, TIDL_ATTACH_READ);
	tt_lease(&domain, &later, publication, TIDL_ATTACH_READ);
	tdd_registry_unlist(&domain.registry, publication);
	cr_expect_eq(tt_used(&domain, CREATOR, TDD_QUOTA_DESCRIPTORS), 2,
		     "the creator's allocation is still there");
	tt_holder_end(&domain, &creator);
	cr_expect_eq(tt_used(&domain, CREATOR, TDD_QUOTA_DESCRIPTORS), 0);
	cr_expect_eq(tt_used(&domain, READER, TDD_QUOTA_DESCRIPTORS), 2);
	cr_expect_eq(tt_used(&domain, READER, TDD_QUOTA_PUBLICATIONS), 1);
	tdd_hold_free(first);
	cr_expect_eq(tt_used(&domain, READER, TDD_QUOTA_BYTES), 0);
	cr_expect_eq(tt_used(&domain, LATER_READER, TDD_QUOTA_DESCRIPTORS), 2);
	tt_holder_end(&domain, &later);
	cr_expect(!domain.registry.segments);
	tt_holder_end(&domain, &reader);
	tt_domain_deinit(&domain);
}

TT_TEST(lease, who_lists_again_pays_again)
{
	struct tt_domain domain;
	struct tdd_holder creator, reader;
	struct tdd_segment *segment;
	struct tdd_publication *publication;
	struct tdp_fault fault;

	tt_domain_init(&domain);
	tt_holder_init(&domain, &creator, CREATOR);
	tt_holder_init(&domain, &reader, READER);
	segment = tt_allocate(&domain, &creator, 100);
	publication = tt_publish(&domain, &creator, "x", segment);
	tt_lease(&domain, &reader, publication, TIDL_ATTACH_READ);
	tt_lease(&domain, &creator, publication, TIDL_ATTACH_READ);
	tdd_registry_unlist(&domain.registry, publication);
	tdd_hold_free(tdd_allocation_find(&creator, segment->id));
	cr_expect_eq(tt_used(&domain, READER, TDD_QUOTA_DESCRIPTORS), 2);
	cr_expect(tdd_holder_has_segment(&creator, segment), "it has a lease");
	cr_assert_eq(tdd_segment_reclaim(segment, creator.account.parent, &fault), 0);
	tt_publish(&domain, &creator, "x", segment);
	cr_expect_eq(tt_used(&domain, CREATOR, TDD_QUOTA_DESCRIPTORS), 2);
	cr_expect_eq(tt_used(&domain, READER, TDD_QUOTA_DESCRIPTORS), 0);
	tt_holder_end(&domain, &creator);
	tt_holder_end(&domain, &reader);
	tt_domain_deinit(&domain);
}

TT_TEST(lease, two_names_keep_one_segment)
{
	struct tt_domain domain;
	struct tdd_holder holder;
	struct tdd_segment *segment;
	struct tdd_publication *x, *y;

	tt_domain_init(&domain);
	tt_holder_init(&domain, &holder, CREATOR);
	segment = tt_allocate(&domain, &holder, 100);
	x = tt_publish(&domain, &holder, "x", segment);
	y = tt_publish(&domain, &holder, "y", segment);
	cr_expect(tdd_publication_shares_segment(x, y));
	cr_expect_eq(segment->listed_count, 2);
	tdd_hold_free(tdd_allocation_find(&holder, segment->id));
	tdd_registry_unlist(&domain.registry, x);
	cr_expect_eq(segment->listed_count, 1);
	cr_expect(domain.registry.segments != NULL);
	tdd_registry_unlist(&domain.registry, y);
	cr_expect(!domain.registry.segments);
	tt_holder_end(&domain, &holder);
	tt_domain_deinit(&domain);
}

TT_TEST(lease, other_writers_are_found_and_own_ones_are_not)
{
	struct tt_domain domain;
	struct tdd_holder creator, writer, reader;
	struct tdd_segment *segment;
	struct tdd_publication *publication;
	struct tdd_hold *lease;

	tt_domain_init(&domain);
	tt_holder_init(&domain, &creator, CREATOR);
	tt_holder_init(&domain, &writer, READER);
	tt_holder_init(&domain, &reader, LATER_READER);
	segment = tt_allocate(&domain, &creator, 100);
	publication = tt_publish(&domain, &creator, "x", segment);
	cr_expect(tdd_segment_other_writer(segment, &creator) == NULL);
	cr_expect_eq(tdd_segment_other_writer(segment, &reader), &creator);
	tdd_hold_free(tdd_allocation_find(&creator, segment->id));
	tt_lease(&domain, &reader, publication, TIDL_ATTACH_READ);
	cr_expect(tdd_segment_other_writer(segment, &reader) == NULL);
	lease = tt_lease(&domain, &writer, publication, TIDL_ATTACH_WRITE);
	cr_expect_eq(tdd_segment_other_writer(segment, &reader), &writer);
	cr_expect(tdd_segment_other_writer(segment, &writer) == NULL);
	tdd_hold_free(lease);
	cr_expect(tdd_segment_other_writer(segment, &reader) == NULL);
	tt_holder_end(&domain, &creator);
	tt_holder_end(&domain, &writer);
	tt_holder_end(&domain, &reader);
	tt_domain_deinit(&domain);
}

TT_TEST(lease, seals_become_final_before_another_process_writes)
{
	struct tt_domain domain;
	struct tdd_holder creator, writer;
	struct tdd_segment *segment;
	struct tdp_segment view;
	struct tdp_fault fault;

	tt_domain_init(&domain);
	tt_holder_init(&domain, &creator, CREATOR);
	tt_holder_init(&domain, &writer, CREATOR);
	segment = tt_allocate(&domain, &creator, 100);
	cr_assert_eq(tdd_segment_seal_for_write(segment, creator.process, &fault), 0);
	cr_assert_eq(tdd_segment_examine(segment, &view, &fault), 0);
	cr_expect_eq(view.seals & F_SEAL_SEAL, 0, "its creator may still decide");
	cr_expect_eq(view.seals & (F_SEAL_SHRINK | F_SEAL_GROW), F_SEAL_SHRINK | F_SEAL_GROW);
	cr_expect_neq(view.inode, 0);
	cr_assert_eq(tdd_segment_seal_for_write(segment, writer.process, &fault), 0);
	cr_assert_eq(tdd_segment_examine(segment, &view, &fault), 0);
	cr_expect_neq(view.seals & F_SEAL_SEAL, 0);
	tt_holder_end(&domain, &creator);
	tt_holder_end(&domain, &writer);
	tt_domain_deinit(&domain);
}

TT_TEST(lease, a_refused_segment_leaves_nothing)
{
	struct tt_domain domain;
	struct tdd_holder holder;
	struct tdd_segment *segment;
	struct tdp_fault fault;

	tt_domain_init(&domain);
	tt_holder_init(&domain, &holder, CREATOR);
	cr_expect_eq(tdd_segment_new(&domain.registry.segments, 1, 2 * TT_UID_BYTES, holder.process,
				     holder.account.parent, &segment, &fault),
		     TIDL_ERR_QUOTA);
	cr_expect_eq(tdd_segment_new(&domain.registry.segments, 1, UINT64_MAX, holder.process,
				     holder.account.parent, &segment, &fault),
		     TIDL_ERR_LIMIT);
	cr_expect(!domain.registry.segments);
	cr_expect_eq(tt_used(&domain, CREATOR, TDD_QUOTA_BYTES), 0);
	tt_holder_end(&domain, &holder);
	tt_domain_deinit(&domain);
}

TT_TEST(lease, descriptors_run_out_by_quota_first)
{
	struct tt_domain domain;
	struct tdd_holder holder;
	struct tdd_segment *segment;
	struct tdp_fault fault;

	tt_domain_init(&domain);
	tt_holder_init(&domain, &holder, CREATOR);
	for (int i = 0; i < TT_DESCRIPTORS / 2; i++)
		tt_allocate(&domain, &holder, 1);
	cr_expect_eq(tdd_segment_new(&domain.registry.segments, 1000, 1, holder.process,
				     holder.account.parent, &segment, &fault),
		     TIDL_ERR_LIMIT);
	cr_expect_eq(HASH_COUNT(domain.registry.segments), TT_DESCRIPTORS / 2);
	tt_holder_end(&domain, &holder);
	tt_domain_deinit(&domain);
}

/* Settling anything must not look at all that is held: with one walk for each hold this would take
 * minutes, in which a broker serves nobody. */
TT_TEST(lease, many_holds_on_one_segment_end_one_by_one, .timeout = 60)
{
	enum { READERS = 4, GENERATIONS = 60000 };
	struct tt_domain domain;
	struct tdd_holder creator, readers[READERS];
	struct tdd_segment *segment;

	tt_domain_init(&domain);
	for (int level = 0; level < TDD_ACCOUNT_LEVEL_COUNT; level++)
		domain.quota.limits[level][TDD_QUOTA_BYTES] = UINT64_MAX;
	tt_holder_init(&domain, &creator, CREATOR);
	for (int i = 0; i < READERS; i++)
		tt_holder_init(&domain, &readers[i], READER);
	segment = tt_allocate(&domain, &creator, 100);
	for (int i = 0; i < GENERATIONS; i++) {
		struct tdd_publication *publication = tt_publish(&domain, &creator, "x", segment);

		for (int k = 0; k < READERS; k++)
			tt_lease(&domain, &readers[k], publication, TIDL_ATTACH_WRITE);
		cr_assert(tdd_holder_has_segment(&readers[i % READERS], segment));
		cr_assert_eq(tdd_segment_other_writer(segment, &creator), &readers[0]);
	}
	tdd_registry_unlist(&domain.registry, tdd_registry_find(&domain.registry, CREATOR, "x"));
	tt_holder_end(&domain, &creator);
	cr_expect_eq(tt_used(&domain, READER, TDD_QUOTA_PUBLICATIONS), GENERATIONS);
	cr_expect_eq(tt_used(&domain, READER, TDD_QUOTA_DESCRIPTORS), 2);
	for (int i = 0; i < READERS; i++)
		tt_holder_end(&domain, &readers[i]);
	cr_expect(!domain.registry.segments);
	tt_domain_deinit(&domain);
}
