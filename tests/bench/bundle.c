/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `bench_bundle [ROUNDS]`: what a tensor costs in a bundle, published and attached at once, beside
 * the same tensors one by one. One client publishes, another one attaches. $TIDL_SOCKET says where
 * the broker is, which runs wherever the kernel puts it.
 */
#include "tests/bench/stats.h"

#include <err.h>
#include <stdio.h>
#include <stdlib.h>

#include <dlpack/dlpack.h>
#include <tidl/tidl.h>

enum { TENSOR_COUNT = 1000, TENSOR_FLOATS = 1024, ROUNDS_DEFAULT = 200, NAME_BYTES = 32 };

/* What is timed, in the order of the table. */
enum operation {
	DRAFT,
	PUBLISH,
	GET,
	TENSORS,
	RELEASE,
	SINGLE_PUBLISH,
	SINGLE_GET,
	OPERATION_COUNT
};

static const char *const titles[OPERATION_COUNT] = {
	[DRAFT] = "draft: 1,000 keys and DLPack structures",
	[PUBLISH] = "publish of the draft, allocated memory",
	[GET] = "get of the bundle, cold",
	[TENSORS] = "a tensor object for each",
	[RELEASE] = "release of all",
	[SINGLE_PUBLISH] = "1,000 single publishes",
	[SINGLE_GET] = "1,000 single gets",
};

struct bench {
	struct tidl_client *producer;
	struct tidl_client *consumer;
	struct tidl_tensor *memory; /* all tensors are rows of it */
	struct tidl_tensor *tensors[TENSOR_COUNT];
	DLManagedTensorVersioned rows[TENSOR_COUNT];
	int64_t shape[1];
	int64_t strides[1];
	struct bench_samples samples[OPERATION_COUNT];
};

static void check(int result, const char *what)
{
	if (result < 0)
		errx(1, "%s: %s (%s)", what, tidl_last_error(), tidl_error_name(result));
}

static void bench_init(struct bench *bench)
{
	static const struct tidl_dtype float32 = {.code = kDLFloat, .bits = 32, .lanes = 1};
	const int64_t shape[] = {TENSOR_COUNT, TENSOR_FLOATS};

	check(tidl_connect(NULL, &bench->producer), "connect");
	check(tidl_connect(NULL, &bench->consumer), "connect");
	check(tidl_empty(bench->producer, 2, shape, float32, &bench->memory), "allocate");
	bench->shape[0] = TENSOR_FLOATS;
	bench->strides[0] = 1;
	for (size_t i = 0; i < TENSOR_COUNT; i++)
		bench->rows[i] = (DLManagedTensorVersioned){
			.version = {.major = DLPACK_MAJOR_VERSION, .minor = DLPACK_MINOR_VERSION},
			.dl_tensor = {.data = (float *)tidl_tensor_data(bench->memory) +
					      i * TENSOR_FLOATS,
				      .device = {.device_type = kDLCPU},
				      .ndim = 1,
				      .dtype = {.code = kDLFloat, .bits = 32, .lanes = 1},
				      .shape = bench->shape,
				      .strides = bench->strides},
		};
}

static void bench_deinit(struct bench *bench)
{
	for (size_t i = 0; i < OPERATION_COUNT; i++)
		bench_samples_deinit(&bench->samples[i]);
	tidl_tensor_unref(bench->memory);
	tidl_disconnect(bench->consumer);
	tidl_disconnect(bench->producer);
}

/* Time since @start; the next operation starts now. */
static uint64_t bench_note(struct bench *bench, enum operation operation, uint64_t start)
{
	bench_samples_add(&bench->samples[operation], bench_now_ns() - start);
	return bench_now_ns();
}

static void bundle_run(struct bench *bench)
{
	const struct tidl_publish_options options = {.size = sizeof(options), .replace = 1};
	struct tidl_bundle *bundle = NULL;
	struct tidl_draft *draft = NULL;
	char key[NAME_BYTES];
	uint64_t start = bench_now_ns();

	check(tidl_draft_new(&draft), "draft");
	for (size_t i = 0; i < TENSOR_COUNT; i++) {
		(void)snprintf(key, sizeof(key), "layer.%zu.weight", i);
		check(tidl_draft_add(draft, key, &bench->rows[i]), "draft");
	}
	start = bench_note(bench, DRAFT, start);
	check(tidl_publish_bundle(bench->producer, "bench/bundle", draft, &options, NULL),
	      "publish");
	(void)bench_note(bench, PUBLISH, start);
	tidl_draft_free(draft);

	start = bench_now_ns();
	check(tidl_get_bundle(bench->consumer, "bench/bundle", NULL, &bundle), "get");
	start = bench_note(bench, GET, start);
	for (size_t i = 0; i < TENSOR_COUNT; i++)
		check(tidl_bundle_tensor(bundle, i, &bench->tensors[i]), "tensor");
	start = bench_note(bench, TENSORS, start);
	for (size_t i = 0; i < TENSOR_COUNT; i++)
		tidl_tensor_unref(bench->tensors[i]);
	tidl_bundle_unref(bundle);
	(void)bench_note(bench, RELEASE, start);
}

static void singles_run(struct bench *bench)
{
	const struct tidl_publish_options options = {.size = sizeof(options), .replace = 1};
	char name[NAME_BYTES];
	uint64_t start = bench_now_ns();

	for (size_t i = 0; i < TENSOR_COUNT; i++) {
		(void)snprintf(name, sizeof(name), "bench/single/%zu", i);
		check(tidl_publish(bench->producer, name, &bench->rows[i], &options, NULL),
		      "publish");
	}
	start = bench_note(bench, SINGLE_PUBLISH, start);
	for (size_t i = 0; i < TENSOR_COUNT; i++) {
		(void)snprintf(name, sizeof(name), "bench/single/%zu", i);
		check(tidl_get(bench->consumer, name, NULL, &bench->tensors[i]), "get");
	}
	(void)bench_note(bench, SINGLE_GET, start);
	for (size_t i = 0; i < TENSOR_COUNT; i++)
		tidl_tensor_unref(bench->tensors[i]);
}

static void bench_print(struct bench *bench)
{
	printf("\n%d tensors of %d bytes in one segment     median us, and for each tensor\n",
	       TENSOR_COUNT, (int)(TENSOR_FLOATS * sizeof(float)));
	for (size_t i = 0; i < OPERATION_COUNT; i++) {
		struct bench_round round = bench_samples_finish(&bench->samples[i]);

		printf("  %-42s %9.0f %9.3f\n", titles[i], round.p50_us,
		       round.p50_us / TENSOR_COUNT);
	}
}

int main(int argc, char **argv)
{
	static struct bench bench;
	long rounds = argc > 1 ? strtol(argv[1], NULL, 10) : ROUNDS_DEFAULT;

	if (rounds < 1 || argc > 2) {
		fputs("usage: bench_bundle [ROUNDS]\n", stderr);
		return 2;
	}
	bench_init(&bench);
	for (long i = 0; i < rounds; i++) {
		bundle_run(&bench);
		if (i % 10 == 0)
			singles_run(&bench);
	}
	bench_print(&bench);
	bench_deinit(&bench);
	return 0;
}
