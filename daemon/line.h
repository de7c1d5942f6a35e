/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_LINE_H
#define TDD_LINE_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Those who wait for a turn: a queue for each uid, and the uids one after the other, so that nobody
 * waits for the many that somebody else has put in line. In a queue, those who want little do not
 * wait for all those who want much: of each kind it is one in turn.
 */
struct tdd_place;

enum tdd_lane {
	TDD_LANE_END, /* of connections */
	TDD_LANE_LITTLE,
	TDD_LANE_MUCH,
	TDD_LANE_COUNT
};

/* Those of one uid; embedded in its account. */
struct tdd_queue {
	struct tdd_place *lanes[TDD_LANE_COUNT]; /* lists, the next one first */
	enum tdd_lane last_lane;
	struct tdd_queue *prev, *next; /* line::queues */
};

/* One that waits; embedded in it. */
struct tdd_place {
	struct tdd_queue *queue; /* NULL: not in line */
	enum tdd_lane lane;
	struct tdd_place *prev, *next;
};

struct tdd_line {
	struct tdd_queue *queues; /* list of those that are not empty, the next one first */
};

/* Behind the others in that lane of its uid, or before them. Who is in line already stays there. */
void tdd_line_join(struct tdd_line *line, struct tdd_queue *queue, enum tdd_lane lane,
		   struct tdd_place *place);
void tdd_line_join_first(struct tdd_line *line, struct tdd_queue *queue, enum tdd_lane lane,
			 struct tdd_place *place);

/* Any number of times. */
void tdd_line_leave(struct tdd_line *line, struct tdd_place *place);

/* Whose turn it is, taken out of the line; next time it is another uid's. NULL: nobody waits. */
struct tdd_place *tdd_line_next(struct tdd_line *line);

static inline bool tdd_place_is_waiting(const struct tdd_place *place)
{
	return place->queue;
}

static inline bool tdd_line_is_empty(const struct tdd_line *line)
{
	return !line->queues;
}

/* Connections that end, in order. */
struct tdd_ends {
	uint64_t begun_count;
	uint64_t done_count;
};

/*
 * What somebody has used of what each turn of the loop grants to him. Who uses more owes it, to a
 * limit, and pays it back with what later turns grant; meanwhile he stands in line.
 */
struct tdd_debt {
	uint64_t turn; /* up to which it is paid back */
	uint64_t owed_steps;
};

/* How much is granted with each turn. */
struct tdd_ration {
	uint64_t turn; /* now */
	uint64_t steps;
};

void tdd_debt_charge(struct tdd_debt *debt, struct tdd_ration ration, uint64_t steps);

/* Is nothing left of it in this turn? */
bool tdd_debt_is_due(struct tdd_debt *debt, struct tdd_ration ration);

#endif
