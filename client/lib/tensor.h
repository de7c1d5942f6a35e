/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_TENSOR_H
#define TDC_TENSOR_H

#include <stdatomic.h>
#include <stdint.h>

#include "client/lib/origin.h"
#include "include/tidl/tensor.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

/*
 * One description over mapped memory. Holds what it came with; the last reference, a user's or an
 * export's, lets go of it. Constant once made, but for `refs`.
 */
struct tidl_tensor {
	atomic_size_t refs;
	struct tdc_origin *origin;
	struct tdc_segment *segment; /* one of the origin's, which keeps it; NULL: empty */
	void *data;		     /* first element; NULL: empty */
	struct tidl_dtype dtype;
	uint32_t ndim;
	uint32_t flags; /* DLPack's, of the layout */
	uint64_t nbytes;
	const char *key; /* in a bundle; NULL: of none */
	int64_t *shape;
	int64_t *strides;
	int64_t extents[]; /* shape, strides, then the key's text */
};

/* What a tensor is made from. Everything is copied. */
struct tdc_tensor_spec {
	struct tidl_dtype dtype;
	uint32_t ndim;
	const int64_t *shape;
	const int64_t *strides; /* NULL: compact row-major */
	uint32_t flags;
	uint64_t nbytes;
	const char *key; /* NULL: none */
};

/* One reference, and one to @origin; no memory yet. */
int tdc_tensor_new(struct tdc_origin *origin, const struct tdc_tensor_spec *spec,
		   struct tidl_tensor **ret_tensor, struct tdp_fault *fault) TDP_MUST_CHECK;

/* Where it lies: the first element @offset_bytes behind the start of the origin's @segment. */
void tdc_tensor_place(struct tidl_tensor *tensor, struct tdc_segment *segment,
		      uint64_t offset_bytes);

static inline void tdc_tensor_unrefp(struct tidl_tensor **tensor)
{
	*tensor = tidl_tensor_unref(*tensor);
}

#define tdc_auto_tensor TDP_CLEANUP(tdc_tensor_unrefp) struct tidl_tensor

#endif
