/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What memory a tensor touches, and the copy of any tensor into compact memory. Knows no segments
 * and maps nothing; every number may come from outside.
 */
#include "proto/tensor/layout.h"

#include <string.h>

#include "proto/base/checked.h"
#include "proto/tensor/dtype.h"
#include "proto/wire/limits.h"

__extension__ typedef __int128 layout_wide;

/* The elements touched, in strides' units from the first logical element. */
struct layout_span {
	layout_wide low;  /* <= 0 */
	layout_wide high; /* >= 0, of the last element */
};

static uint64_t layout_item_bytes(const struct tdp_layout *layout)
{
	return tdp_dtype_item_bytes(layout->dtype,
				    (layout->flags & TDP_LAYOUT_SUBBYTE_PADDED) != 0);
}

static int layout_check_form(const struct tdp_layout *layout, struct tdp_fault *fault)
{
	if (tdp_dtype_check(layout->dtype) != 0)
		return tdp_fault_set(fault, TIDL_ERR_DTYPE,
				     "data type (code %u, bits %u, lanes %u) is not known: use a "
				     "DLPack type in its regular width",
				     layout->dtype.code, layout->dtype.bits, layout->dtype.lanes);
	if (layout->ndim > TDP_NDIM_MAX)
		return tdp_fault_set(fault, TIDL_ERR_LAYOUT,
				     "%u dimensions are more than %d: reshape the tensor",
				     layout->ndim, TDP_NDIM_MAX);
	if (layout->ndim > 0 && layout->shape == NULL)
		return tdp_fault_set(fault, TIDL_ERR_LAYOUT,
				     "the shape is missing: give one extent for each dimension");
	for (uint32_t i = 0; i < layout->ndim; i++) {
		if (layout->shape[i] < 0)
			return tdp_fault_set(fault, TIDL_ERR_LAYOUT,
					     "dimension %u has the extent %lld: extents cannot be "
					     "negative",
					     i, (long long)layout->shape[i]);
	}
	return 0;
}

/*
 * Elements and bytes. Extents of 0 are left out of the overflow check but not excused by it: the
 * compact strides of an empty tensor have to be numbers too.
 */
static int layout_count(const struct tdp_layout *layout, struct tdp_extent *extent,
			struct tdp_fault *fault)
{
	uint64_t item_bytes = layout_item_bytes(layout);
	/* The strictest bound of all that is counted later: elements, bytes and bits. */
	uint64_t unit = item_bytes ? item_bytes : tdp_dtype_bits(layout->dtype);
	uint64_t count = 1;
	uint64_t size = 0;
	bool is_fitting = true;

	extent->is_empty = false;
	for (uint32_t i = 0; i < layout->ndim; i++) {
		if (layout->shape[i] == 0)
			extent->is_empty = true;
		else
			is_fitting = is_fitting && tdp_mul_u64(count, layout->shape[i], &count);
	}
	if (!is_fitting || !tdp_mul_u64(count, unit, &size) || size > INT64_MAX)
		return tdp_fault_set(fault, TIDL_ERR_LAYOUT,
				     "the shape has more elements than memory can hold: correct "
				     "its extents");
	extent->element_count = extent->is_empty ? 0 : count;
	extent->nbytes = item_bytes ? size : size / 8 + (size % 8 != 0);
	if (extent->is_empty)
		extent->nbytes = 0;
	return 0;
}

static bool layout_is_compact(const struct tdp_layout *layout)
{
	layout_wide expected = 1;

	if (layout->strides == NULL)
		return true;
	for (uint32_t i = layout->ndim; i-- > 0;) {
		if (layout->shape[i] != 1 && layout->strides[i] != expected)
			return false;
		expected *= layout->shape[i];
	}
	return true;
}

static layout_wide axis_step(const struct tdp_layout *layout, uint32_t axis)
{
	layout_wide stride = layout->strides[axis];

	return stride < 0 ? -stride : stride;
}

/* The axis of all not yet in @used that has the smallest step; ndim when there is none. */
static uint32_t layout_next_axis(const struct tdp_layout *layout, uint64_t used)
{
	uint32_t best = layout->ndim;

	for (uint32_t i = 0; i < layout->ndim; i++) {
		if ((used & UINT64_C(1) << i) != 0 || layout->shape[i] == 1)
			continue;
		if (best == layout->ndim || axis_step(layout, i) < axis_step(layout, best))
			best = i;
	}
	return best;
}

