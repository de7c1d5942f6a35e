/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_PROCEDURES_H
#define BENCH_PROCEDURES_H

#include "tests/bench/stats.h"
#include "tests/bench/world.h"

/* What is measured. One procedure may time several operations in turn. */
enum bench_operation {
	BENCH_ROUND_TRIP,
	BENCH_FLOOR,
	BENCH_FLOOR_RELEASE,
	BENCH_COPY_FRESH,
	BENCH_COPY_WARM,
	BENCH_GET,
	BENCH_RELEASE,
	BENCH_GET_AGAIN,
	BENCH_ALLOCATE,
	BENCH_PUBLISH,
	BENCH_PUBLISH_ONCE,
	BENCH_PUBLISH_AGAIN,
	BENCH_OPERATION_COUNT
};

struct bench_procedure {
	/* Run once and add a sample to each operation it times, all outside @samples untimed. */
	void (*run)(struct bench_world *world, size_t size_index, struct bench_samples *samples);
	/* Its cost grows with the payload: fewer runs for large ones. */
	int is_size_bound;
};

/* The first is the floor, which every round starts with. */
extern const struct bench_procedure bench_procedures[];
extern const size_t bench_procedure_count;

#endif
