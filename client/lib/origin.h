/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_ORIGIN_H
#define TDC_ORIGIN_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "client/lib/lease.h"
#include "client/lib/segment.h"
#include "include/tidl/tensor.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

struct tidl_client;

/*
 * What tensors have in common that came together: the lease, the segments as they are mapped, and
 * what was published. Counted by its tensors; the last one gives all of it back. Constant once it
 * is shared, but for `refs` and `privates`.
 */
struct tdc_origin {
	atomic_size_t refs;
	struct tidl_client *client;
	struct tdc_lease *lease; /* NULL: nothing to give back */
	enum tidl_attach attach;
	enum tidl_access access;
	uint64_t generation; /* 0: unpublished */
	uint32_t owner_uid;
	char *name;		       /* NULL: unpublished */
	char *metadata;		       /* NULL: none */
	struct tdc_segment **privates; /* copy-on-write maps, or NULL (private.h); under the lock */
	size_t segment_count;
	struct tdc_segment *segments[]; /* NULL: not mapped */
};

/* What an origin is made from. Everything is copied. */
struct tdc_origin_spec {
	enum tidl_attach attach;
	enum tidl_access access;
	uint64_t generation;
	uint32_t owner_uid;
	const char *name;
	const char *metadata;
	size_t segment_count;
};

/* One reference; no segment is mapped and nothing leased yet. */
int tdc_origin_new(struct tidl_client *client, const struct tdc_origin_spec *spec,
		   struct tdc_origin **ret_origin, struct tdp_fault *fault) TDP_MUST_CHECK;

struct tdc_origin *tdc_origin_ref(struct tdc_origin *origin);

/* Unmaps and gives the lease back with the last reference. NULL is allowed. Returns NULL. */
struct tdc_origin *tdc_origin_unref(struct tdc_origin *origin);

static inline void tdc_origin_unrefp(struct tdc_origin **origin)
{
	*origin = tdc_origin_unref(*origin);
}

#define tdc_auto_origin TDP_CLEANUP(tdc_origin_unrefp) struct tdc_origin

#endif