bool tdp_layout_is_dense(const struct tdp_layout *layout)
{
	layout_wide expected = 1;
	uint64_t used = 0;

	if (layout_is_compact(layout))
		return true;
	for (;;) {
		uint32_t axis = layout_next_axis(layout, used);

		if (axis == layout->ndim)
			return true;
		if (axis_step(layout, axis) != expected)
			return false;
		expected *= layout->shape[axis];
		used |= UINT64_C(1) << axis;
	}
}

/* False when the numbers leave the range of any address. Each product fits into 126 bits; the sums
 * are cut off long before they could grow beyond that. */
static bool layout_span_find(const struct tdp_layout *layout, uint64_t element_count,
			     struct layout_span *ret_span)
{
	struct layout_span span = {.low = 0, .high = 0};

	if (layout->strides == NULL) {
		ret_span->low = 0;
		ret_span->high = (layout_wide)element_count - 1;
		return true;
	}
	for (uint32_t i = 0; i < layout->ndim; i++) {
		layout_wide reach = (layout_wide)(layout->shape[i] - 1) * layout->strides[i];

		if (reach < 0)
			span.low += reach;
		else
			span.high += reach;
		if (span.low < INT64_MIN || span.high > INT64_MAX)
			return false;
	}
	*ret_span = span;
	return true;
}

/* Bytes touched, relative to the first logical element. Not for empty tensors. */
static int layout_reach(const struct tdp_layout *layout, const struct tdp_extent *extent,
			struct layout_span *ret_bytes, struct tdp_fault *fault)
{
	uint64_t item_bytes = layout_item_bytes(layout);
	struct layout_span span;

	if (item_bytes == 0) {
		if (!extent->is_compact)
			return tdp_fault_set(
				fault, TIDL_ERR_LAYOUT,
				"a packed type of less than a byte has no strides: make "
				"the tensor contiguous");
		ret_bytes->low = 0;
		ret_bytes->high = extent->nbytes;
		return 0;
	}
	if (!layout_span_find(layout, extent->element_count, &span))
		return tdp_fault_set(fault, TIDL_ERR_LAYOUT,
				     "the strides reach beyond any memory: correct them");
	ret_bytes->low = span.low * item_bytes;
	ret_bytes->high = (span.high + 1) * item_bytes;
	return 0;
}

/* Everything but where it lies. */
static int layout_survey(const struct tdp_layout *layout, struct tdp_extent *extent,
			 struct layout_span *ret_bytes, struct tdp_fault *fault)
{
	int result = layout_check_form(layout, fault);

	if (result == 0)
		result = layout_count(layout, extent, fault);
	if (result < 0)
		return result;
	extent->begin_bytes = 0;
	extent->end_bytes = 0;
	extent->is_compact = extent->is_empty || layout_is_compact(layout);
	if (extent->is_empty) {
		*ret_bytes = (struct layout_span){.low = 0, .high = 0};
		return 0;
	}
	return layout_reach(layout, extent, ret_bytes, fault);
}

int tdp_layout_check(const struct tdp_layout *layout, uint64_t window_begin, uint64_t window_end,
		     struct tdp_extent *ret_extent, struct tdp_fault *fault)
{
	struct tdp_extent extent = {0};
	struct layout_span bytes = {0};
	int result = layout_survey(layout, &extent, &bytes, fault);

	if (result < 0)
		return result;
	if (!extent.is_empty) {
		bytes.low += layout->byte_offset;
		bytes.high += layout->byte_offset;
		if (bytes.low < window_begin || bytes.high > window_end)
			return tdp_fault_set(fault, TIDL_ERR_LAYOUT,
					     "the tensor reaches beyond its memory, bytes %llu to "
					     "%llu: correct shape, strides or offset",
					     (unsigned long long)window_begin,
					     (unsigned long long)window_end);
		extent.begin_bytes = (uint64_t)bytes.low;
		extent.end_bytes = (uint64_t)bytes.high;
	}
	*ret_extent = extent;
	return 0;
}

int tdp_layout_measure(const struct tdp_layout *layout, int64_t *ret_begin_bytes,
		       int64_t *ret_end_bytes, struct tdp_extent *ret_extent,
		       struct tdp_fault *fault)
{
	struct tdp_extent extent = {0};
	struct layout_span bytes = {0};
	int result = layout_survey(layout, &extent, &bytes, fault);

	if (result < 0)
		return result;
	if (bytes.low < INT64_MIN || bytes.high > INT64_MAX || bytes.high - bytes.low > INT64_MAX)
		return tdp_fault_set(fault, TIDL_ERR_LAYOUT,
				     "the strides reach beyond any memory: correct them");
	extent.end_bytes = (uint64_t)(bytes.high - bytes.low);
	*ret_begin_bytes = (int64_t)bytes.low;
	*ret_end_bytes = (int64_t)bytes.high;
	*ret_extent = extent;
	return 0;
}

