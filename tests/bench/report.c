/* SPDX-License-Identifier: Apache-2.0 */
/* The tables. Ratios are formed round by round, against the reference of the same round. */
#include "tests/bench/report.h"

#include <stdbool.h>
#include <stdio.h>

/* One operation's line: what it is compared with, and how it should come out. */
struct report_row {
	enum bench_operation operation;
	enum bench_operation reference; /* itself: nothing to compare with */
	const char *name;
	const char *target;	    /* NULL: none */
	uint64_t target_from_bytes; /* and for which sizes it holds */
};

static const struct report_row rows[] = {
	{
		.operation = BENCH_ROUND_TRIP,
		.reference = BENCH_FLOOR,
		.name = "bare round trip, 64 B",
	},
	{
		.operation = BENCH_FLOOR,
		.reference = BENCH_FLOOR,
		.name = "FLOOR: round trip, fd, mmap, touch",
	},
	{
		.operation = BENCH_GET,
		.reference = BENCH_FLOOR,
		.name = "tidl get, cold",
		.target = "<= 1.3",
	},
	{
		.operation = BENCH_GET_AGAIN,
		.reference = BENCH_FLOOR,
		.name = "tidl get again, attached already",
	},
	{
		.operation = BENCH_PUBLISH,
		.reference = BENCH_FLOOR,
		.name = "tidl publish, allocated memory",
		.target = "<= 1.3",
	},
	{
		.operation = BENCH_RELEASE,
		.reference = BENCH_FLOOR,
		.name = "tidl release",
	},
	{
		.operation = BENCH_FLOOR_RELEASE,
		.reference = BENCH_FLOOR,
		.name = "bare release: munmap, close",
	},
	{
		.operation = BENCH_ALLOCATE,
		.reference = BENCH_ALLOCATE,
		.name = "tidl allocate",
	},
	{
		.operation = BENCH_COPY_FRESH,
		.reference = BENCH_COPY_FRESH,
		.name = "COPY: pwrite into a fresh memfd",
	},
	{
		.operation = BENCH_COPY_WARM,
		.reference = BENCH_COPY_FRESH,
		.name = "memcpy into a warm mapping",
	},
	{
		.operation = BENCH_PUBLISH_ONCE,
		.reference = BENCH_COPY_FRESH,
		.name = "tidl publish, foreign, once",
		.target = "<= 1.1",
		.target_from_bytes = 1 << 20,
	},
	{
		.operation = BENCH_PUBLISH_AGAIN,
		.reference = BENCH_COPY_WARM,
		.name = "tidl publish, foreign, again",
		.target = "<= 1.1",
		.target_from_bytes = 64 << 20,
	},
};

/* A round during which the hypervisor took more than this share of the time is left out. */
static const double steal_max_percent = 1.0;

static bool round_is_quiet(const struct bench_results *results, size_t round)
{
	return results->steal_percent[round] <= steal_max_percent;
}

static size_t quiet_count(const struct bench_results *results)
{
	size_t count = 0;

	for (size_t r = 0; r < results->round_count; r++)
		count += round_is_quiet(results, r);
	return count;
}

/* The rounds to report: the quiet ones, or all when fewer than three are. */
static size_t rounds_choose(const struct bench_results *results, size_t *ret_rounds)
{
	bool use_all = quiet_count(results) < 3;
	size_t count = 0;

	for (size_t r = 0; r < results->round_count; r++)
		if (use_all || round_is_quiet(results, r))
			ret_rounds[count++] = r;
	return count;
}

static const char *reference_name(enum bench_operation reference)
{
	if (reference == BENCH_FLOOR)
		return "floor";
	return reference == BENCH_COPY_WARM ? "warm" : "copy";
}

static void row_print(const struct report_row *row, const struct bench_results *results,
		      size_t size_index, const size_t *rounds, size_t round_count)
{
	double p50[BENCH_ROUNDS_MAX] = {0};
	double p99[BENCH_ROUNDS_MAX] = {0};
	double ratio[BENCH_ROUNDS_MAX] = {0};
	struct bench_spread spread;

	for (size_t i = 0; i < round_count; i++) {
		const struct bench_round *operations = results->rounds[rounds[i]][size_index];

		p50[i] = operations[row->operation].p50_us;
		p99[i] = operations[row->operation].p99_us;
		ratio[i] = p50[i] / operations[row->reference].p50_us;
	}
	printf("%-6s %-36s %6zu %10.1f %10.1f", bench_sizes[size_index].name, row->name,
	       results->rounds[rounds[0]][size_index][row->operation].sample_count,
	       bench_spread_of(p50, round_count).median, bench_spread_of(p99, round_count).median);
	if (row->reference == row->operation) {
		printf("\n");
		return;
	}
	spread = bench_spread_of(ratio, round_count);
	printf("  x%6.2f %-5s  %6.2f .. %.2f", spread.median, reference_name(row->reference),
	       spread.min, spread.max);
	if (row->target && bench_sizes[size_index].bytes >= row->target_from_bytes)
		printf("  (target %s)", row->target);
	printf("\n");
}

void bench_report_print(const struct bench_placement *placement,
			const struct bench_results *results)
{
	size_t rounds[BENCH_ROUNDS_MAX] = {0};
	size_t round_count = rounds_choose(results, rounds);
	double steal[BENCH_ROUNDS_MAX] = {0};

	for (size_t i = 0; i < round_count; i++)
		steal[i] = results->steal_percent[rounds[i]];
	printf("\n%s: client on CPU %d, servers on CPU %d; %zu of %zu rounds, steal %.2f %% at "
	       "most\n",
	       placement->name, placement->client_cpu, placement->server_cpu, round_count,
	       results->round_count, bench_spread_of(steal, round_count).max);
	printf("%-6s %-36s %6s %10s %10s  %-13s  %s\n", "size", "operation", "n", "p50 us",
	       "p99 us", "ratio", "over rounds");
	for (size_t s = 0; s < BENCH_SIZE_COUNT; s++)
		for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
			row_print(&rows[i], results, s, rounds, round_count);
}
