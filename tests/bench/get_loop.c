/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `bench_get_loop NAME RUNS`: times RUNS cold gets of NAME and prints p50 and p99 in microseconds;
 * the C side of bench_get.py, which pins it and the broker. $TIDL_SOCKET says where the broker is.
 */
#include "tests/bench/stats.h"

#include <err.h>
#include <stdio.h>
#include <stdlib.h>

#include <tidl/tidl.h>

static void check(int result, const char *what)
{
	if (result < 0)
		errx(1, "%s: %s (%s)", what, tidl_last_error(), tidl_error_name(result));
}

static void get(struct tidl_client *client, const char *name, struct bench_samples *samples)
{
	struct tidl_tensor *tensor = NULL;
	struct tidl_tensor *nothing = NULL;
	uint64_t start;

	start = bench_now_ns();
	check(tidl_get(client, name, NULL, &tensor), "get");
	(void)*(const volatile char *)tidl_tensor_data(tensor);
	bench_samples_add(samples, bench_now_ns() - start);
	tidl_tensor_unref(tensor);
	/* After one more round trip the broker has handled the release. */
	if (tidl_get(client, "bench/nothing", NULL, &nothing) != TIDL_ERR_NOT_FOUND)
		errx(1, "the broker found what was never published");
}

int main(int argc, char **argv)
{
	struct tidl_client *client = NULL;
	struct bench_samples samples = {0};
	struct bench_round round;
	long run_count = argc == 3 ? strtol(argv[2], NULL, 10) : 0;

	if (run_count < 1) {
		fputs("usage: bench_get_loop NAME RUNS\n", stderr);
		return 2;
	}
	check(tidl_connect(NULL, &client), "connect");
	for (long i = 0; i < run_count / 10 + 1; i++)
		get(client, argv[1], &samples);
	bench_samples_finish(&samples);
	for (long i = 0; i < run_count; i++)
		get(client, argv[1], &samples);
	round = bench_samples_finish(&samples);
	printf("%.2f %.2f\n", round.p50_us, round.p99_us);
	bench_samples_deinit(&samples);
	tidl_disconnect(client);
	return 0;
}
