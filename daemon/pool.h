/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_POOL_H
#define TDD_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/limits.h"
#include "proto/base/attr.h"

struct tdd_holder;
struct tdd_segment;

/*
 * A segment that its publisher wants back when nobody needs it any more, to copy the next tensor
 * into pages that are there already. Until then it is no hold: it keeps the segment, and nothing
 * else. Owned by the holder.
 */
struct tdd_pooled {
	struct tdd_segment *segment;
	struct tdd_holder *holder;
	struct tdd_pooled *prev, *next; /* holder::pooled */
};

/* What became of pooled segments since the last look. */
struct tdd_pool_news {
	size_t returned_count;
	uint64_t returned_ids[TDD_POOL_PER_SESSION]; /* allocations of the holder again */
	size_t dropped_count;
	uint64_t dropped_ids[TDD_POOL_PER_SESSION + 1];
};

/* False: it has too many already, or there is no memory. */
bool tdd_pool_keep(struct tdd_holder *holder, struct tdd_segment *segment) TDP_MUST_CHECK;

/* The holder lets go of it; frees what nobody else needs. NULL is allowed. Returns NULL. */
struct tdd_pooled *tdd_pooled_free(struct tdd_pooled *pooled);

/* NULL: it keeps none with this id. */
struct tdd_pooled *tdd_pool_find(const struct tdd_holder *holder, uint64_t segment_id);

/*
 * What nobody publishes or holds any more goes back to the holder, as an allocation with the next
 * of @serial, unless somebody may still see or write it: then it is dropped.
 */
void tdd_pool_collect(struct tdd_holder *holder, uint64_t *serial, struct tdd_pool_news *news);

#endif
