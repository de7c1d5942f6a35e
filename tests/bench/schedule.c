/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of measuring: rounds, so that drift of the machine hits everything alike, and each
 * round on its own, so that ratios are formed within it.
 */
#include "tests/bench/schedule.h"

#include <stdlib.h>

enum {
	PROCEDURES_MAX = 16,
	/* Payload moved by a size-bound procedure in one round, and its fewest and most runs. */
	BOUND_BYTES_MAX = 1 << 30,
	BOUND_RUNS_MIN = 5,
	WARM_UP_DIVISOR = 10,
};

static size_t run_count_of(const struct bench_schedule *schedule,
			   const struct bench_procedure *procedure, size_t size_index)
{
	size_t limit = BOUND_BYTES_MAX / bench_sizes[size_index].bytes;

	if (!procedure->is_size_bound || schedule->run_count < limit)
		return schedule->run_count;
	return limit < BOUND_RUNS_MIN ? BOUND_RUNS_MIN : limit;
}

/* The floor stays first. */
static void order_shuffle(size_t *order, size_t count, unsigned *seed)
{
	for (size_t i = 0; i < count; i++)
		order[i] = i;
	for (size_t i = count - 1; i > 1; i--) {
		size_t other = 1 + (size_t)rand_r(seed) % i;
		size_t swapped = order[i];

		order[i] = order[other];
		order[other] = swapped;
	}
}

static void procedure_run(const struct bench_procedure *procedure, size_t run_count,
			  struct bench_world *world, size_t size_index,
			  struct bench_samples *samples)
{
	struct bench_samples discarded[BENCH_OPERATION_COUNT] = {0};

	for (size_t i = 0; i < run_count / WARM_UP_DIVISOR + 1; i++)
		procedure->run(world, size_index, discarded);
	for (size_t i = 0; i < BENCH_OPERATION_COUNT; i++)
		bench_samples_deinit(&discarded[i]);
	for (size_t i = 0; i < run_count; i++)
		procedure->run(world, size_index, samples);
}

static void round_run(const struct bench_schedule *schedule, struct bench_world *world,
		      unsigned *seed, struct bench_round ret_round[][BENCH_OPERATION_COUNT])
{
	struct bench_samples samples[BENCH_OPERATION_COUNT] = {0};
	size_t order[PROCEDURES_MAX] = {0};

	for (size_t s = 0; s < BENCH_SIZE_COUNT; s++) {
		order_shuffle(order, bench_procedure_count, seed);
		for (size_t i = 0; i < bench_procedure_count; i++) {
			const struct bench_procedure *procedure = &bench_procedures[order[i]];

			procedure_run(procedure, run_count_of(schedule, procedure, s), world, s,
				      samples);
		}
		for (size_t o = 0; o < BENCH_OPERATION_COUNT; o++)
			ret_round[s][o] = bench_samples_finish(&samples[o]);
	}
	for (size_t o = 0; o < BENCH_OPERATION_COUNT; o++)
		bench_samples_deinit(&samples[o]);
}

void bench_schedule_run(const struct bench_schedule *schedule,
			const struct bench_placement *placement, struct bench_world *world,
			struct bench_results *ret_results)
{
	unsigned seed = schedule->seed;

	bench_world_place(world, placement);
	ret_results->round_count = schedule->round_count;
	bench_steal_percent();
	for (size_t r = 0; r < schedule->round_count; r++) {
		round_run(schedule, world, &seed, ret_results->rounds[r]);
		ret_results->steal_percent[r] = bench_steal_percent();
	}
}
