/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tidl_bench: measures what tidl costs beside what the kernel alone costs, in one run, with
 * separate pinned processes. Usually started by scripts/bench.
 */
#include "tests/bench/report.h"
#include "tests/bench/schedule.h"

#include <err.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

static struct bench_results results;

static void usage(FILE *out)
{
	fputs("usage: tidl_bench --tidld PATH --socket PATH [--rounds N] [--runs N] [--seed N]\n"
	      "\n"
	      "  --tidld PATH   the broker to start\n"
	      "  --socket PATH  where it shall listen\n"
	      "  --rounds N     rounds for each placement, 1 to 100 (5)\n"
	      "  --runs N       runs of each operation in a round (1000)\n"
	      "  --seed N       order of the operations (1)\n",
	      out);
}

static size_t parse_number(const char *text, size_t max)
{
	char *end;
	unsigned long number = strtoul(text, &end, 10);

	if (*end != '\0' || number < 1 || number > max)
		errx(2, "`%s` is not a number from 1 to %zu", text, max);
	return number;
}

static void parse(int argc, char **argv, struct bench_schedule *schedule, const char **ret_tidld,
		  const char **ret_socket)
{
	static const struct option options[] = {
		{"tidld", required_argument, NULL, 't'},
		{"socket", required_argument, NULL, 's'},
		{"rounds", required_argument, NULL, 'r'},
		{"runs", required_argument, NULL, 'n'},
		{"seed", required_argument, NULL, 'e'},
		{"help", no_argument, NULL, 'h'},
		{0},
	};
	int option;

	while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (option) {
		case 't':
			*ret_tidld = optarg;
			break;
		case 's':
			*ret_socket = optarg;
			break;
		case 'r':
			schedule->round_count = parse_number(optarg, BENCH_ROUNDS_MAX);
			break;
		case 'n':
			schedule->run_count = parse_number(optarg, 1000000);
			break;
		case 'e':
			schedule->seed = (unsigned)parse_number(optarg, 1u << 30);
			break;
		case 'h':
			usage(stdout);
			exit(0);
		default:
			usage(stderr);
			exit(2);
		}
	}
	if (!*ret_tidld || !*ret_socket || optind < argc) {
		usage(stderr);
		exit(2);
	}
}

int main(int argc, char **argv)
{
	struct bench_schedule schedule = {.round_count = 5, .run_count = 1000, .seed = 1};
	struct bench_placement placements[BENCH_PLACEMENT_MAX];
	size_t placement_count = bench_placements(placements);
	struct bench_world world = {0};
	const char *tidld = NULL;
	const char *address = NULL;

	parse(argc, argv, &schedule, &tidld, &address);
	bench_world_start(&world, tidld, address);
	bench_print_machine(stdout);
	for (size_t i = 0; i < placement_count; i++) {
		bench_schedule_run(&schedule, &placements[i], &world, &results);
		bench_report_print(&placements[i], &results);
		fflush(stdout);
	}
	bench_world_stop(&world);
	return 0;
}
