/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <string.h>

#include "proto/tensor/layout.h"
#include "proto/wire/limits.h"
#include "tests/support/leak.h"

#define I64(...) ((const int64_t[]){__VA_ARGS__})

#define F32   ((struct tidl_dtype){2, 32, 1})
#define U8    ((struct tidl_dtype){1, 8, 1})
#define C128  ((struct tidl_dtype){5, 128, 1})
#define FP4   ((struct tidl_dtype){17, 4, 1})
#define FP4X2 ((struct tidl_dtype){17, 4, 2})
#define FP6   ((struct tidl_dtype){15, 6, 1})

struct layout_case {
	const char *what;
	struct tdp_layout layout;
	uint64_t window_begin, window_end;
	int code;
	struct tdp_extent extent;
};

static const int64_t high_rank[TDP_NDIM_MAX] = {[0] = 2, [1 ... 62] = 1, [63] = 3};

static const struct layout_case good_cases[] = {
	{"scalar", {F32, 0, NULL, NULL, 0, 0}, 0, 4, 0, {1, 4, 0, 4, false, true}},
	{"scalar with arrays",
	 {F32, 0, I64(9), I64(9), 8, 0},
	 8,
	 12,
	 0,
	 {1, 4, 8, 12, false, true}},
	{"vector", {F32, 1, I64(5), NULL, 0, 0}, 0, 20, 0, {5, 20, 0, 20, false, true}},
	{"matrix", {F32, 2, I64(3, 4), I64(4, 1), 0, 0}, 0, 48, 0, {12, 48, 0, 48, false, true}},
	{"transposed",
	 {F32, 2, I64(4, 3), I64(1, 4), 0, 0},
	 0,
	 48,
	 0,
	 {12, 48, 0, 48, false, false}},
	{"every other", {F32, 1, I64(3), I64(2), 4, 0}, 0, 24, 0, {3, 12, 4, 24, false, false}},
	{"reversed", {F32, 1, I64(3), I64(-1), 8, 0}, 0, 12, 0, {3, 12, 0, 12, false, false}},
	{"reversed in the middle of a window",
	 {F32, 2, I64(2, 3), I64(-3, -1), 4096 + 20, 0},
	 4096,
	 8192,
	 0,
	 {6, 24, 4096, 4120, false, false}},
	{"broadcast",
	 {F32, 2, I64(1000, 2), I64(0, 1), 0, 0},
	 0,
	 8,
	 0,
	 {2000, 8000, 0, 8, false, false}},
	{"broadcast without end",
	 {U8, 2, I64(INT64_MAX, 1), I64(0, 0), 0, 0},
	 0,
	 1,
	 0,
	 {INT64_MAX, INT64_MAX, 0, 1, false, false}},
	{"overlapping windows",
	 {F32, 2, I64(3, 2), I64(1, 1), 0, 0},
	 0,
	 16,
	 0,
	 {6, 24, 0, 16, false, false}},
	{"stride of a size-1 dimension",
	 {F32, 3, I64(1, 3, 1), I64(INT64_MIN, 1, INT64_MAX), 0, 0},
	 0,
	 12,
	 0,
	 {3, 12, 0, 12, false, true}},
	{"unaligned", {C128, 1, I64(2), I64(1), 3, 0}, 0, 35, 0, {2, 32, 3, 35, false, true}},
	{"lanes", {{2, 32, 4}, 1, I64(3), I64(2), 0, 0}, 0, 80, 0, {3, 48, 0, 80, false, false}},
	{"high rank",
	 {U8, TDP_NDIM_MAX, high_rank, NULL, 0, 0},
	 0,
	 6,
	 0,
	 {6, 6, 0, 6, false, true}},
	{"empty", {F32, 1, I64(0), NULL, 0, 0}, 0, 0, 0, {0, 0, 0, 0, true, true}},
	{"empty anywhere with any strides",
	 {F32, 3, I64(4, 0, 5), I64(INT64_MIN, 77, INT64_MAX), UINT64_MAX, 0},
	 10,
	 5,
	 0,
	 {0, 0, 0, 0, true, true}},
	{"packed", {FP4, 2, I64(3, 3), NULL, 2, 0}, 0, 7, 0, {9, 5, 2, 7, false, true}},
	{"packed with strides",
	 {FP6, 2, I64(2, 2), I64(2, 1), 0, 0},
	 0,
	 3,
	 0,
	 {4, 3, 0, 3, false, true}},
	{"packed single", {FP4, 1, I64(1), I64(5), 0, 0}, 0, 1, 0, {1, 1, 0, 1, false, true}},
	{"packed empty", {FP4, 2, I64(0, 3), I64(1, 1), 0, 0}, 0, 0, 0, {0, 0, 0, 0, true, true}},
	{"packed pairs have strides",
	 {FP4X2, 2, I64(2, 2), I64(1, 2), 0, 0},
	 0,
	 4,
	 0,
	 {4, 4, 0, 4, false, false}},
	{"padded",
	 {FP4, 1, I64(3), I64(-2), 4, TDP_LAYOUT_SUBBYTE_PADDED},
	 0,
	 5,
	 0,
	 {3, 3, 0, 5, false, false}},
	{"flags of others",
	 {F32, 1, I64(2), NULL, 0, ~TDP_LAYOUT_SUBBYTE_PADDED},
	 0,
	 8,
	 0,
	 {2, 8, 0, 8, false, true}},
	{"padded flag on whole bytes",
	 {F32, 1, I64(2), NULL, 0, 4},
	 0,
	 8,
	 0,
	 {2, 8, 0, 8, false, true}},
	{"the largest",
	 {U8, 1, I64(INT64_MAX), I64(1), 1ull << 63, 0},
	 1ull << 63,
	 UINT64_MAX,
	 0,
	 {INT64_MAX, INT64_MAX, 1ull << 63, UINT64_MAX, false, true}},
};

