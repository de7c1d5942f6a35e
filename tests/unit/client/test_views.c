/* SPDX-License-Identifier: Apache-2.0 */
/* Views of allocated memory are published as they are; everything else is copied once. */
#include <sys/resource.h>
#include <unistd.h>

#include <dlpack/dlpack.h>

#include "tests/support/leak.h"
#include "tests/unit/client/support/broker.h"
#include "tests/unit/client/support/foreign.h"
#include "tests/unit/client/support/memory.h"

enum { ROWS = 4, COLUMNS = 6 };

static const int64_t shape[] = {ROWS, COLUMNS};

struct world {
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_client *other;
	struct tidl_tensor *tensor; /* 0 to 23 */
	float *data;
};

static void world_init(struct world *world)
{
	tt_broker_start(&world->broker);
	world->client = tt_broker_connect(&world->broker);
	world->other = tt_broker_connect(&world->broker);
	world->tensor = tt_tensor_counting(world->client, 2, shape);
	world->data = tidl_tensor_data(world->tensor);
}

static void world_deinit(struct world *world)
{
	tidl_tensor_unref(world->tensor);
	tidl_disconnect(world->other);
	tidl_disconnect(world->client);
	tt_broker_stop(&world->broker);
}

struct view_case {
	const char *name;
	int first; /* element that is the view's first */
	int32_t ndim;
	int64_t shape[4];
	int64_t strides[4];
};

static const struct view_case views[] = {
	{"whole", 0, 2, {ROWS, COLUMNS}, {COLUMNS, 1}},
	{"permuted", 0, 2, {COLUMNS, ROWS}, {1, COLUMNS}},
	{"row", 6, 1, {COLUMNS}, {1}},
	{"column", 2, 1, {ROWS}, {COLUMNS}},
	{"every-other", 1, 2, {ROWS, 3}, {COLUMNS, 2}},
	{"backwards", 23, 1, {24}, {-1}},
	{"rows-backwards", 18, 2, {ROWS, COLUMNS}, {-COLUMNS, 1}},
	{"broadcast", 5, 2, {3, 4}, {0, 0}},
	{"scalar", 9, 0, {0}, {0}},
	{"one", 9, 3, {1, 1, 1}, {999, -5, 0}},
	{"deep", 0, 4, {2, 2, 2, 3}, {12, 6, 3, 1}},
	{"overlapping", 0, 2, {5, 4}, {1, 1}},
};

static float view_at(const float *data, const int64_t *strides, const int64_t *extents,
		     int32_t ndim, int64_t index)
{
	int64_t offset = 0;

	for (int32_t i = ndim - 1; i >= 0; i--) {
		offset += index % extents[i] * strides[i];
		index /= extents[i];
	}
	return data[offset];
}

static int64_t view_count(const struct view_case *view)
{
	int64_t count = 1;

	for (int32_t i = 0; i < view->ndim; i++)
		count *= view->shape[i];
	return count;
}

static void assert_same_elements(const struct view_case *view, const float *expected,
				 struct tidl_tensor *seen)
{
	cr_assert_eq(tidl_tensor_ndim(seen), (uint32_t)view->ndim, "%s", view->name);
	for (int32_t i = 0; i < view->ndim; i++)
		cr_assert_eq(tidl_tensor_shape(seen)[i], view->shape[i], "%s", view->name);
	for (int64_t i = 0; i < view_count(view); i++)
		cr_assert_float_eq(view_at(tidl_tensor_data(seen), tidl_tensor_strides(seen),
					   view->shape, view->ndim, i),
				   view_at(expected, view->strides, view->shape, view->ndim, i),
				   0.0f, "%s, element %ld", view->name, (long)i);
}

TT_TEST(views, of_allocated_memory_are_not_copied, .timeout = 60)
{
	struct world world;

	world_init(&world);
	for (size_t i = 0; i < TDP_ARRAY_LENGTH(views); i++) {
		const struct view_case *view = &views[i];
		struct tidl_publish_options options = {
			.size = sizeof(options),
			.copy = TIDL_COPY_NEVER,
		};
		struct tidl_publication publication = {.size = sizeof(publication)};
		struct tt_foreign foreign;
		struct tidl_tensor *seen;

		tt_foreign_init(&foreign, world.data + view->first, view->ndim, view->shape,
				view->strides);
		cr_assert_eq(tidl_publish(world.client, view->name, &foreign.managed, &options,
					  &publication),
			     0, "%s: %s", view->name, tidl_last_error());
		cr_assert_eq(foreign.deleted, 1);
		cr_assert_eq(publication.copied, 0);
		cr_assert_eq(publication.path, TIDL_PATH_ALLOCATED);
		seen = tt_get(world.other, view->name, TIDL_ATTACH_WRITE);
		assert_same_elements(view, world.data + view->first, seen);
		/* The first element is the same memory. */
		*(float *)tidl_tensor_data(seen) += 100.0f;
		cr_assert_float_eq(world.data[view->first], *(float *)tidl_tensor_data(seen), 0.0f);
		tidl_tensor_unref(seen);
	}
	world_deinit(&world);
}

