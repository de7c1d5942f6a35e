/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines and debts. A line owns nobody in it, and knows neither what they wait for nor how long
 * their turn lasts.
 */
#include "daemon/line.h"

#include <stddef.h>
#include <utlist.h>

#include "daemon/limits.h"

static bool queue_is_empty(const struct tdd_queue *queue)
{
	for (int lane = 0; lane < TDD_LANE_COUNT; lane++) {
		if (queue->lanes[lane])
			return false;
	}
	return true;
}

static void queue_enter(struct tdd_line *line, struct tdd_queue *queue, enum tdd_lane lane,
			struct tdd_place *place)
{
	if (queue_is_empty(queue))
		DL_APPEND(line->queues, queue);
	place->queue = queue;
	place->lane = lane;
}

void tdd_line_join(struct tdd_line *line, struct tdd_queue *queue, enum tdd_lane lane,
		   struct tdd_place *place)
{
	if (place->queue)
		return;
	queue_enter(line, queue, lane, place);
	DL_APPEND(queue->lanes[lane], place);
}

void tdd_line_join_first(struct tdd_line *line, struct tdd_queue *queue, enum tdd_lane lane,
			 struct tdd_place *place)
{
	if (place->queue)
		return;
	queue_enter(line, queue, lane, place);
	DL_PREPEND(queue->lanes[lane], place);
}

void tdd_line_leave(struct tdd_line *line, struct tdd_place *place)
{
	struct tdd_queue *queue = place->queue;

	if (!queue)
		return;
	DL_DELETE(queue->lanes[place->lane], place);
	place->queue = NULL;
	if (queue_is_empty(queue))
		DL_DELETE(line->queues, queue);
}

/* It is not empty. */
static struct tdd_place *queue_next(struct tdd_queue *queue)
{
	do
		queue->last_lane = (queue->last_lane + 1) % TDD_LANE_COUNT;
	while (!queue->lanes[queue->last_lane]);
	return queue->lanes[queue->last_lane];
}

struct tdd_place *tdd_line_next(struct tdd_line *line)
{
	struct tdd_queue *queue = line->queues;
	struct tdd_place *place;

	if (!queue)
		return NULL;
	DL_DELETE(line->queues, queue);
	DL_APPEND(line->queues, queue);
	place = queue_next(queue);
	tdd_line_leave(line, place);
	return place;
}

static void debt_pay_back(struct tdd_debt *debt, struct tdd_ration ration)
{
	uint64_t turns = ration.turn - debt->turn;

	debt->turn = ration.turn;
	if (turns >= TDD_DEBT_TURNS || turns * ration.steps >= debt->owed_steps)
		debt->owed_steps = 0;
	else
		debt->owed_steps -= turns * ration.steps;
}

void tdd_debt_charge(struct tdd_debt *debt, struct tdd_ration ration, uint64_t steps)
{
	uint64_t limit = TDD_DEBT_TURNS * ration.steps;

	debt_pay_back(debt, ration);
	debt->owed_steps += steps;
	if (debt->owed_steps > limit)
		debt->owed_steps = limit;
}

bool tdd_debt_is_due(struct tdd_debt *debt, struct tdd_ration ration)
{
	debt_pay_back(debt, ration);
	return debt->owed_steps >= ration.steps;
}
