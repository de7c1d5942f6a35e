/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small random layouts against brute force: visit every element, note what it touches, copy it.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/tensor/dtype.h"
#include "proto/tensor/layout.h"
#include "tests/support/leak.h"

enum { ROUNDS = 60000, NDIM = 5, MEMORY_BYTES = 1 << 16 };

struct sample {
	struct tdp_layout layout;
	int64_t shape[NDIM];
	int64_t strides[NDIM];
};

/* What brute force finds out. */
struct truth {
	uint64_t count;
	int64_t begin, end; /* bytes, relative to the first element */
	bool is_compact;
};

static int64_t random_between(int64_t low, int64_t high)
{
	return low + random() % (high - low + 1);
}

static struct tidl_dtype random_dtype(void)
{
	static const struct tidl_dtype dtypes[] = {
		{1, 8, 1},  {2, 16, 1}, {2, 32, 1},  {2, 64, 1}, {5, 128, 1}, {1, 8, 3},
		{2, 32, 3}, {17, 4, 2}, {5, 128, 2}, {17, 4, 1}, {15, 6, 1},  {15, 6, 4},
	};

	return dtypes[random_between(0, TDP_ARRAY_LENGTH(dtypes) - 1)];
}

static void random_strides(struct sample *sample)
{
	uint32_t ndim = sample->layout.ndim;

	tdp_layout_compact_strides(ndim, sample->shape, sample->strides);
	for (uint32_t i = 0; i < ndim; i++) {
		switch (random_between(0, 5)) {
		case 0:
			sample->strides[i] = random_between(-40, 40);
			break;
		case 1:
			sample->strides[i] = -sample->strides[i];
			break;
		case 2: {
			/* Swap with another dimension: a permuted view. */
			int64_t other = random_between(0, (int64_t)ndim - 1);
			int64_t stride = sample->strides[i];

			sample->strides[i] = sample->strides[other];
			sample->strides[other] = stride;
			break;
		}
		default:
			break;
		}
	}
}

static void random_sample(struct sample *sample)
{
	memset(sample, 0, sizeof(*sample));
	sample->layout.dtype = random_dtype();
	sample->layout.ndim = (uint32_t)random_between(0, NDIM);
	sample->layout.flags = random_between(0, 3) == 0 ? TDP_LAYOUT_SUBBYTE_PADDED : 0;
	for (uint32_t i = 0; i < sample->layout.ndim; i++)
		sample->shape[i] = random_between(random_between(0, 9) == 0 ? 0 : 1, 4);
	random_strides(sample);
	sample->layout.shape = sample->shape;
	sample->layout.strides = random_between(0, 4) == 0 ? NULL : sample->strides;
}

/* The offset of logical element @number, in elements, and true while there is one. */
static bool element_find(const struct sample *sample, uint64_t number, int64_t *ret_offset)
{
	int64_t compact[NDIM];
	const int64_t *strides = sample->layout.strides;
	int64_t offset = 0;

	tdp_layout_compact_strides(sample->layout.ndim, sample->shape, compact);
	for (uint32_t i = sample->layout.ndim; i-- > 0;) {
		if (sample->shape[i] == 0)
			return false;
		offset += (int64_t)(number % (uint64_t)sample->shape[i]) *
			  (strides ? strides[i] : compact[i]);
		number /= (uint64_t)sample->shape[i];
	}
	*ret_offset = offset;
	return number == 0;
}

static struct truth sample_truth(const struct sample *sample, int64_t item_bytes)
{
	struct truth truth = {.is_compact = true};
	int64_t offset;

	while (element_find(sample, truth.count, &offset)) {
		int64_t begin = offset * item_bytes;

		if (truth.count == 0 || begin < truth.begin)
			truth.begin = begin;
		if (truth.count == 0 || begin + item_bytes > truth.end)
			truth.end = begin + item_bytes;
		truth.is_compact = truth.is_compact && offset == (int64_t)truth.count;
		truth.count++;
	}
	return truth;
}

static void compare_packed(const struct sample *sample, const struct truth *truth)
{
	uint64_t bits = truth->count * tdp_dtype_bits(sample->layout.dtype);
	struct tdp_extent extent;
	struct tdp_fault fault;
	int result = tdp_layout_check(&sample->layout, 0, MEMORY_BYTES, &extent, &fault);

	if (truth->count > 0 && !truth->is_compact) {
		cr_assert_eq(result, TIDL_ERR_LAYOUT);
		return;
	}
	cr_assert_eq(result, 0);
	cr_assert_eq(extent.element_count, truth->count);
	cr_assert_eq(extent.nbytes, (bits + 7) / 8);
	cr_assert_eq(extent.end_bytes, (bits + 7) / 8);
}

