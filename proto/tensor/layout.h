/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDP_TENSOR_LAYOUT_H
#define TDP_TENSOR_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "include/tidl/tensor.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

/* DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED; the only DLPack flag that belongs to the layout. */
#define TDP_LAYOUT_SUBBYTE_PADDED (1u << 2)

/* Where the elements of a tensor lie inside some memory. Borrows its arrays. */
struct tdp_layout {
	struct tidl_dtype dtype;
	uint32_t ndim;
	const int64_t *shape;	/* elements; may be NULL when ndim is 0 */
	const int64_t *strides; /* elements, may be negative or 0; NULL: compact row-major */
	uint64_t byte_offset;	/* of the first logical element from the memory's start */
	uint32_t flags;		/* TDP_LAYOUT_SUBBYTE_PADDED; other bits are ignored */
};

/* What a checked layout touches. */
struct tdp_extent {
	uint64_t element_count;
	uint64_t nbytes; /* element_count x element size, packed sub-byte types rounded up once */
	uint64_t begin_bytes; /* first byte touched, from the memory's start */
	uint64_t end_bytes;   /* one behind the last byte touched; equal to begin when empty */
	bool is_empty;	      /* no elements: touches nothing, needs no memory */
	bool is_compact; /* row-major without gaps (strides of size-1 dimensions do not count) */
};

/*
 * The one check of a layout, used by both sides on everything that came from outside: known dtype,
 * rank, extents, and every byte touched within [@window_begin, @window_end). Nothing overflows
 * whatever the numbers. For an empty tensor the window and the strides do not matter.
 *
 * Packed sub-byte types must be compact: DLPack defines no strides for them.
 *
 * Returns 0, or TIDL_ERR_DTYPE, TIDL_ERR_LAYOUT with the reason in @fault.
 */
int tdp_layout_check(const struct tdp_layout *layout, uint64_t window_begin, uint64_t window_end,
		     struct tdp_extent *ret_extent, struct tdp_fault *fault) TDP_MUST_CHECK;

/* The same without a window: for memory whose bounds nobody knows (a foreign DLPack tensor). Here
 * begin_bytes and end_bytes are relative to the first logical element and returned as signed. */
int tdp_layout_measure(const struct tdp_layout *layout, int64_t *ret_begin_bytes,
		       int64_t *ret_end_bytes, struct tdp_extent *ret_extent,
		       struct tdp_fault *fault) TDP_MUST_CHECK;

/*
 * Does a checked tensor touch every byte between its first and its last one, just once? True for
 * row-major memory and for permutations and reversals of it.
 */
bool tdp_layout_is_dense(const struct tdp_layout *layout);

/* Compact row-major strides; for size-1 dimensions and empty tensors too. @ret_strides holds ndim.
 */
void tdp_layout_compact_strides(uint32_t ndim, const int64_t *shape, int64_t *ret_strides);

/*
 * The strides to hand to others: those given, but the compact value for size-1 dimensions and for
 * empty tensors, where strict consumers stumble over anything else.
 */
void tdp_layout_normal_strides(uint32_t ndim, const int64_t *shape, const int64_t *strides,
			       int64_t *ret_strides);

/*
 * Copy a tensor with any strides into compact row-major memory. @source points to the first logical
 * element, needs no alignment and must be checked; @target holds extent.nbytes bytes.
 */
void tdp_layout_gather(const struct tdp_layout *layout, const void *source, void *target);

#endif
