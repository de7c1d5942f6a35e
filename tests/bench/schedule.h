/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_SCHEDULE_H
#define BENCH_SCHEDULE_H

#include <stddef.h>

#include "tests/bench/placement.h"
#include "tests/bench/procedures.h"
#include "tests/bench/stats.h"
#include "tests/bench/world.h"

enum { BENCH_ROUNDS_MAX = 100 };

/* All rounds of one placement. */
struct bench_results {
	struct bench_round rounds[BENCH_ROUNDS_MAX][BENCH_SIZE_COUNT][BENCH_OPERATION_COUNT];
	double steal_percent[BENCH_ROUNDS_MAX];
	size_t round_count;
};

struct bench_schedule {
	size_t round_count;
	size_t run_count; /* of a procedure in a round, where it is not bound by size */
	unsigned seed;
};

/* Run every round: the floor first, then everything else in random order, size by size. */
void bench_schedule_run(const struct bench_schedule *schedule,
			const struct bench_placement *placement, struct bench_world *world,
			struct bench_results *ret_results);

#endif
