/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any numbers as a layout. What the check lets through touches what it says, and gathering it out
 * of memory of exactly that size stays inside, as AddressSanitizer sees.
 */
#include "tests/fuzz/fuzz_layout.h"

#include <string.h>

#include "proto/tensor/dtype.h"
#include "proto/tensor/layout.h"
#include "proto/wire/limits.h"
#include "tests/fuzz/fuzz.h"

enum { NDIM_READ_MAX = TDP_NDIM_MAX + 2, MEMORY_MAX_BYTES = 1 << 16 };

struct input {
	struct tt_fuzz_layout head;
	int64_t shape[NDIM_READ_MAX];
	int64_t strides[NDIM_READ_MAX];
};

/* What the input is too short for is 0. */
static void input_read(const uint8_t *data, size_t size, struct input *input)
{
	size_t bytes;

	memset(input, 0, sizeof(*input));
	bytes = size < sizeof(input->head) ? size : sizeof(input->head);
	memcpy(&input->head, data, bytes);
	data += bytes;
	size -= bytes;
	input->head.ndim = (uint8_t)(input->head.ndim % NDIM_READ_MAX);
	bytes = input->head.ndim * sizeof(int64_t);
	bytes = size < bytes ? size : bytes;
	memcpy(input->shape, data, bytes);
	data += bytes;
	size -= bytes;
	bytes = input->head.ndim * sizeof(int64_t);
	memcpy(input->strides, data, size < bytes ? size : bytes);
}

static void expect_extent(const struct tdp_layout *layout, const struct tdp_extent *extent)
{
	bool is_padded = (layout->flags & TDP_LAYOUT_SUBBYTE_PADDED) != 0;
	uint64_t item_bytes = tdp_dtype_item_bytes(layout->dtype, is_padded);

	TT_FUZZ_EXPECT(layout->ndim <= TDP_NDIM_MAX);
	TT_FUZZ_EXPECT(extent->is_empty == (extent->element_count == 0));
	TT_FUZZ_EXPECT(extent->begin_bytes <= extent->end_bytes);
	TT_FUZZ_EXPECT(extent->nbytes <= INT64_MAX);
	if (item_bytes > 0)
		TT_FUZZ_EXPECT(extent->nbytes == extent->element_count * item_bytes);
	if (extent->is_compact)
		TT_FUZZ_EXPECT(extent->end_bytes - extent->begin_bytes == extent->nbytes);
}

static void gather(const struct tdp_layout *layout, int64_t begin, const struct tdp_extent *extent)
{
	uint64_t span = extent->end_bytes - extent->begin_bytes;
	unsigned char *source, *target;

	if (span > MEMORY_MAX_BYTES || extent->nbytes > MEMORY_MAX_BYTES)
		return;
	source = calloc(1, span ? span : 1);
	target = malloc(extent->nbytes ? extent->nbytes : 1);
	if (source != NULL && target != NULL)
		tdp_layout_gather(layout, source - begin, target);
	free(source);
	free(target);
}

static void expect_strides(const struct tdp_layout *layout)
{
	int64_t strides[TDP_NDIM_MAX];
	struct tdp_layout normal = *layout;
	struct tdp_extent extent, normal_extent;
	struct tdp_fault fault;
	int64_t begin, end, normal_begin, normal_end;

	if (tdp_layout_measure(layout, &begin, &end, &extent, &fault) != 0)
		return;
	tdp_layout_normal_strides(layout->ndim, layout->shape, layout->strides, strides);
	normal.strides = strides;
	TT_FUZZ_EXPECT(tdp_layout_measure(&normal, &normal_begin, &normal_end, &normal_extent,
					  &fault) == 0);
	TT_FUZZ_EXPECT(begin == normal_begin && end == normal_end);
	TT_FUZZ_EXPECT(extent.is_compact == normal_extent.is_compact);
	TT_FUZZ_EXPECT(extent.nbytes == normal_extent.nbytes);
	gather(layout, begin, &extent);
}

static void expect_dtype_words(struct tidl_dtype dtype)
{
	struct tidl_dtype parsed;
	char name[48];

	tdp_dtype_name(dtype, name, sizeof(name));
	if (tdp_dtype_check(dtype) != 0) {
		TT_FUZZ_EXPECT(tdp_dtype_parse(name, &parsed) != 0);
		return;
	}
	TT_FUZZ_EXPECT(tdp_dtype_parse(name, &parsed) == 0);
	TT_FUZZ_EXPECT(memcmp(&parsed, &dtype, sizeof(dtype)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input input;
	struct tdp_layout layout;
	struct tdp_extent extent;
	struct tdp_fault fault;
	int result;

	input_read(data, size, &input);
	layout = (struct tdp_layout){
		.dtype = {input.head.code, input.head.bits, input.head.lanes},
		.ndim = input.head.ndim,
		.shape = input.shape,
		.strides = input.head.has_strides ? input.strides : NULL,
		.byte_offset = input.head.byte_offset,
		.flags = input.head.flags,
	};
	expect_dtype_words(layout.dtype);
	result = tdp_layout_check(&layout, input.head.window_begin, input.head.window_end, &extent,
				  &fault);
	if (result == 0) {
		expect_extent(&layout, &extent);
		if (!extent.is_empty)
			TT_FUZZ_EXPECT(extent.begin_bytes >= input.head.window_begin &&
				       extent.end_bytes <= input.head.window_end);
	} else {
		TT_FUZZ_EXPECT(result == TIDL_ERR_DTYPE || result == TIDL_ERR_LAYOUT);
	}
	expect_strides(&layout);
	return 0;
}