TT_TEST(views, of_foreign_memory_are_copied_once, .timeout = 60)
{
	static float memory[ROWS * COLUMNS];
	struct world world;

	world_init(&world);
	for (size_t i = 0; i < ROWS * COLUMNS; i++)
		memory[i] = (float)i * 0.5f;
	for (size_t i = 0; i < TDP_ARRAY_LENGTH(views); i++) {
		const struct view_case *view = &views[i];
		struct tidl_publication publication = {.size = sizeof(publication)};
		struct tidl_publish_options never = {
			.size = sizeof(never),
			.copy = TIDL_COPY_NEVER,
		};
		struct tt_foreign foreign;
		struct tidl_tensor *seen;
		float first = memory[view->first];

		tt_foreign_init(&foreign, memory, view->ndim, view->shape, view->strides);
		foreign.managed.dl_tensor.byte_offset = (uint64_t)view->first * sizeof(float);
		foreign.legacy.dl_tensor = foreign.managed.dl_tensor;
		cr_assert_eq(tidl_publish(world.client, view->name, &foreign.managed, &never, NULL),
			     TIDL_ERR_COPY_NEEDED);
		cr_assert_eq(foreign.deleted, 0);
		cr_assert_eq(tidl_publish_legacy(world.client, view->name, &foreign.legacy, NULL,
						 &publication),
			     0, "%s: %s", view->name, tidl_last_error());
		cr_assert_eq(foreign.deleted, 1);
		cr_assert_eq(publication.copied, 1);
		cr_assert_eq(publication.path, TIDL_PATH_COPIED);
		cr_assert_eq(publication.reason, TIDL_COPY_REASON_FOREIGN);
		seen = tt_get(world.other, view->name, TIDL_ATTACH_WRITE);
		assert_same_elements(view, memory + view->first, seen);
		/* A snapshot: neither side sees the other's writes. */
		*(float *)tidl_tensor_data(seen) = -1.0f;
		cr_assert_float_eq(memory[view->first], first, 0.0f);
		tidl_tensor_unref(seen);
		/* Packets of one connection are read in order, so each must be asked on its own. */
		(void)tt_holder_count(world.other, view->name);
		cr_assert_eq(tt_holder_count(world.client, view->name), 0,
			     "the publisher of a copy keeps nothing");
	}
	world_deinit(&world);
}

TT_TEST(views, a_view_that_leaves_the_segment_is_foreign, .timeout = 60)
{
	struct world world;
	struct tt_foreign foreign;
	struct tidl_publish_options never = {.size = sizeof(never), .copy = TIDL_COPY_NEVER};
	int64_t extent = getpagesize() / (int64_t)sizeof(float) + 1;
	int64_t stride = 1;

	world_init(&world);
	tt_foreign_init(&foreign, world.data, 1, &extent, &stride);
	cr_assert_eq(tidl_publish(world.client, "x", &foreign.managed, &never, NULL),
		     TIDL_ERR_COPY_NEEDED);
	extent = 1;
	tt_foreign_init(&foreign, world.data - 1, 1, &extent, &stride);
	cr_assert_eq(tidl_publish(world.client, "x", &foreign.managed, &never, NULL),
		     TIDL_ERR_COPY_NEEDED);
	world_deinit(&world);
}

TT_TEST(views, memory_that_is_not_there_is_an_error_not_a_crash, .timeout = 60)
{
	struct world world;
	struct tt_foreign foreign;
	int64_t extent = 4;

	world_init(&world);
	tt_foreign_init(&foreign, (void *)4096, 1, &extent, NULL);
	cr_assert_eq(tidl_publish(world.client, "x", &foreign.managed, NULL, NULL), TIDL_ERR_LAYOUT,
		     "%s", tidl_last_error());
	cr_assert_eq(foreign.deleted, 0);
	world_deinit(&world);
}

