/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `bench_steps [RUNS]`: what a step of a live tensor costs beside what the futex alone costs. A
 * partner process answers each step with one of its own: bare, on a word in a memfd, and through
 * libtidl. $TIDL_SOCKET says where the broker is, which has nothing to do meanwhile.
 */
#include "tests/bench/placement.h"
#include "tests/bench/stats.h"

#include <err.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <dlpack/dlpack.h>
#include <tidl/tidl.h>

enum { ROUNDS = 5, RUNS_DEFAULT = 5000, SNAPSHOT_BYTES = 1 << 20, SNAPSHOT_SHARE = 10 };

enum operation { FLOOR, STEP, FLOOR_WAKE, UPDATE, FLOOR_COPY, SNAPSHOT, OPERATION_COUNT };

struct row {
	const char *title;
	enum operation reference;
};

static const struct row rows[OPERATION_COUNT] = {
	[FLOOR] = {"FLOOR: bare futex, there and back", FLOOR},
	[STEP] = {"tidl update and wait, there and back", FLOOR},
	[FLOOR_WAKE] = {"bare wake-up of nobody", FLOOR_WAKE},
	[UPDATE] = {"tidl update with nobody waiting", FLOOR_WAKE},
	[FLOOR_COPY] = {"memcpy of 1 MB", FLOOR_COPY},
	[SNAPSHOT] = {"tidl snapshot of 1 MB", FLOOR_COPY},
};

struct bench {
	_Atomic uint32_t *word; /* the floor's */
	struct tidl_client *client;
	struct tidl_tensor *ball;   /* goes there and back */
	struct tidl_tensor *memory; /* is copied */
	char *copy;
	uint64_t step;
	struct bench_samples samples[OPERATION_COUNT];
	struct bench_round rounds[ROUNDS][OPERATION_COUNT];
};

static void check(int result, const char *what)
{
	if (result < 0)
		errx(1, "%s: %s (%s)", what, tidl_last_error(), tidl_error_name(result));
}

/* ---- the floor ---- */