/* The window that just fits is taken; one byte less on either side is not. */
static void compare_window(struct sample *sample, const struct truth *truth)
{
	const int64_t base = 1 << 20;
	uint64_t begin = (uint64_t)(base + truth->begin);
	uint64_t end = (uint64_t)(base + truth->end);
	struct tdp_extent extent;
	struct tdp_fault fault;

	sample->layout.byte_offset = (uint64_t)base;
	cr_assert_eq(tdp_layout_check(&sample->layout, begin, end, &extent, &fault), 0);
	cr_assert_eq(extent.element_count, truth->count);
	cr_assert_eq(extent.is_compact, truth->count == 0 || truth->is_compact);
	cr_assert_eq(extent.is_empty, truth->count == 0);
	if (truth->count > 0) {
		cr_assert_eq(extent.begin_bytes, begin);
		cr_assert_eq(extent.end_bytes, end);
		cr_assert_eq(tdp_layout_check(&sample->layout, begin + 1, end, &extent, &fault),
			     TIDL_ERR_LAYOUT);
		cr_assert_eq(tdp_layout_check(&sample->layout, begin, end - 1, &extent, &fault),
			     TIDL_ERR_LAYOUT);
	}
}

static void compare_measure(const struct sample *sample, const struct truth *truth)
{
	struct tdp_extent extent;
	struct tdp_fault fault;
	int64_t begin, end;

	cr_assert_eq(tdp_layout_measure(&sample->layout, &begin, &end, &extent, &fault), 0);
	cr_assert_eq(begin, truth->begin);
	cr_assert_eq(end, truth->end);
}

static void compare_gather(const struct sample *sample, const struct truth *truth, size_t item)
{
	static unsigned char memory[MEMORY_BYTES];
	size_t nbytes = truth->count * item;
	/* Odd on purpose: no alignment is promised. */
	unsigned char *source = memory + MEMORY_BYTES / 2 + 1;
	unsigned char *actual = malloc(nbytes + 1);

	for (size_t i = 0; i < MEMORY_BYTES; i++)
		memory[i] = (unsigned char)(i * 31 + (i >> 8) * 7);
	actual[nbytes] = 0xa5;
	tdp_layout_gather(&sample->layout, source, actual);
	cr_assert_eq(actual[nbytes], 0xa5);
	for (uint64_t i = 0; i < truth->count; i++) {
		int64_t offset = 0;

		(void)element_find(sample, i, &offset);
		cr_assert_eq(memcmp(actual + i * item, source + offset * (int64_t)item, item), 0,
			     "element %llu", (unsigned long long)i);
	}
	free(actual);
}

TT_TEST(layout_random, agrees_with_brute_force)
{
	unsigned int packed = 0, compact = 0, empty = 0;

	srandom(1);
	for (int round = 0; round < ROUNDS; round++) {
		struct sample sample;
		struct truth truth;
		uint64_t item_bytes;

		random_sample(&sample);
		item_bytes = tdp_dtype_item_bytes(sample.layout.dtype,
						  sample.layout.flags == TDP_LAYOUT_SUBBYTE_PADDED);
		truth = sample_truth(&sample, (int64_t)item_bytes);
		compact += truth.is_compact;
		empty += truth.count == 0;
		if (item_bytes == 0) {
			packed++;
			compare_packed(&sample, &truth);
			continue;
		}
		compare_measure(&sample, &truth);
		compare_window(&sample, &truth);
		if (round % 20 == 0)
			compare_gather(&sample, &truth, item_bytes);
	}
	cr_assert(packed > 1000 && compact > 1000 && compact < ROUNDS / 2 + packed && empty > 1000);
}

TT_TEST(layout_random, gather_copies_packed_bytes_as_they_are)
{
	static const int64_t shape[] = {5};
	const struct tdp_layout layout = {{17, 4, 1}, 1, shape, NULL, 0, 0};
	unsigned char target[4] = {0, 0, 0, 0x77};

	tdp_layout_gather(&layout, "\x12\x34\x56\x78", target);
	cr_assert_eq(memcmp(target, "\x12\x34\x56\x77", 4), 0);
}

TT_TEST(layout_random, gather_of_nothing_touches_nothing)
{
	static const int64_t shape[] = {3, 0}, strides[] = {1, 1};
	const struct tdp_layout layout = {{2, 32, 1}, 2, shape, strides, 0, 0};

	tdp_layout_gather(&layout, NULL, NULL);
}