TT_TEST(views, a_limit_of_file_sizes_is_not_one_of_tensors, .timeout = 60)
{
	static float memory[8192];
	struct world world;
	struct tt_foreign foreign;
	struct tidl_tensor *tensor, *seen;
	struct rlimit limit, low;
	int64_t extent = 8192;

	world_init(&world);
	memory[8191] = 3.0f;
	tt_foreign_init(&foreign, memory, 1, &extent, NULL);
	cr_assert_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
	low = limit;
	low.rlim_cur = 4096;
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &low), 0);
	cr_assert_eq(tidl_publish(world.client, "x", &foreign.managed, NULL, NULL), 0, "%s",
		     tidl_last_error());
	cr_assert_eq(tidl_empty(world.client, 1, &extent, tt_float32, &tensor), 0, "%s",
		     tidl_last_error());
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	seen = tt_get(world.other, "x", TIDL_ATTACH_READ);
	cr_assert_float_eq(((float *)tidl_tensor_data(seen))[8191], 3.0f, 0.0f);
	tidl_tensor_unref(seen);
	tidl_tensor_unref(tensor);
	world_deinit(&world);
}

static enum tidl_copy_reason publish_reason(struct tidl_client *client, void *data,
					    enum tidl_copy copy, enum tidl_path *ret_path)
{
	struct tidl_publish_options options = {.size = sizeof(options), .copy = copy, .replace = 1};
	struct tidl_publication publication = {.size = sizeof(publication)};
	struct tt_foreign foreign;

	tt_foreign_init(&foreign, data, 2, shape, NULL);
	cr_assert_eq(tidl_publish(client, "reason", &foreign.managed, &options, &publication), 0,
		     "%s", tidl_last_error());
	*ret_path = publication.path;
	cr_assert_eq(publication.copied, publication.path == TIDL_PATH_COPIED);
	return publication.reason;
}

TT_TEST(views, each_copy_has_its_reason, .timeout = 60)
{
	struct world world;
	struct tidl_tensor *attached, *reader, *private;
	enum tidl_path path;

	world_init(&world);
	tt_publish(world.client, "x", world.tensor, NULL, NULL);
	cr_assert_eq(publish_reason(world.client, world.data, TIDL_COPY_ALWAYS, &path),
		     TIDL_COPY_REASON_REQUESTED);
	cr_assert_eq(path, TIDL_PATH_COPIED);
	cr_assert_eq(publish_reason(world.other, world.data, TIDL_COPY_IF_NEEDED, &path),
		     TIDL_COPY_REASON_OTHER_BROKER);
	cr_assert_eq(path, TIDL_PATH_COPIED);
	attached = tt_get(world.other, "x", TIDL_ATTACH_WRITE);
	cr_assert_eq(
		publish_reason(world.other, tidl_tensor_data(attached), TIDL_COPY_IF_NEEDED, &path),
		TIDL_COPY_REASON_NONE);
	cr_assert_eq(path, TIDL_PATH_ATTACHED);
	reader = tt_get(world.other, "x", TIDL_ATTACH_READ);
	cr_assert_eq(
		publish_reason(world.other, tidl_tensor_data(reader), TIDL_COPY_IF_NEEDED, &path),
		TIDL_COPY_REASON_NONE);
	cr_assert_eq(path, TIDL_PATH_ATTACHED);
	tidl_tensor_unref(attached);
	tidl_tensor_unref(reader);
	world.tensor = tidl_tensor_unref(world.tensor);
	(void)tt_holder_count(world.client, "x");
	private = tt_get(world.other, "x", TIDL_ATTACH_COPY_ON_WRITE);
	cr_assert_eq(
		publish_reason(world.other, tidl_tensor_data(private), TIDL_COPY_IF_NEEDED, &path),
		TIDL_COPY_REASON_PRIVATE_MAP);
	tidl_tensor_unref(private);
	world_deinit(&world);
}

/* ---- asking before publishing ---- */

static enum tidl_copy_reason reason_of(struct tidl_client *client, const void *address,
				       size_t bytes)
{
	enum tidl_copy_reason reason = TIDL_COPY_REASON_REQUESTED;

	cr_assert_eq(tidl_recognise(client, address, bytes, &reason), 0, "%s", tidl_last_error());
	return reason;
}