static void bare_step(_Atomic uint32_t *word)
{
	atomic_fetch_add(word, 1);
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Until the word is odd, or even. */
static void bare_wait(_Atomic uint32_t *word, uint32_t parity)
{
	uint32_t value;

	while (((value = atomic_load(word)) & 1) != parity)
		syscall(SYS_futex, word, FUTEX_WAIT, value, NULL, NULL, 0);
}

/* ---- the partner ---- */

static pid_t partner_start(void (*run)(struct bench *bench), struct bench *bench, int cpu)
{
	pid_t pid = fork();

	if (pid < 0)
		err(1, "fork");
	if (pid > 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	bench_pin(0, cpu);
	run(bench);
	_exit(0);
}

static void partner_stop(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void bare_partner(struct bench *bench)
{
	for (;;) {
		bare_wait(bench->word, 1);
		bare_step(bench->word);
	}
}

static void step_once(struct tidl_tensor *tensor)
{
	check(tidl_update_begin(tensor, 0), "begin");
	check(tidl_update_end(tensor, NULL), "end");
}

static void tidl_partner(struct bench *bench)
{
	const struct tidl_get_options options = {
		.size = sizeof(options), .attach = TIDL_ATTACH_WRITE, .timeout_ms = -1};
	struct tidl_client *client;
	struct tidl_tensor *ball;

	(void)bench;
	check(tidl_connect(NULL, &client), "connect");
	check(tidl_get(client, "bench/ball", &options, &ball), "get");
	for (uint64_t step = 1;; step += 2) {
		check(tidl_wait_step(ball, step, -1, NULL), "wait");
		step_once(ball);
	}
}

/* ---- runs ---- */

static uint64_t note(struct bench *bench, enum operation operation, uint64_t start)
{
	uint64_t now = bench_now_ns();

	bench_samples_add(&bench->samples[operation], now - start);
	return now;
}

static void floor_run(struct bench *bench)
{
	uint64_t start = bench_now_ns();

	bare_step(bench->word);
	bare_wait(bench->word, 0);
	(void)note(bench, FLOOR, start);
}

static void step_run(struct bench *bench)
{
	uint64_t start = bench_now_ns();

	step_once(bench->ball);
	check(tidl_wait_step(bench->ball, bench->step += 2, -1, NULL), "wait");
	(void)note(bench, STEP, start);
}

static void wake_run(struct bench *bench)
{
	static _Atomic uint32_t nobody;
	uint64_t start = bench_now_ns();

	bare_step(&nobody);
	start = note(bench, FLOOR_WAKE, start);
	step_once(bench->memory);
	(void)note(bench, UPDATE, start);
}

static void copy_run(struct bench *bench)
{
	uint64_t start = bench_now_ns();

	memcpy(bench->copy, tidl_tensor_data(bench->memory), SNAPSHOT_BYTES);
	start = note(bench, FLOOR_COPY, start);
	check(tidl_snapshot(bench->memory, bench->copy, SNAPSHOT_BYTES, -1, NULL), "snapshot");
	(void)note(bench, SNAPSHOT, start);
}

static void repeat(struct bench *bench, void (*run)(struct bench *bench), size_t count)
{
	for (size_t i = 0; i < count; i++)
		run(bench);
}

/* The partners sleep in turn: each phase has the machine to itself. */
static void placement_run(struct bench *bench, const struct bench_placement *placement,
			  size_t run_count)
{
	pid_t bare = partner_start(bare_partner, bench, placement->server_cpu);
	pid_t tidl = partner_start(tidl_partner, bench, placement->server_cpu);

	bench_pin(0, placement->client_cpu);
	/* A tenth for warming up, and until the partners are there. */
	repeat(bench, floor_run, run_count / 10 + 1);
	repeat(bench, step_run, run_count / 10 + 1);
	for (size_t i = 0; i < OPERATION_COUNT; i++)
		bench_samples_deinit(&bench->samples[i]);
	for (size_t r = 0; r < ROUNDS; r++) {
		repeat(bench, floor_run, run_count);
		repeat(bench, step_run, run_count);
		repeat(bench, wake_run, run_count);
		repeat(bench, copy_run, run_count / SNAPSHOT_SHARE + 1);
		for (size_t i = 0; i < OPERATION_COUNT; i++)
			bench->rounds[r][i] = bench_samples_finish(&bench->samples[i]);
	}
	partner_stop(bare);
	partner_stop(tidl);
}

static void print(const struct bench *bench, const struct bench_placement *placement)
{
	printf("\nsteps, %s: CPU %d and %d; %d rounds\n", placement->name, placement->client_cpu,
	       placement->server_cpu, ROUNDS);
	printf("%-40s %10s %10s  %-8s  %s\n", "operation", "p50 us", "p99 us", "ratio",
	       "over rounds");
	for (size_t i = 0; i < OPERATION_COUNT; i++) {
		double p50[ROUNDS], p99[ROUNDS], ratio[ROUNDS];
		struct bench_spread spread;

		for (size_t r = 0; r < ROUNDS; r++) {
			p50[r] = bench->rounds[r][i].p50_us;
			p99[r] = bench->rounds[r][i].p99_us;
			ratio[r] = p50[r] / bench->rounds[r][rows[i].reference].p50_us;
		}
		printf("%-40s %10.2f %10.2f", rows[i].title, bench_spread_of(p50, ROUNDS).median,
		       bench_spread_of(p99, ROUNDS).median);
		spread = bench_spread_of(ratio, ROUNDS);
		if (rows[i].reference != (enum operation)i)
			printf("  x%6.2f   %6.2f .. %.2f", spread.median, spread.min, spread.max);
		printf("\n");
	}
}

static void bench_init(struct bench *bench)
{
	static const struct tidl_dtype bytes = {.code = kDLUInt, .bits = 8, .lanes = 1};

	bench->word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	bench->copy = malloc(SNAPSHOT_BYTES);
	if (bench->word == MAP_FAILED || !bench->copy)
		err(1, "memory");
	memset(bench->copy, 1, SNAPSHOT_BYTES);
	check(tidl_connect(NULL, &bench->client), "connect");
	check(tidl_empty(bench->client, 1, (const int64_t[]){64}, bytes, &bench->ball), "allocate");
	check(tidl_empty(bench->client, 1, (const int64_t[]){SNAPSHOT_BYTES}, bytes,
			 &bench->memory),
	      "allocate");
	memset(tidl_tensor_data(bench->memory), 1, SNAPSHOT_BYTES);
}

static void bench_publish(struct bench *bench)
{
	const struct tidl_publish_options options = {.size = sizeof(options), .replace = 1};
	struct DLManagedTensorVersioned *managed;

	check(tidl_tensor_export(bench->ball, &managed), "export");
	check(tidl_publish(bench->client, "bench/ball", managed, &options, NULL), "publish");
	bench->step = 0;
}

static void bench_deinit(struct bench *bench)
{
	tidl_tensor_unref(bench->memory);
	tidl_tensor_unref(bench->ball);
	tidl_disconnect(bench->client);
	munmap(bench->word, 4096);
	free(bench->copy);
	for (size_t i = 0; i < OPERATION_COUNT; i++)
		bench_samples_deinit(&bench->samples[i]);
}

int main(int argc, char **argv)
{
	size_t run_count = argc > 1 ? strtoul(argv[1], NULL, 10) : RUNS_DEFAULT;
	struct bench_placement placements[BENCH_PLACEMENT_MAX];
	size_t placement_count = bench_placements(placements);

	if (run_count < 1 || argc > 2)
		errx(2, "usage: bench_steps [RUNS]");
	for (size_t i = 0; i < placement_count; i++) {
		struct bench bench = {0};

		bench_init(&bench);
		bench_publish(&bench);
		placement_run(&bench, &placements[i], run_count);
		print(&bench, &placements[i]);
		fflush(stdout);
		bench_deinit(&bench);
	}
	return 0;
}