/* ---- strides ---- */

void tdp_layout_compact_strides(uint32_t ndim, const int64_t *shape, int64_t *ret_strides)
{
	int64_t stride = 1;

	for (uint32_t i = ndim; i-- > 0;) {
		ret_strides[i] = stride;
		/* An extent of 0 counts as 1, as in NumPy and torch. */
		if (shape[i] > 1 && __builtin_mul_overflow(stride, shape[i], &stride))
			stride = INT64_MAX;
	}
}

void tdp_layout_normal_strides(uint32_t ndim, const int64_t *shape, const int64_t *strides,
			       int64_t *ret_strides)
{
	bool is_empty = false;

	for (uint32_t i = 0; i < ndim; i++)
		is_empty = is_empty || shape[i] == 0;
	tdp_layout_compact_strides(ndim, shape, ret_strides);
	if (is_empty || strides == NULL)
		return;
	for (uint32_t i = 0; i < ndim; i++) {
		if (shape[i] != 1)
			ret_strides[i] = strides[i];
	}
}

/* ---- gather ---- */

/* A layout in bytes, without dimensions of size 1, and with neighbours joined where one runs on
 * into the other. */
struct gather_plan {
	uint32_t ndim;
	int64_t shape[TDP_NDIM_MAX];
	int64_t strides[TDP_NDIM_MAX]; /* bytes */
	size_t item_bytes;
};

static void gather_plan_make(const struct tdp_layout *layout, size_t item_bytes,
			     struct gather_plan *plan)
{
	plan->ndim = 0;
	plan->item_bytes = item_bytes;
	for (uint32_t i = 0; i < layout->ndim; i++) {
		int64_t extent = layout->shape[i];
		int64_t stride;
		uint32_t last;

		if (extent == 1)
			continue;
		stride = layout->strides[i] * (int64_t)item_bytes;
		last = plan->ndim - 1;
		if (plan->ndim > 0 && plan->strides[last] == stride * extent) {
			plan->shape[last] *= extent;
			plan->strides[last] = stride;
			continue;
		}
		plan->shape[plan->ndim] = extent;
		plan->strides[plan->ndim] = stride;
		plan->ndim++;
	}
}

/* Fixed sizes let the compiler turn each copy into one load and one store, alignment or not. */
#define GATHER_ROW(size)                                                                           \
	for (int64_t i = 0; i < count; i++, target += (size), source += stride)                    \
	memcpy(target, source, (size))

static void gather_row(const struct gather_plan *plan, const unsigned char *source,
		       unsigned char *target)
{
	int64_t count = plan->shape[plan->ndim - 1];
	int64_t stride = plan->strides[plan->ndim - 1];

	if (stride == (int64_t)plan->item_bytes) {
		memcpy(target, source, (size_t)count * plan->item_bytes);
		return;
	}
	switch (plan->item_bytes) {
	case 1:
		GATHER_ROW(1);
		break;
	case 2:
		GATHER_ROW(2);
		break;
	case 4:
		GATHER_ROW(4);
		break;
	case 8:
		GATHER_ROW(8);
		break;
	case 16:
		GATHER_ROW(16);
		break;
	default:
		GATHER_ROW(plan->item_bytes);
		break;
	}
}

/* Row after row, the outer dimensions counting like an odometer. */
static void gather_rows(const struct gather_plan *plan, const unsigned char *source,
			unsigned char *target)
{
	size_t row_bytes = (size_t)plan->shape[plan->ndim - 1] * plan->item_bytes;
	int64_t index[TDP_NDIM_MAX] = {0};
	int64_t offset = 0;

	for (;;) {
		uint32_t dimension = plan->ndim - 1;

		gather_row(plan, source + offset, target);
		target += row_bytes;
		for (;;) {
			if (dimension-- == 0)
				return;
			offset += plan->strides[dimension];
			if (++index[dimension] < plan->shape[dimension])
				break;
			offset -= plan->strides[dimension] * plan->shape[dimension];
			index[dimension] = 0;
		}
	}
}

void tdp_layout_gather(const struct tdp_layout *layout, const void *source, void *target)
{
	uint64_t item_bytes = layout_item_bytes(layout);
	struct tdp_fault fault;
	struct tdp_extent extent = {0};
	struct gather_plan plan;

	if (layout_check_form(layout, &fault) != 0 || layout_count(layout, &extent, &fault) != 0 ||
	    extent.is_empty)
		return;
	if (item_bytes == 0 || layout_is_compact(layout)) {
		memcpy(target, source, extent.nbytes);
		return;
	}
	gather_plan_make(layout, item_bytes, &plan);
	gather_rows(&plan, source, target);
}
