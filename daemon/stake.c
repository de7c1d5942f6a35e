/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stakes: holds counted by holder and segment. Owned by the holds, who take and give them up; a
 * stake frees no segment and charges nobody. Who watches the writers of a segment is told here.
 */
#include "daemon/stake.h"

#include <stdlib.h>

#include "daemon/holder.h"
#include "daemon/segment.h"
#include "daemon/writer_watch.h"

static struct tdd_stake *stake_new(struct tdd_holder *holder, struct tdd_segment *segment)
{
	struct tdd_stake *stake = calloc(1, sizeof(*stake));

	if (!stake)
		return NULL;
	stake->holder = holder;
	stake->segment = segment;
	stake->segment_id = segment->id;
	HASH_ADD(hh, holder->stakes, segment_id, sizeof(stake->segment_id), stake);
	if (!stake->hh.tbl) {
		free(stake);
		return NULL;
	}
	return stake;
}

struct tdd_stake *tdd_stake_take(struct tdd_holder *holder, struct tdd_segment *segment,
				 bool is_writer)
{
	struct tdd_stake *stake = tdd_stake_find(holder, segment);

	if (!stake)
		stake = stake_new(holder, segment);
	if (!stake)
		return NULL;
	stake->hold_count++;
	if (is_writer && stake->write_count++ == 0)
		DL_APPEND(segment->writers, stake);
	return stake;
}

void tdd_stake_stop_writing(struct tdd_stake *stake)
{
	if (--stake->write_count == 0) {
		DL_DELETE(stake->segment->writers, stake);
		tdd_writer_left(stake->segment, stake->holder);
	}
}

struct tdd_stake *tdd_stake_give_up(struct tdd_stake *stake, bool is_writer)
{
	if (is_writer)
		tdd_stake_stop_writing(stake);
	if (--stake->hold_count == 0) {
		HASH_DELETE(hh, stake->holder->stakes, stake);
		tdd_writer_watches_cancel(stake->segment, stake->holder);
		free(stake);
	}
	return NULL;
}

struct tdd_stake *tdd_stake_find(const struct tdd_holder *holder, const struct tdd_segment *segment)
{
	struct tdd_stake *stake = NULL;

	HASH_FIND(hh, holder->stakes, &segment->id, sizeof(segment->id), stake);
	return stake;
}