TT_TEST(views, memory_is_recognised_without_publishing_it, .timeout = 60)
{
	struct tidl_publish_options immutable = {.size = sizeof(immutable),
						 .access = TIDL_ACCESS_IMMUTABLE};
	struct world world;
	struct tidl_tensor *writer, *sealed, *private;
	float foreign = 1;

	world_init(&world);
	cr_expect_eq(reason_of(world.client, world.data, sizeof(float) * ROWS * COLUMNS),
		     TIDL_COPY_REASON_NONE);
	cr_expect_eq(reason_of(world.client, world.data + 7, 1), TIDL_COPY_REASON_NONE);
	cr_expect_eq(reason_of(world.client, world.data + 7, 1 << 20), TIDL_COPY_REASON_FOREIGN);
	cr_expect_eq(reason_of(world.client, &foreign, sizeof(foreign)), TIDL_COPY_REASON_FOREIGN);
	cr_expect_eq(reason_of(world.other, world.data, 1), TIDL_COPY_REASON_OTHER_BROKER);
	tt_publish(world.client, "x", world.tensor, NULL, NULL);
	writer = tt_get(world.other, "x", TIDL_ATTACH_WRITE);
	cr_expect_eq(reason_of(world.other, tidl_tensor_data(writer), 1), TIDL_COPY_REASON_NONE);
	tidl_tensor_unref(writer);
	sealed = tt_tensor_counting(world.client, 2, shape);
	tt_publish(world.client, "sealed", sealed, &immutable, NULL);
	private = tt_get(world.other, "sealed", TIDL_ATTACH_COPY_ON_WRITE);
	cr_expect_eq(reason_of(world.other, tidl_tensor_data(private), 1),
		     TIDL_COPY_REASON_PRIVATE_MAP);
	tidl_tensor_unref(private);
	tidl_tensor_unref(sealed);
	world_deinit(&world);
}

TT_TEST(views, moved_memory_is_recognised_until_it_is_private, .timeout = 60)
{
	struct tt_world world;
	struct tt_memory memory;

	tt_world_init(&world);
	tt_memory_init(&memory, 16 * TT_PAGE_BYTES);
	cr_expect_eq(reason_of(world.client, memory.data, memory.bytes), TIDL_COPY_REASON_FOREIGN);
	cr_assert_eq(tt_memory_publish(&memory, world.client, "x"), 0, "%s", tidl_last_error());
	cr_expect_eq(reason_of(world.client, memory.data, memory.bytes), TIDL_COPY_REASON_NONE);
	cr_assert_eq(tidl_unshare(world.client, "x"), 0, "%s", tidl_last_error());
	cr_expect_eq(reason_of(world.client, memory.data, memory.bytes), TIDL_COPY_REASON_FOREIGN);
	tt_memory_deinit(&memory);
	tt_world_deinit(&world);
}

TT_TEST(views, what_is_no_memory_cannot_be_asked_for, .timeout = 60)
{
	enum tidl_copy_reason reason = TIDL_COPY_REASON_REQUESTED;
	struct world world;

	world_init(&world);
	cr_expect_eq(tidl_recognise(NULL, world.data, 1, &reason), TIDL_ERR_INVALID_ARGUMENT);
	cr_expect_eq(tidl_recognise(world.client, NULL, 1, &reason), TIDL_ERR_INVALID_ARGUMENT);
	cr_expect_eq(tidl_recognise(world.client, world.data, 0, &reason),
		     TIDL_ERR_INVALID_ARGUMENT);
	cr_expect_eq(tidl_recognise(world.client, world.data, SIZE_MAX, &reason),
		     TIDL_ERR_INVALID_ARGUMENT);
	cr_expect_eq(tidl_recognise(world.client, world.data, 1, NULL), TIDL_ERR_INVALID_ARGUMENT);
	cr_expect_eq(reason, TIDL_COPY_REASON_REQUESTED);
	world_deinit(&world);
}

TT_TEST(views, tensors_without_elements, .timeout = 60)
{
	static const int64_t shapes[][3] = {{0}, {3, 0}, {0, 4, 2}};
	struct world world;

	world_init(&world);
	for (uint32_t i = 0; i < TDP_ARRAY_LENGTH(shapes); i++) {
		struct tidl_publication publication = {.size = sizeof(publication)};
		struct tidl_publish_options options = {.size = sizeof(options), .replace = 1};
		struct tidl_tensor *tensor, *seen;
		struct tt_foreign foreign;

		cr_assert_eq(tidl_empty(world.client, i + 1, shapes[i], tt_float32, &tensor), 0);
		cr_assert_null(tidl_tensor_data(tensor));
		cr_assert_eq(tidl_tensor_nbytes(tensor), 0);
		tt_publish(world.client, "empty", tensor, &options, &publication);
		cr_assert_eq(publication.path, TIDL_PATH_EMPTY);
		cr_assert_eq(publication.exposed_bytes, 0);
		tidl_tensor_unref(tensor);
		seen = tt_get(world.other, "empty", TIDL_ATTACH_WRITE);
		cr_assert_null(tidl_tensor_data(seen));
		cr_assert_eq(tidl_tensor_ndim(seen), i + 1);
		tidl_tensor_unref(seen);
		tt_foreign_init(&foreign, (void *)8, (int32_t)(i + 1), shapes[i], NULL);
		cr_assert_eq(tidl_publish(world.client, "empty", &foreign.managed, &options,
					  &publication),
			     0);
		cr_assert_eq(publication.copied, 0);
		cr_assert_eq(publication.path, TIDL_PATH_EMPTY);
	}
	world_deinit(&world);
}

