/* SPDX-License-Identifier: Apache-2.0 */
/* Sets up the processes and the memory that the procedures use. Measures nothing. */
#include "tests/bench/world.h"

#include <err.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

const struct bench_size bench_sizes[BENCH_SIZE_COUNT] = {
	{.name = "4 KB", .bytes = 4096},
	{.name = "1 MB", .bytes = 1 << 20},
	{.name = "64 MB", .bytes = 64 << 20},
};

static uint64_t size_largest(void)
{
	return bench_sizes[BENCH_SIZE_COUNT - 1].bytes;
}

static char *memory_map(int fd, int flags)
{
	char *memory = mmap(NULL, size_largest(), PROT_READ | PROT_WRITE, flags, fd, 0);

	if (memory == MAP_FAILED)
		err(1, "mmap");
	memset(memory, 2, size_largest());
	return memory;
}

void bench_world_start(struct bench_world *world, const char *tidld, const char *address)
{
	uint64_t sizes_bytes[BENCH_SIZE_COUNT];
	int fd;

	for (size_t i = 0; i < BENCH_SIZE_COUNT; i++)
		sizes_bytes[i] = bench_sizes[i].bytes;
	bench_floor_start(&world->floor, sizes_bytes, BENCH_SIZE_COUNT);
	bench_broker_start(&world->broker, tidld, address);
	bench_broker_publish(&world->broker, sizes_bytes, BENCH_SIZE_COUNT);
	world->client = bench_broker_connect(&world->broker);

	for (size_t i = 0; i < BENCH_SIZE_COUNT; i++) {
		const int64_t shape[] = {(int64_t)sizes_bytes[i]};

		bench_check(tidl_empty(world->client, 1, shape, bench_dtype, &world->own[i]),
			    "allocate");
	}

	fd = memfd_create("tidl-bench-warm", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, (off_t)size_largest()) < 0)
		err(1, "memfd");
	world->warm = memory_map(fd, MAP_SHARED);
	close(fd);
	world->source = memory_map(-1, MAP_PRIVATE | MAP_ANONYMOUS);
}

void bench_world_stop(struct bench_world *world)
{
	munmap(world->source, size_largest());
	munmap(world->warm, size_largest());
	for (size_t i = 0; i < BENCH_SIZE_COUNT; i++)
		tidl_tensor_unref(world->own[i]);
	bench_broker_stop(&world->broker, world->client);
	bench_floor_stop(&world->floor);
}

void bench_world_place(struct bench_world *world, const struct bench_placement *placement)
{
	bench_pin(0, placement->client_cpu);
	bench_pin(world->floor.server, placement->server_cpu);
	bench_pin(world->broker.pid, placement->server_cpu);
}