static const struct layout_case bad_cases[] = {
	{"opaque", {{3, 64, 1}, 0, NULL, NULL, 0, 0}, 0, 99, TIDL_ERR_DTYPE, {0}},
	{"no lanes", {{2, 32, 0}, 0, NULL, NULL, 0, 0}, 0, 99, TIDL_ERR_DTYPE, {0}},
	{"wrong width", {{2, 33, 1}, 0, NULL, NULL, 0, 0}, 0, 99, TIDL_ERR_DTYPE, {0}},
	{"bad type of an empty tensor",
	 {{99, 8, 1}, 1, I64(0), NULL, 0, 0},
	 0,
	 99,
	 TIDL_ERR_DTYPE,
	 {0}},
	{"rank", {F32, TDP_NDIM_MAX + 1, I64(1), NULL, 0, 0}, 0, 99, TIDL_ERR_LAYOUT, {0}},
	{"huge rank", {F32, UINT32_MAX, I64(1), NULL, 0, 0}, 0, 99, TIDL_ERR_LAYOUT, {0}},
	{"no shape", {F32, 1, NULL, NULL, 0, 0}, 0, 99, TIDL_ERR_LAYOUT, {0}},
	{"negative extent", {F32, 2, I64(3, -1), NULL, 0, 0}, 0, 99, TIDL_ERR_LAYOUT, {0}},
	{"negative and zero extents",
	 {F32, 2, I64(0, INT64_MIN), NULL, 0, 0},
	 0,
	 99,
	 TIDL_ERR_LAYOUT,
	 {0}},
	{"one byte too long", {F32, 1, I64(5), NULL, 0, 0}, 0, 19, TIDL_ERR_LAYOUT, {0}},
	{"one byte too early", {F32, 1, I64(5), NULL, 4095, 0}, 4096, 8192, TIDL_ERR_LAYOUT, {0}},
	{"offset beyond", {F32, 0, NULL, NULL, UINT64_MAX, 0}, 0, UINT64_MAX, TIDL_ERR_LAYOUT, {0}},
	{"backwards out", {F32, 1, I64(3), I64(-1), 7, 0}, 0, 99, TIDL_ERR_LAYOUT, {0}},
	{"one stride out", {F32, 2, I64(2, 2), I64(100, 1), 0, 0}, 0, 407, TIDL_ERR_LAYOUT, {0}},
	{"product overflows",
	 {U8, 2, I64(1ll << 32, 1ll << 32), NULL, 0, 0},
	 0,
	 UINT64_MAX,
	 TIDL_ERR_LAYOUT,
	 {0}},
	{"product overflows to something small",
	 {U8, 2, I64((1ll << 62) + 1, 4), NULL, 0, 0},
	 0,
	 UINT64_MAX,
	 TIDL_ERR_LAYOUT,
	 {0}},
	{"product beyond signed",
	 {U8, 2, I64(1ll << 32, 1ll << 31), NULL, 0, 0},
	 0,
	 UINT64_MAX,
	 TIDL_ERR_LAYOUT,
	 {0}},
	{"bytes overflow",
	 {F32, 1, I64(1ll << 62), NULL, 0, 0},
	 0,
	 UINT64_MAX,
	 TIDL_ERR_LAYOUT,
	 {0}},
	{"bytes overflow by broadcast",
	 {F32, 1, I64(1ll << 62), I64(0), 0, 0},
	 0,
	 UINT64_MAX,
	 TIDL_ERR_LAYOUT,
	 {0}},
	{"bits overflow",
	 {FP4, 1, I64(INT64_MAX), NULL, 0, 0},
	 0,
	 UINT64_MAX,
	 TIDL_ERR_LAYOUT,
	 {0}},
	{"empty but huge",
	 {U8, 3, I64(1ll << 32, 0, 1ll << 32), NULL, 0, 0},
	 0,
	 0,
	 TIDL_ERR_LAYOUT,
	 {0}},
	{"strides reach out",
	 {U8, 2, I64(2, 2), I64(INT64_MAX, INT64_MAX), 0, 0},
	 0,
	 UINT64_MAX,
	 TIDL_ERR_LAYOUT,
	 {0}},
	{"strides reach back",
	 {U8, 2, I64(2, 2), I64(INT64_MIN, INT64_MIN), 1ull << 63, 0},
	 0,
	 UINT64_MAX,
	 TIDL_ERR_LAYOUT,
	 {0}},
	{"strides reach out in bytes",
	 {C128, 1, I64(2), I64(INT64_MAX), 0, 0},
	 0,
	 UINT64_MAX,
	 TIDL_ERR_LAYOUT,
	 {0}},
	{"reach and offset overflow",
	 {U8, 1, I64(2), I64(INT64_MAX), UINT64_MAX, 0},
	 0,
	 UINT64_MAX,
	 TIDL_ERR_LAYOUT,
	 {0}},
	{"largest strides on every dimension",
	 {U8, 4, I64(3, 3, 3, 3), I64(INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN), 0, 0},
	 0,
	 UINT64_MAX,
	 TIDL_ERR_LAYOUT,
	 {0}},
	{"packed and strided", {FP4, 2, I64(2, 2), I64(1, 2), 0, 0}, 0, 99, TIDL_ERR_LAYOUT, {0}},
	{"packed and broadcast", {FP6, 1, I64(4), I64(0), 0, 0}, 0, 99, TIDL_ERR_LAYOUT, {0}},
	{"packed, rounded up once", {FP4, 1, I64(5), NULL, 0, 0}, 0, 2, TIDL_ERR_LAYOUT, {0}},
	{"no window", {U8, 0, NULL, NULL, 0, 0}, 0, 0, TIDL_ERR_LAYOUT, {0}},
	{"window upside down", {U8, 0, NULL, NULL, 5, 0}, 5, 4, TIDL_ERR_LAYOUT, {0}},
};