TT_TEST(views, rank_0, .timeout = 60)
{
	struct world world;
	struct tidl_tensor *tensor, *seen;
	DLManagedTensorVersioned *managed = NULL;
	DLManagedTensor *legacy = NULL;

	world_init(&world);
	cr_assert_eq(tidl_empty(world.client, 0, NULL, tt_float32, &tensor), 0);
	cr_assert_eq(tidl_tensor_nbytes(tensor), 4);
	*(float *)tidl_tensor_data(tensor) = 2.5f;
	tt_publish(world.client, "scalar", tensor, NULL, NULL);
	seen = tt_get(world.other, "scalar", TIDL_ATTACH_WRITE);
	cr_assert_float_eq(*(float *)tidl_tensor_data(seen), 2.5f, 0.0f);
	cr_assert_eq(tidl_tensor_export(seen, &managed), 0);
	cr_assert_null(managed->dl_tensor.shape);
	cr_assert_null(managed->dl_tensor.strides);
	managed->deleter(managed);
	cr_assert_eq(tidl_tensor_export_legacy(seen, 0, &legacy), 0);
	cr_assert_not_null(legacy->dl_tensor.shape);
	cr_assert_not_null(legacy->dl_tensor.strides);
	legacy->deleter(legacy);
	tidl_tensor_unref(seen);
	tidl_tensor_unref(tensor);
	world_deinit(&world);
}

TT_TEST(views, every_data_type_keeps_its_bits, .timeout = 60)
{
	static const struct tidl_dtype types[] = {
		{kDLInt, 8, 1},
		{kDLInt, 64, 1},
		{kDLUInt, 16, 1},
		{kDLFloat, 16, 1},
		{kDLFloat, 64, 1},
		{kDLFloat, 32, 4},
		{kDLBfloat, 16, 1},
		{kDLComplex, 64, 1},
		{kDLComplex, 128, 1},
		{kDLBool, 8, 1},
		{kDLFloat8_e3m4, 8, 1},
		{kDLFloat8_e4m3fn, 8, 1},
		{kDLFloat8_e8m0fnu, 8, 1},
		{kDLFloat6_e2m3fn, 6, 1},
		{kDLFloat4_e2m1fn, 4, 1},
		{kDLFloat4_e2m1fn, 4, 2},
	};
	static const int64_t extents[] = {3, 5};
	struct world world;

	world_init(&world);
	for (size_t i = 0; i < TDP_ARRAY_LENGTH(types); i++) {
		struct tidl_publish_options options = {.size = sizeof(options), .replace = 1};
		struct tidl_tensor *tensor, *seen;
		struct tidl_dtype dtype;

		cr_assert_eq(tidl_empty(world.client, 2, extents, types[i], &tensor), 0, "%s",
			     tidl_last_error());
		for (uint64_t j = 0; j < tidl_tensor_nbytes(tensor); j++)
			((unsigned char *)tidl_tensor_data(tensor))[j] = (unsigned char)(j * 7 + 1);
		tt_publish(world.client, "typed", tensor, &options, NULL);
		seen = tt_get(world.other, "typed", TIDL_ATTACH_READ);
		dtype = tidl_tensor_dtype(seen);
		cr_assert_eq(memcmp(&dtype, &types[i], sizeof(dtype)), 0);
		cr_assert_eq(tidl_tensor_nbytes(seen), tidl_tensor_nbytes(tensor));
		cr_assert_eq(memcmp(tidl_tensor_data(seen), tidl_tensor_data(tensor),
				    tidl_tensor_nbytes(seen)),
			     0);
		tidl_tensor_unref(seen);
		tidl_tensor_unref(tensor);
	}
	world_deinit(&world);
}
