/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_SEGTABLE_H
#define TDC_SEGTABLE_H

#include <stddef.h>
#include <stdint.h>

#include "include/tidl/tensor.h"
#include "proto/base/attr.h"

struct tdc_segment;

/*
 * The mapped segments of one client: by address, to recognise memory that is published again, and
 * by identity, so that nothing is mapped twice. Guarded by the client's lock; owns nothing.
 * Unlinking allocates nothing, since it happens in deleters.
 */
struct tdc_segtable {
	struct tdc_segment **by_address; /* sorted */
	size_t count;
	size_t capacity;
	struct tdc_segment *by_key; /* hash; without copy-on-write maps and moved memory */
};

/* 0, or -ENOMEM with nothing linked. */
int tdc_segtable_link(struct tdc_segtable *table, struct tdc_segment *segment) TDP_MUST_CHECK;
void tdc_segtable_unlink(struct tdc_segtable *table, struct tdc_segment *segment);
void tdc_segtable_deinit(struct tdc_segtable *table);

/* The map of a segment, made in connection @era with @attach; NULL when there is none. */
struct tdc_segment *tdc_segtable_find(struct tdc_segtable *table, uint64_t id, uint64_t era,
				      enum tidl_attach attach);

/* The segment that holds all of [@begin, @end); NULL when there is none. */
struct tdc_segment *tdc_segtable_find_range(const struct tdc_segtable *table, uintptr_t begin,
					    uintptr_t end);

#endif
