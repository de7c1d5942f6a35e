/* SPDX-License-Identifier: Apache-2.0 */
/* What a publication shows beside its tensors. */
#include "daemon/exposure.h"

#include "proto/mem/memfd.h"
#include "proto/wire/limits.h"
#include "tests/support/leak.h"

static struct tdd_exposure exposure;

static void begin(void)
{
	struct tdp_fault fault;

	cr_assert_eq(tdd_exposure_init(&exposure, 8, &fault), 0);
}

static void add(uint32_t segment, uint64_t begin_bytes, uint64_t end_bytes, uint64_t nbytes)
{
	tdd_exposure_add(&exposure, segment,
			 &(struct tdp_extent){.begin_bytes = begin_bytes,
					      .end_bytes = end_bytes,
					      .nbytes = nbytes});
}

/* The pages of segment 0 that are covered; ends the test's exposure. */
static uint64_t covered_pages(void)
{
	size_t position = 0;
	uint64_t bytes;

	tdd_exposure_sort(&exposure);
	bytes = tdd_exposure_covered_bytes(&exposure, 0, &position);
	tdd_exposure_deinit(&exposure);
	cr_assert_eq(bytes % tdp_page_bytes(), 0);
	return bytes / tdp_page_bytes();
}

TT_TEST(exposure, of_nothing)
{
	begin();
	tdd_exposure_add(&exposure, 0, &(struct tdp_extent){.is_empty = true});
	cr_expect_eq(covered_pages(), 0);
}

TT_TEST(exposure, rest_of_a_page_does_not_count)
{
	begin();
	add(0, 0, 1, 1);
	cr_expect_eq(covered_pages(), 1);
}

TT_TEST(exposure, shared_memory_counts_once)
{
	uint64_t page = tdp_page_bytes();

	begin();
	add(0, 0, 2 * page, 2 * page);
	add(0, page, 2 * page, page);
	add(0, 0, 2 * page, 2 * page);
	cr_expect_eq(covered_pages(), 2);
}

TT_TEST(exposure, order_does_not_matter)
{
	uint64_t page = tdp_page_bytes();

	begin();
	add(0, 3 * page, 4 * page, page);
	add(0, 0, page, page);
	add(0, page, 3 * page, 2 * page);
	cr_expect_eq(covered_pages(), 4);
}

TT_TEST(exposure, gaps_inside_a_strided_tensor_do_not_count)
{
	uint64_t page = tdp_page_bytes();

	begin();
	add(0, 0, 8 * page, 4 * page);
	cr_expect_eq(covered_pages(), 4);
}

TT_TEST(exposure, broadcast_tensors_cover_what_they_touch)
{
	uint64_t page = tdp_page_bytes();

	begin();
	add(0, 0, 4, 100 * page);
	cr_expect_eq(covered_pages(), 1);
}

TT_TEST(exposure, gaps_of_packing_count_as_covered_and_larger_ones_do_not)
{
	uint64_t page = tdp_page_bytes();
	uint64_t unit = TDP_BUNDLE_ALIGN_BYTES;

	begin();
	for (uint64_t i = 0; i < 4; i++)
		add(0, i * unit, i * unit + 1, 1);
	add(0, 4 * unit, 2 * page, 2 * page - 4 * unit);
	cr_expect_eq(covered_pages(), 2);

	begin();
	add(0, 0, 1, 1);
	add(0, page + unit, 2 * page, page - unit);
	cr_expect_eq(covered_pages(), 1);
}

TT_TEST(exposure, segments_are_told_apart)
{
	uint64_t page = tdp_page_bytes();
	size_t position = 0;

	begin();
	add(2, 0, page, page);
	add(0, 0, 2 * page, 2 * page);
	add(2, page, 3 * page, 2 * page);
	tdd_exposure_sort(&exposure);
	cr_expect_eq(tdd_exposure_covered_bytes(&exposure, 0, &position), 2 * page);
	cr_expect_eq(tdd_exposure_covered_bytes(&exposure, 1, &position), 0);
	cr_expect_eq(tdd_exposure_covered_bytes(&exposure, 2, &position), 3 * page);
	tdd_exposure_deinit(&exposure);
}

TT_TEST(exposure, numbers_at_the_end_do_not_overflow)
{
	begin();
	add(0, UINT64_MAX - 10, UINT64_MAX - 1, UINT64_MAX);
	add(0, UINT64_MAX - 5, UINT64_MAX, UINT64_MAX);
	cr_expect_leq(covered_pages(), UINT64_MAX / tdp_page_bytes());
}
