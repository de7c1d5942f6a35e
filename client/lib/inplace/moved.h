/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_INPLACE_MOVED_H
#define TDC_INPLACE_MOVED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/lib/inplace/move.h"
#include "client/lib/inplace/range.h"
#include "client/lib/lease.h"
#include "client/lib/segment.h"
#include "client/lib/source.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

struct tidl_client;
struct tidl_pending;

/* A name that moved memory was published by. */
struct tdc_moved_use {
	struct tdc_moved_use *prev, *next;
	uint64_t generation;
	bool is_listed;		      /* as far as this client knows */
	bool is_dropped;	      /* its owner wants the memory back, whoever holds it */
	struct tidl_pending *release; /* answered when nobody else holds it any more; NULL: none */
	char path[];
};

/* One range, moved. */
struct tdc_moved_part {
	struct tdc_range range;
	struct tdc_backing backing;
	struct tdc_segment *segment; /* one reference; its map is its owner's */
};

/*
 * Memory that was shared where it lay: some ranges in one segment, and their owners' tensors, held
 * so that nobody frees the memory while others can write malloc's header in it. In the client's
 * list, guarded by its lock, until it is private again.
 */
struct tdc_moved {
	struct tdc_moved *prev, *next;
	struct tdc_lease *lease; /* the hold on the segment */
	int fd;			 /* of the segment, for the way back; -1: not kept */
	bool is_busy;		 /* a thread is publishing it or ending it */
	struct tdc_moved_use *uses;
	size_t source_count;
	struct tdc_source **sources; /* one reference each */
	size_t part_count;
	struct tdc_moved_part parts[];
};

/* What to move, and on which terms. */
struct tdc_move_order {
	size_t range_count;
	const struct tdc_range *ranges;
	bool nobody_writes;
	size_t source_count; /* borrowed; the result has references of its own */
	struct tdc_source *const *sources;
};

/*
 * Move ranges into one new segment: all of them, or none. The result is busy, until it is
 * published or ended.
 */
int tdc_moved_make(struct tidl_client *client, const struct tdc_move_order *order,
		   struct tdc_moved **ret_moved, struct tdp_fault *fault) TDP_MUST_CHECK;

/* It has no name yet, or not any more: private again, and free. On failure it stays, to be tried
 * again. Busy before; consumed. */
int tdc_moved_end(struct tidl_client *client, struct tdc_moved *moved,
		  struct tdp_fault *fault) TDP_MUST_CHECK;

/*
 * The same for the last time, when no other call runs. What cannot become private stays shared,
 * @ret_left_bytes of it, but its owner gets it and can free it without harm; if not even that can
 * be had, its owner never gets it. Consumed in any case.
 */
int tdc_moved_end_last(struct tidl_client *client, struct tdc_moved *moved,
		       uint64_t *ret_left_bytes, struct tdp_fault *fault) TDP_MUST_CHECK;

/* Does the segment still lie where it was moved to? Its owner may have freed the memory in ways
 * that ask nobody. */
bool tdc_moved_is_there(const struct tdc_segment *segment, const struct tdc_maps *maps);

/* Never find this segment by its address again. */
void tdc_moved_disown(struct tidl_client *client, struct tdc_segment *segment);

#endif
