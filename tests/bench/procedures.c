/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations, one run each. Every procedure starts from the same state: the other side waits in
 * the kernel, nothing is on its way. tidl's one-way release is therefore followed by an untimed
 * round trip, which the floor's procedures make too.
 */
#include "tests/bench/procedures.h"

#include <err.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <dlpack/dlpack.h>

/* More sizes in turn than the library remembers to find those that come again. */
enum { UNUSUAL_SIZES = 11, PAGE_BYTES = 4096 };

/* First touch of one page; kept, so that the compiler cannot drop it. */
static void touch(struct bench_world *world, const void *memory)
{
	world->checksum += *(const volatile unsigned char *)memory;
}

/* A round trip to the broker, after which it has handled everything sent before. */
static void broker_settle(struct bench_world *world)
{
	struct tidl_tensor *tensor = NULL;

	if (tidl_get(world->client, "bench/nothing", NULL, &tensor) != TIDL_ERR_NOT_FOUND)
		errx(1, "the broker found what was never published");
}

static void round_trip_run(struct bench_world *world, size_t size_index,
			   struct bench_samples *samples)
{
	uint64_t start;

	(void)size_index;
	bench_floor_ping(&world->floor);
	start = bench_now_ns();
	bench_floor_ping(&world->floor);
	bench_samples_add(&samples[BENCH_ROUND_TRIP], bench_now_ns() - start);
}

static void floor_run(struct bench_world *world, size_t size_index, struct bench_samples *samples)
{
	uint64_t size_bytes = bench_sizes[size_index].bytes;
	uint64_t start;
	void *memory;
	int fd;

	bench_floor_ping(&world->floor);
	start = bench_now_ns();
	fd = bench_floor_fetch(&world->floor, size_index);
	memory = mmap(NULL, size_bytes, PROT_READ, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		err(1, "mmap");
	touch(world, memory);
	bench_samples_add(&samples[BENCH_FLOOR], bench_now_ns() - start);

	start = bench_now_ns();
	munmap(memory, size_bytes);
	close(fd);
	bench_samples_add(&samples[BENCH_FLOOR_RELEASE], bench_now_ns() - start);
}

static void copy_fresh_run(struct bench_world *world, size_t size_index,
			   struct bench_samples *samples)
{
	uint64_t size_bytes = bench_sizes[size_index].bytes;
	uint64_t start = bench_now_ns();
	int fd = memfd_create("tidl-bench-copy", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, (off_t)size_bytes) < 0 ||
	    pwrite(fd, world->source, size_bytes, 0) != (ssize_t)size_bytes)
		err(1, "copy into a fresh memfd");
	bench_samples_add(&samples[BENCH_COPY_FRESH], bench_now_ns() - start);
	close(fd);
}

static void copy_warm_run(struct bench_world *world, size_t size_index,
			  struct bench_samples *samples)
{
	uint64_t start = bench_now_ns();

	memcpy(world->warm, world->source, bench_sizes[size_index].bytes);
	touch(world, world->warm);
	bench_samples_add(&samples[BENCH_COPY_WARM], bench_now_ns() - start);
}

static void get_run(struct bench_world *world, size_t size_index, struct bench_samples *samples)
{
	struct tidl_tensor *tensor = NULL;
	char name[64];
	uint64_t start;

	bench_broker_name(bench_sizes[size_index].bytes, name);
	broker_settle(world);
	start = bench_now_ns();
	bench_check(tidl_get(world->client, name, NULL, &tensor), "get");
	touch(world, tidl_tensor_data(tensor));
	bench_samples_add(&samples[BENCH_GET], bench_now_ns() - start);

	start = bench_now_ns();
	tidl_tensor_unref(tensor);
	bench_samples_add(&samples[BENCH_RELEASE], bench_now_ns() - start);
	broker_settle(world);
}

static void get_again_run(struct bench_world *world, size_t size_index,
			  struct bench_samples *samples)
{
	struct tidl_tensor *first = NULL;
	struct tidl_tensor *again = NULL;
	char name[64];
	uint64_t start;

	bench_broker_name(bench_sizes[size_index].bytes, name);
	bench_check(tidl_get(world->client, name, NULL, &first), "get");
	touch(world, tidl_tensor_data(first));
	start = bench_now_ns();
	bench_check(tidl_get(world->client, name, NULL, &again), "get");
	touch(world, tidl_tensor_data(again));
	bench_samples_add(&samples[BENCH_GET_AGAIN], bench_now_ns() - start);
	if (tidl_tensor_data(first) != tidl_tensor_data(again))
		errx(1, "the second get mapped the memory again");
	tidl_tensor_unref(again);
	tidl_tensor_unref(first);
	broker_settle(world);
}

