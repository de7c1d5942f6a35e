/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_WORLD_H
#define BENCH_WORLD_H

#include <stdint.h>

#include "tests/bench/broker.h"
#include "tests/bench/floor.h"
#include "tests/bench/placement.h"

/* The sizes of payload: they show what depends on size and what does not. */
enum { BENCH_SIZE_COUNT = 3 };

struct bench_size {
	const char *name;
	uint64_t bytes;
};

extern const struct bench_size bench_sizes[BENCH_SIZE_COUNT];

/* The processes that take part, and what the measured one keeps at hand. */
struct bench_world {
	struct bench_floor floor;
	struct bench_broker broker;
	struct tidl_client *client;
	struct tidl_tensor *own[BENCH_SIZE_COUNT]; /* allocated by the client, unpublished */
	char *source;				   /* private resident memory of the largest size */
	char *warm; /* a resident memfd's mapping of the largest size */
	uint64_t checksum;
};

void bench_world_start(struct bench_world *world, const char *tidld, const char *address);
void bench_world_stop(struct bench_world *world);

/* Pin everything. */
void bench_world_place(struct bench_world *world, const struct bench_placement *placement);

#endif
