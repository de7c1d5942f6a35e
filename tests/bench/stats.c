/* SPDX-License-Identifier: Apache-2.0 */
/* Percentiles of a round and their spread over rounds. Knows nothing of what was measured. */
#include "tests/bench/stats.h"

#include <err.h>
#include <stdlib.h>

void bench_samples_add(struct bench_samples *samples, uint64_t duration_ns)
{
	if (samples->count == samples->capacity) {
		size_t capacity = samples->capacity ? samples->capacity * 2 : 1024;
		uint64_t *grown = reallocarray(samples->durations_ns, capacity, sizeof(*grown));

		if (!grown)
			err(1, "samples");
		samples->durations_ns = grown;
		samples->capacity = capacity;
	}
	samples->durations_ns[samples->count++] = duration_ns;
}

void bench_samples_deinit(struct bench_samples *samples)
{
	free(samples->durations_ns);
	*samples = (struct bench_samples){0};
}

static int duration_compare(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a;
	uint64_t right = *(const uint64_t *)b;

	return left < right ? -1 : left > right;
}

static int value_compare(const void *a, const void *b)
{
	double left = *(const double *)a;
	double right = *(const double *)b;

	return left < right ? -1 : left > right;
}

/* The smallest duration that @percent of all do not exceed. */
static double percentile_us(const struct bench_samples *samples, size_t percent)
{
	size_t rank = (samples->count * percent + 99) / 100;

	return (double)samples->durations_ns[rank > 0 ? rank - 1 : 0] / 1000.0;
}

struct bench_round bench_samples_finish(struct bench_samples *samples)
{
	struct bench_round round = {.sample_count = samples->count};

	if (samples->count == 0)
		return round;
	qsort(samples->durations_ns, samples->count, sizeof(uint64_t), duration_compare);
	round.p50_us = percentile_us(samples, 50);
	round.p99_us = percentile_us(samples, 99);
	samples->count = 0;
	return round;
}

struct bench_spread bench_spread_of(double *values, size_t count)
{
	qsort(values, count, sizeof(double), value_compare);
	return (struct bench_spread){
		.median = count % 2 ? values[count / 2]
				    : (values[count / 2 - 1] + values[count / 2]) / 2,
		.min = values[0],
		.max = values[count - 1],
	};
}
