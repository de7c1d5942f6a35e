/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_STAKE_H
#define TDD_STAKE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/map.h"
#include "proto/base/attr.h"

struct tdd_holder;
struct tdd_segment;

/*
 * What one holder has in one segment: how many of its holds keep it, and how many of those may
 * write. However many holds there are, one look tells whether a holder has any, and at most two
 * tell whether somebody else writes.
 */
struct tdd_stake {
	struct tdd_holder *holder;
	struct tdd_segment *segment;
	uint64_t segment_id;
	uint32_t hold_count;
	uint32_t write_count;
	struct tdd_stake *prev, *next; /* segment::writers, while write_count is not 0 */
	UT_hash_handle hh;	       /* holder::stakes, by segment id */
};

/* One hold more; NULL without memory. */
struct tdd_stake *tdd_stake_take(struct tdd_holder *holder, struct tdd_segment *segment,
				 bool is_writer) TDP_MUST_CHECK;

/* One of its holds goes on without writing. */
void tdd_stake_stop_writing(struct tdd_stake *stake);

/* That hold has gone; the stake ends with the last. Returns NULL. */
struct tdd_stake *tdd_stake_give_up(struct tdd_stake *stake, bool is_writer);

/* NULL: this holder has no hold on it. */
struct tdd_stake *tdd_stake_find(const struct tdd_holder *holder,
				 const struct tdd_segment *segment);

#endif
