/* SPDX-License-Identifier: Apache-2.0 */
#include "client/lib/segtable.h"

#include "client/lib/segment.h"
#include "tests/support/leak.h"

enum { COUNT = 100, STEP = 0x10000, SIZE = 0x8000 };

static struct tdc_segment segments[COUNT];

static void segment_fill(struct tdc_segment *segment, size_t index, enum tidl_attach attach)
{
	memset(segment, 0, sizeof(*segment));
	segment->key.id = index + 1;
	segment->key.era = 1;
	segment->key.attach = attach;
	segment->attach = attach;
	segment->base = (void *)(uintptr_t)((index + 1) * STEP);
	segment->map_bytes = SIZE;
}

/* In an order that is neither up nor down. */
static size_t shuffled(size_t index)
{
	return index * 37 % COUNT;
}

TT_TEST(segtable, finds_what_lies_inside_and_nothing_else)
{
	struct tdc_segtable table = {0};

	for (size_t i = 0; i < COUNT; i++) {
		struct tdc_segment *segment = &segments[shuffled(i)];

		segment_fill(segment, shuffled(i), TIDL_ATTACH_WRITE);
		cr_assert_eq(tdc_segtable_link(&table, segment), 0);
	}
	for (size_t i = 0; i < COUNT; i++) {
		uintptr_t base = (uintptr_t)segments[i].base;

		cr_assert_eq(tdc_segtable_find_range(&table, base, base + SIZE), &segments[i]);
		cr_assert_eq(tdc_segtable_find_range(&table, base + SIZE - 1, base + SIZE),
			     &segments[i]);
		cr_assert_null(tdc_segtable_find_range(&table, base - 1, base + 1));
		cr_assert_null(tdc_segtable_find_range(&table, base + SIZE - 1, base + SIZE + 1));
		cr_assert_null(tdc_segtable_find_range(&table, base + SIZE, base + SIZE + 1));
		cr_assert_null(tdc_segtable_find_range(&table, base, base + STEP + 1));
	}
	for (size_t i = 0; i < COUNT; i++) {
		uintptr_t base = (uintptr_t)segments[shuffled(i)].base;

		tdc_segtable_unlink(&table, &segments[shuffled(i)]);
		cr_assert_null(tdc_segtable_find_range(&table, base, base + 1));
	}
	cr_assert_eq(table.count, 0);
	tdc_segtable_deinit(&table);
}

TT_TEST(segtable, identity_is_id_connection_and_attach)
{
	struct tdc_segtable table = {0};

	segment_fill(&segments[0], 0, TIDL_ATTACH_WRITE);
	segment_fill(&segments[1], 1, TIDL_ATTACH_READ);
	cr_assert_eq(tdc_segtable_link(&table, &segments[0]), 0);
	cr_assert_eq(tdc_segtable_link(&table, &segments[1]), 0);
	cr_assert_eq(tdc_segtable_find(&table, 1, 1, TIDL_ATTACH_WRITE), &segments[0]);
	cr_assert_eq(tdc_segtable_find(&table, 2, 1, TIDL_ATTACH_READ), &segments[1]);
	cr_assert_null(tdc_segtable_find(&table, 1, 1, TIDL_ATTACH_READ));
	cr_assert_null(tdc_segtable_find(&table, 1, 2, TIDL_ATTACH_WRITE));
	cr_assert_null(tdc_segtable_find(&table, 3, 1, TIDL_ATTACH_WRITE));
	tdc_segtable_unlink(&table, &segments[0]);
	cr_assert_null(tdc_segtable_find(&table, 1, 1, TIDL_ATTACH_WRITE));
	tdc_segtable_unlink(&table, &segments[1]);
	tdc_segtable_deinit(&table);
}

TT_TEST(segtable, copy_on_write_maps_are_found_by_address_only)
{
	struct tdc_segtable table = {0};
	uintptr_t base;

	segment_fill(&segments[0], 0, TIDL_ATTACH_COPY_ON_WRITE);
	cr_assert_eq(tdc_segtable_link(&table, &segments[0]), 0);
	base = (uintptr_t)segments[0].base;
	cr_assert_eq(tdc_segtable_find_range(&table, base, base + 1), &segments[0]);
	cr_assert_null(tdc_segtable_find(&table, 1, 1, TIDL_ATTACH_COPY_ON_WRITE));
	tdc_segtable_unlink(&table, &segments[0]);
	tdc_segtable_deinit(&table);
}