static void expect_extent(const char *what, struct tdp_extent actual, struct tdp_extent expected)
{
	cr_assert_eq(actual.element_count, expected.element_count, "%s", what);
	cr_assert_eq(actual.nbytes, expected.nbytes, "%s", what);
	cr_assert_eq(actual.begin_bytes, expected.begin_bytes, "%s", what);
	cr_assert_eq(actual.end_bytes, expected.end_bytes, "%s", what);
	cr_assert_eq(actual.is_empty, expected.is_empty, "%s", what);
	cr_assert_eq(actual.is_compact, expected.is_compact, "%s", what);
}

TT_TEST(layout, check_takes_what_lies_inside)
{
	for (size_t i = 0; i < TDP_ARRAY_LENGTH(good_cases); i++) {
		const struct layout_case *c = &good_cases[i];
		struct tdp_fault fault = {0};
		struct tdp_extent extent;
		int result = tdp_layout_check(&c->layout, c->window_begin, c->window_end, &extent,
					      &fault);

		cr_assert_eq(result, 0, "%s: %s", c->what, fault.text);
		expect_extent(c->what, extent, c->extent);
	}
}

TT_TEST(layout, check_refuses_the_rest)
{
	for (size_t i = 0; i < TDP_ARRAY_LENGTH(bad_cases); i++) {
		const struct layout_case *c = &bad_cases[i];
		struct tdp_extent extent = {.element_count = 7};
		struct tdp_fault fault = {0};
		int result = tdp_layout_check(&c->layout, c->window_begin, c->window_end, &extent,
					      &fault);

		cr_assert_eq(result, c->code, "%s", c->what);
		cr_assert_eq(fault.code, c->code, "%s", c->what);
		cr_assert_not_null(strchr(fault.text, ':'), "%s", c->what);
		cr_assert_eq(extent.element_count, 7, "%s: untouched on failure", c->what);
	}
}

