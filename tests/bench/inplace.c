/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `bench_inplace [ROUNDS]`: what it costs to share memory where it lies, and to make it private
 * again, beside a first copy of it, and beside the kernel's part alone: a `pwrite` of the same
 * bytes into a fresh memfd. $TIDL_SOCKET says where the broker is.
 */
#include "tests/bench/stats.h"

#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <dlpack/dlpack.h>
#include <tidl/tidl.h>

enum { ROUNDS_DEFAULT = 50, PAGE_BYTES = 4096 };

/* What is timed, in the order of the table. */
enum operation { WRITE, COPY, MOVE, TOUCH, UNSHARE, OPERATION_COUNT };

static const char *const titles[OPERATION_COUNT] = {
	[WRITE] = "pwrite into a fresh memfd",
	[COPY] = "publish, copied for the first time",
	[MOVE] = "publish, shared in place",
	[TOUCH] = "first write to each page afterwards",
	[UNSHARE] = "unshare",
};

static const size_t sizes[] = {(size_t)1 << 20, (size_t)16 << 20, (size_t)64 << 20};

struct bench {
	size_t bytes;
	unsigned char *memory;
	int64_t shape[1];
	DLManagedTensorVersioned managed;
	struct bench_samples samples[OPERATION_COUNT];
};

static void check(int result, const char *what)
{
	if (result < 0)
		errx(1, "%s: %s (%s)", what, tidl_last_error(), tidl_error_name(result));
}

static void bench_init(struct bench *bench, size_t bytes)
{
	memset(bench, 0, sizeof(*bench));
	bench->bytes = bytes;
	bench->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (bench->memory == MAP_FAILED)
		err(1, "mmap");
	bench->shape[0] = (int64_t)bytes;
	bench->managed = (DLManagedTensorVersioned){
		.version = {.major = DLPACK_MAJOR_VERSION, .minor = DLPACK_MINOR_VERSION},
		.dl_tensor = {.data = bench->memory,
			      .device = {.device_type = kDLCPU},
			      .ndim = 1,
			      .dtype = {.code = kDLUInt, .bits = 8, .lanes = 1},
			      .shape = bench->shape},
	};
}

static void bench_deinit(struct bench *bench)
{
	for (size_t i = 0; i < OPERATION_COUNT; i++)
		bench_samples_deinit(&bench->samples[i]);
	(void)munmap(bench->memory, bench->bytes);
}

static uint64_t bench_note(struct bench *bench, enum operation operation, uint64_t start)
{
	bench_samples_add(&bench->samples[operation], bench_now_ns() - start);
	return bench_now_ns();
}

static void write_run(struct bench *bench)
{
	int fd = memfd_create("bench", MFD_CLOEXEC);
	uint64_t start = bench_now_ns();

	if (fd < 0 || pwrite(fd, bench->memory, bench->bytes, 0) != (ssize_t)bench->bytes)
		err(1, "pwrite");
	(void)bench_note(bench, WRITE, start);
	(void)close(fd);
}

/* With a client of its own: another one would copy into memory that it has kept. */
static void copy_run(struct bench *bench)
{
	struct tidl_client *client;
	uint64_t start;

	check(tidl_connect(NULL, &client), "connect");
	start = bench_now_ns();
	check(tidl_publish(client, "bench/copied", &bench->managed, NULL, NULL), "publish");
	(void)bench_note(bench, COPY, start);
	check(tidl_remove(client, "bench/copied"), "remove");
	tidl_disconnect(client);
}

static void move_run(struct bench *bench, struct tidl_client *client)
{
	struct tidl_block block = {
		.address = bench->memory, .bytes = bench->bytes, .kind = TIDL_BLOCK_PAGES};
	struct tidl_publish_options options = {.size = sizeof(options),
					       .copy = TIDL_COPY_NEVER,
					       .block_count = 1,
					       .blocks = &block};
	uint64_t start = bench_now_ns();

	check(tidl_publish(client, "bench/moved", &bench->managed, &options, NULL), "publish");
	start = bench_note(bench, MOVE, start);
	for (size_t i = 0; i < bench->bytes; i += PAGE_BYTES)
		((volatile unsigned char *)bench->memory)[i] = 1;
	start = bench_note(bench, TOUCH, start);
	check(tidl_unshare(client, "bench/moved"), "unshare");
	(void)bench_note(bench, UNSHARE, start);
}

static void bench_print(struct bench *bench)
{
	double floor_us = 0;

	printf("\n%zu MiB                                     median us, against pwrite\n",
	       bench->bytes >> 20);
	for (size_t i = 0; i < OPERATION_COUNT; i++) {
		struct bench_round round = bench_samples_finish(&bench->samples[i]);

		if (i == WRITE)
			floor_us = round.p50_us;
		printf("  %-36s %12.0f %9.2f\n", titles[i], round.p50_us, round.p50_us / floor_us);
	}
}

int main(int argc, char **argv)
{
	long rounds = argc > 1 ? strtol(argv[1], NULL, 10) : ROUNDS_DEFAULT;
	struct tidl_client *client;
	struct bench bench;

	if (rounds < 1 || argc > 2) {
		fputs("usage: bench_inplace [ROUNDS]\n", stderr);
		return 2;
	}
	check(tidl_connect(NULL, &client), "connect");
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		bench_init(&bench, sizes[i]);
		for (long round = 0; round < rounds; round++) {
			write_run(&bench);
			copy_run(&bench);
			move_run(&bench, client);
		}
		bench_print(&bench);
		bench_deinit(&bench);
	}
	tidl_disconnect(client);
	return 0;
}
