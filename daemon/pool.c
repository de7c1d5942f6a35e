/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments on their way back to whoever filled them. Fresh pages are what a copy costs most, and
 * the publisher has these mapped still. Which segments may come back is decided by what the broker
 * has seen of them: never granted to another uid or for writing, and every lease given back by a
 * process that had not forked since.
 */
#include "daemon/pool.h"

#include <stdlib.h>

#include "daemon/holder.h"
#include "daemon/lease.h"
#include "daemon/segment.h"

static size_t pool_count(const struct tdd_holder *holder)
{
	const struct tdd_pooled *pooled;
	size_t count = 0;

	DL_COUNT(holder->pooled, pooled, count);
	return count;
}

bool tdd_pool_keep(struct tdd_holder *holder, struct tdd_segment *segment)
{
	struct tdd_pooled *pooled;

	if (segment->pooled || pool_count(holder) == TDD_POOL_PER_SESSION)
		return false;
	pooled = calloc(1, sizeof(*pooled));
	if (!pooled)
		return false;
	pooled->segment = segment;
	pooled->holder = holder;
	segment->pooled = pooled;
	DL_APPEND(holder->pooled, pooled);
	return true;
}

struct tdd_pooled *tdd_pooled_free(struct tdd_pooled *pooled)
{
	struct tdd_segment *segment;

	if (!pooled)
		return NULL;
	segment = pooled->segment;
	segment->pooled = NULL;
	DL_DELETE(pooled->holder->pooled, pooled);
	free(pooled);
	tdd_segment_settle(segment);
	return NULL;
}

struct tdd_pooled *tdd_pool_find(const struct tdd_holder *holder, uint64_t segment_id)
{
	struct tdd_pooled *pooled;

	DL_FOREACH (holder->pooled, pooled) {
		if (pooled->segment->id == segment_id)
			return pooled;
	}
	return NULL;
}

static bool segment_is_reusable(const struct tdd_segment *segment)
{
	return segment->access == TIDL_ACCESS_SHARED && !segment->may_be_mapped;
}

void tdd_pool_collect(struct tdd_holder *holder, uint64_t *serial, struct tdd_pool_news *news)
{
	struct tdd_pooled *pooled, *next;
	struct tdd_hold *allocation;
	struct tdp_fault unused;

	DL_FOREACH_SAFE (holder->pooled, pooled, next) {
		struct tdd_segment *segment = pooled->segment;

		if (segment->uses || segment->allocations)
			continue;
		if (segment_is_reusable(segment) &&
		    tdd_allocation_new(holder, segment, ++*serial, &allocation, &unused) == 0)
			news->returned_ids[news->returned_count++] = segment->id;
		else
			news->dropped_ids[news->dropped_count++] = segment->id;
		tdd_pooled_free(pooled);
	}
}
