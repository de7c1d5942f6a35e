/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_STATS_H
#define BENCH_STATS_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* Durations of one operation in one round. Zero-initialise; grows by itself. */
struct bench_samples {
	uint64_t *durations_ns;
	size_t count;
	size_t capacity;
};

/* What is kept of a round. */
struct bench_round {
	double p50_us;
	double p99_us;
	size_t sample_count;
};

/* Middle and edges over rounds. */
struct bench_spread {
	double median;
	double min;
	double max;
};

static inline uint64_t bench_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void bench_samples_add(struct bench_samples *samples, uint64_t duration_ns);
void bench_samples_deinit(struct bench_samples *samples);

/* Percentiles of what was collected; sorts it and starts anew. */
struct bench_round bench_samples_finish(struct bench_samples *samples);

/* @values is sorted; @count is at least 1. */
struct bench_spread bench_spread_of(double *values, size_t count);

#endif