static void allocate_run(struct bench_world *world, size_t size_index,
			 struct bench_samples *samples)
{
	const int64_t shape[] = {(int64_t)bench_sizes[size_index].bytes};
	struct tidl_tensor *tensor = NULL;
	uint64_t start;

	broker_settle(world);
	start = bench_now_ns();
	bench_check(tidl_empty(world->client, 1, shape, bench_dtype, &tensor), "allocate");
	bench_samples_add(&samples[BENCH_ALLOCATE], bench_now_ns() - start);
	tidl_tensor_unref(tensor);
	broker_settle(world);
}

static void publish_run(struct bench_world *world, size_t size_index, struct bench_samples *samples)
{
	struct tidl_publication publication = {.size = sizeof(publication)};
	DLManagedTensorVersioned *managed = NULL;
	uint64_t start;

	bench_check(tidl_tensor_export(world->own[size_index], &managed), "export");
	broker_settle(world);
	start = bench_now_ns();
	bench_check(tidl_publish(world->client, "bench/own", managed, NULL, &publication),
		    "publish");
	bench_samples_add(&samples[BENCH_PUBLISH], bench_now_ns() - start);
	if (publication.copied)
		errx(1, "allocated memory was copied");
	bench_check(tidl_remove(world->client, "bench/own"), "remove");
}

static void publish_foreign(struct bench_world *world, uint64_t size_bytes, const char *name,
			    const struct tidl_publish_options *options)
{
	int64_t shape[] = {(int64_t)size_bytes};
	int64_t strides[] = {1};
	DLManagedTensorVersioned managed = {
		.version = {.major = DLPACK_MAJOR_VERSION, .minor = DLPACK_MINOR_VERSION},
		.dl_tensor =
			{
				.data = world->source,
				.device = {.device_type = kDLCPU},
				.ndim = 1,
				.dtype = {.code = kDLUInt, .bits = 8, .lanes = 1},
				.shape = shape,
				.strides = strides,
			},
	};
	struct tidl_publication publication = {.size = sizeof(publication)};

	bench_check(tidl_publish(world->client, name, &managed, options, &publication), "publish");
	if (!publication.copied)
		errx(1, "foreign memory was not copied");
}

/* A size that was not copied lately: a few pages less, or more where there is one only. */
static uint64_t unusual_size(uint64_t size_bytes)
{
	static unsigned int count;
	uint64_t pages_bytes = (uint64_t)(count++ % UNUSUAL_SIZES) * PAGE_BYTES;

	return size_bytes > UNUSUAL_SIZES * PAGE_BYTES ? size_bytes - pages_bytes
						       : size_bytes + pages_bytes;
}

static void publish_once_run(struct bench_world *world, size_t size_index,
			     struct bench_samples *samples)
{
	uint64_t size_bytes = unusual_size(bench_sizes[size_index].bytes);
	uint64_t start;

	broker_settle(world);
	start = bench_now_ns();
	publish_foreign(world, size_bytes, "bench/once", NULL);
	bench_samples_add(&samples[BENCH_PUBLISH_ONCE], bench_now_ns() - start);
	bench_check(tidl_remove(world->client, "bench/once"), "remove");
}

/* As frames are: each takes the place of the one before, whose memory comes back. */
static void publish_again_run(struct bench_world *world, size_t size_index,
			      struct bench_samples *samples)
{
	struct tidl_publish_options options = {.size = sizeof(options), .replace = 1};
	uint64_t start;

	broker_settle(world);
	start = bench_now_ns();
	publish_foreign(world, bench_sizes[size_index].bytes, "bench/again", &options);
	bench_samples_add(&samples[BENCH_PUBLISH_AGAIN], bench_now_ns() - start);
}

const struct bench_procedure bench_procedures[] = {
	{.run = floor_run},
	{.run = round_trip_run},
	{.run = get_run},
	{.run = get_again_run},
	{.run = publish_run},
	{.run = allocate_run, .is_size_bound = 1},
	{.run = publish_once_run, .is_size_bound = 1},
	{.run = publish_again_run, .is_size_bound = 1},
	{.run = copy_fresh_run, .is_size_bound = 1},
	{.run = copy_warm_run, .is_size_bound = 1},
};

const size_t bench_procedure_count = sizeof(bench_procedures) / sizeof(bench_procedures[0]);