TT_TEST(layout, measure_is_relative_to_the_first_element)
{
	struct tdp_layout layout = {F32, 2, I64(3, 2), I64(-10, 3), 12345, 0};
	struct tdp_fault fault;
	struct tdp_extent extent;
	int64_t begin, end;

	cr_assert_eq(tdp_layout_measure(&layout, &begin, &end, &extent, &fault), 0);
	cr_assert_eq(begin, -80);
	cr_assert_eq(end, 16);
	expect_extent("measure", extent, (struct tdp_extent){6, 24, 0, 96, false, false});
}

TT_TEST(layout, measure_of_empty_and_packed)
{
	struct tdp_layout empty = {F32, 1, I64(0), I64(-5), 8, 0};
	struct tdp_layout packed = {FP4, 1, I64(7), NULL, 8, 0};
	struct tdp_fault fault;
	struct tdp_extent extent;
	int64_t begin, end;

	cr_assert_eq(tdp_layout_measure(&empty, &begin, &end, &extent, &fault), 0);
	cr_assert(begin == 0 && end == 0 && extent.is_empty);
	cr_assert_eq(tdp_layout_measure(&packed, &begin, &end, &extent, &fault), 0);
	cr_assert(begin == 0 && end == 4 && extent.nbytes == 4);
}

TT_TEST(layout, measure_refuses_what_no_memory_holds)
{
	const struct tdp_layout layouts[] = {
		{C128, 1, I64(2), I64(INT64_MAX), 0, 0},
		{U8, 1, I64(2), I64(INT64_MAX), 0, 0},
		{U8, 2, I64(2, 2), I64(INT64_MAX - 1, -2), 0, 0},
		{U8, 1, I64(-1), NULL, 0, 0},
		{FP4, 1, I64(2), I64(2), 0, 0},
	};

	for (size_t i = 0; i < TDP_ARRAY_LENGTH(layouts); i++) {
		int64_t begin = 7, end = 7;
		struct tdp_extent extent;
		struct tdp_fault fault;

		cr_assert_eq(tdp_layout_measure(&layouts[i], &begin, &end, &extent, &fault),
			     TIDL_ERR_LAYOUT, "%zu", i);
		cr_assert(begin == 7 && end == 7);
	}
}

static void expect_strides(const int64_t *actual, const int64_t *expected, uint32_t ndim)
{
	for (uint32_t i = 0; i < ndim; i++)
		cr_assert_eq(actual[i], expected[i], "dimension %u: %lld", i, (long long)actual[i]);
}

TT_TEST(layout, compact_strides)
{
	int64_t strides[4];

	tdp_layout_compact_strides(0, NULL, strides);
	tdp_layout_compact_strides(3, I64(2, 3, 4), strides);
	expect_strides(strides, I64(12, 4, 1), 3);
	tdp_layout_compact_strides(3, I64(2, 1, 1), strides);
	expect_strides(strides, I64(1, 1, 1), 3);
	tdp_layout_compact_strides(3, I64(3, 0, 5), strides);
	expect_strides(strides, I64(5, 5, 1), 3);
	/* Not from a checked layout, but no reason for undefined behaviour. */
	tdp_layout_compact_strides(3, I64(2, 1ll << 40, 1ll << 40), strides);
	expect_strides(strides, I64(INT64_MAX, 1ll << 40, 1), 3);
}

TT_TEST(layout, normal_strides)
{
	int64_t strides[4];

	tdp_layout_normal_strides(3, I64(2, 1, 3), I64(-7, 99, 2), strides);
	expect_strides(strides, I64(-7, 3, 2), 3);
	tdp_layout_normal_strides(2, I64(4, 0), I64(77, 78), strides);
	expect_strides(strides, I64(1, 1), 2);
	tdp_layout_normal_strides(2, I64(4, 5), NULL, strides);
	expect_strides(strides, I64(5, 1), 2);
	tdp_layout_normal_strides(1, I64(1), I64(0), strides);
	expect_strides(strides, I64(1), 1);
}
