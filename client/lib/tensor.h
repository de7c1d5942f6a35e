/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_TENSOR_H
#define TDC_TENSOR_H

#include <stdatomic.h>
#include <stdint.h>

#include "client/lib/lease.h"
#include "client/lib/segment.h"
#include "include/tidl/tensor.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

/*
 * One description over mapped memory. Holds the segment, one lease and the client; the last
 * reference, a user's or an export's, gives them back. Constant once made, but for `refs`.
 */
struct tidl_tensor {
	atomic_size_t refs;
	struct tidl_client *client;
	struct tdc_segment *segment; /* NULL: empty */
	struct tdc_lease *lease;     /* NULL: nothing to give back */
	void *data;		     /* first element; NULL: empty */
	struct tidl_dtype dtype;
	uint32_t ndim;
	uint32_t flags; /* DLPack's, of the layout */
	enum tidl_attach attach;
	enum tidl_access access;
	uint64_t generation;
	uint64_t nbytes;
	uint32_t owner_uid;
	char *name;	/* NULL: unpublished */
	char *metadata; /* NULL: none */
	int64_t *shape;
	int64_t *strides;
	int64_t extents[]; /* shape, then strides */
};

/* What a tensor is made from. Everything is copied. */
struct tdc_tensor_spec {
	struct tidl_dtype dtype;
	uint32_t ndim;
	const int64_t *shape;
	const int64_t *strides; /* NULL: compact row-major */
	uint32_t flags;
	enum tidl_attach attach;
	enum tidl_access access;
	uint64_t generation;
	uint64_t nbytes;
	uint32_t owner_uid;
	const char *name;
	const char *metadata;
};

/* One reference; no segment and no lease yet. */
int tdc_tensor_new(struct tidl_client *client, const struct tdc_tensor_spec *spec,
		   struct tidl_tensor **ret_tensor, struct tdp_fault *fault) TDP_MUST_CHECK;

static inline void tdc_tensor_unrefp(struct tidl_tensor **tensor)
{
	*tensor = tidl_tensor_unref(*tensor);
}

#define tdc_auto_tensor TDP_CLEANUP(tdc_tensor_unrefp) struct tidl_tensor

#endif
