/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that was shared where it lay, and whatever is in the way of its end: a broker that has
 * died, other threads, limits of the process. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/lib/inplace/allocator.h"
#include "client/lib/inplace/move.h"
#include "client/lib/inplace/uses.h"
#include "tests/support/leak.h"
#include "tests/unit/client/support/limits.h"
#include "tests/unit/client/support/memory.h"

TT_TEST(inplace_ends, unshare_needs_no_broker)
{
	struct tt_world world;
	struct tt_memory memory;
	struct tidl_tensor *tensor;
	float *theirs;

	tt_world_init(&world);
	tt_memory_init(&memory, 16 * TT_PAGE_BYTES);
	cr_assert_eq(tt_memory_publish(&memory, world.client, "x"), 0, "%s", tidl_last_error());
	tensor = tt_get(world.other, "x", TIDL_ATTACH_WRITE);
	theirs = tidl_tensor_data(tensor);
	tt_broker_kill(&world.broker);
	cr_expect_eq(tidl_unshare(world.client, "x"), TIDL_ERR_BROKER_GONE, "%s",
		     tidl_last_error());
	cr_expect_not_null(strstr(tidl_last_error(), "private again"), "%s", tidl_last_error());
	cr_expect_eq(memory.foreign.deleted, 1);
	cr_expect(tt_memory_is_private(&memory));
	theirs[7] = -7;
	tt_memory_expect_intact(&memory);
	/* There is nothing left to do. */
	cr_expect_eq(tidl_unshare(world.client, "x"), TIDL_ERR_NOT_FOUND);
	tidl_tensor_unref(tensor);
	tt_memory_deinit(&memory);
	tt_world_deinit(&world);
}

/* Between the check and the end another thread has given the memory another name. */
TT_TEST(inplace_ends, memory_that_got_another_name_is_no_success)
{
	struct tt_world world;
	struct tt_memory memory;
	struct tt_memory view;
	struct tdp_fault fault;

	tt_world_init(&world);
	tt_memory_init(&memory, 16 * TT_PAGE_BYTES);
	cr_assert_eq(tt_memory_publish(&memory, world.client, "x"), 0, "%s", tidl_last_error());
	cr_assert_eq(tdc_unshare_check(world.client, "x", &fault), 0);
	cr_assert_eq(tidl_remove(world.client, "x"), 0);
	view = memory;
	tt_foreign_init(&view.foreign, memory.data + 100, 1, (const int64_t[]){50}, NULL);
	view.options = (struct tidl_publish_options){.size = sizeof(view.options)};
	cr_assert_eq(tt_memory_publish(&view, world.client, "view"), 0, "%s", tidl_last_error());
	cr_expect_eq(tdc_unshare(world.client, "x", &fault), TIDL_ERR_BUSY);
	cr_expect_not_null(strstr(fault.text, "'view'"), "%s", fault.text);
	cr_expect_eq(memory.foreign.deleted, 0);
	cr_assert_eq(tidl_unshare(world.client, "view"), 0, "%s", tidl_last_error());
	cr_expect_eq(memory.foreign.deleted, 1);
	cr_expect(tt_memory_is_private(&memory));
	tt_memory_deinit(&memory);
	tt_world_deinit(&world);
}

/* ---- at the limits of the process ---- */

#define PIECE_BYTES ((size_t)TDC_PIECE_BYTES)

/* Memory that is shared, and one who has it for writing. */
struct shared {
	struct tt_world world;
	struct tt_memory memory;
	struct tidl_tensor *tensor;
	float *theirs;
};

static void shared_init(struct shared *shared)
{
	tt_world_init(&shared->world);
	tt_memory_init(&shared->memory, 2 * PIECE_BYTES + 3 * TT_PAGE_BYTES);
	cr_assert_eq(tt_memory_publish(&shared->memory, shared->world.client, "x"), 0, "%s",
		     tidl_last_error());
	shared->tensor = tt_get(shared->world.other, "x", TIDL_ATTACH_WRITE);
	shared->theirs = tidl_tensor_data(shared->tensor);
}

static void shared_deinit(struct shared *shared)
{
	tidl_tensor_unref(shared->tensor);
	tt_memory_deinit(&shared->memory);
	tt_world_deinit(&shared->world);
}

/* Nothing that they write is seen any more. */
static void shared_expect_ended(struct shared *shared)
{
	cr_expect_eq(shared->memory.foreign.deleted, 1);
	for (size_t i = 0; i < shared->memory.bytes / TT_ELEMENT_BYTES; i += 512)
		shared->theirs[i] = -1;
	tt_memory_expect_intact(&shared->memory);
}

TT_TEST(inplace_ends, without_a_descriptor_left)
{
	struct shared shared;
	int result;

	shared_init(&shared);
	tt_limit_descriptors(1);
	result = tidl_unshare(shared.world.client, "x");
	tt_limit_descriptors(0);
	cr_expect_eq(result, 0, "%s", tidl_last_error());
	shared_expect_ended(&shared);
	cr_expect(tt_memory_is_private(&shared.memory));
	shared_deinit(&shared);
}

TT_TEST(inplace_ends, where_userfaultfd_is_forbidden_by_then)
{
	struct shared shared;

	shared_init(&shared);
	tt_forbid_userfaultfd();
	cr_expect_eq(tidl_unshare(shared.world.client, "x"), 0, "%s", tidl_last_error());
	shared_expect_ended(&shared);
	cr_expect(tt_memory_is_private(&shared.memory));
	/* And now it cannot be shared any more. */
	cr_expect_eq(tt_memory_publish(&shared.memory, shared.world.client, "x"),
		     TIDL_ERR_COPY_NEEDED);
	shared_deinit(&shared);
}

TT_TEST(inplace_ends, without_an_address_left)
{
	struct shared shared;
	int result;

	shared_init(&shared);
	tt_limit_addresses(0);
	result = tidl_unshare(shared.world.client, "x");
	tt_limit_addresses(SIZE_MAX);
	cr_expect_eq(result, 0, "%s", tidl_last_error());
	shared_expect_ended(&shared);
	shared_deinit(&shared);
}

TT_TEST(inplace_ends, without_anything_left)
{
	struct shared shared;
	int result;

	shared_init(&shared);
	tt_forbid_userfaultfd();
	tt_limit_addresses(0);
	tt_limit_descriptors(1);
	result = tidl_disconnect(shared.world.client);
	tt_limit_descriptors(0);
	tt_limit_addresses(SIZE_MAX);
	shared.world.client = NULL;
	cr_expect_eq(result, 0, "%s", tidl_last_error());
	shared_expect_ended(&shared);
	shared_deinit(&shared);
}

static void require_plain_malloc(void)
{
	if (tdc_malloc_refusal() != TIDL_COPY_REASON_NONE)
		cr_skip_test("a sanitizer needs maps for itself");
}

TT_TEST(inplace_ends, without_a_map_left)
{
	struct shared shared;
	int result;

	require_plain_malloc();
	shared_init(&shared);
	tt_limit_maps(0);
	result = tidl_unshare(shared.world.client, "x");
	tt_limit_maps(SIZE_MAX);
	cr_expect_eq(result, 0, "%s", tidl_last_error());
	shared_expect_ended(&shared);
	shared_deinit(&shared);
}

TT_TEST(inplace_ends, without_a_map_left_nothing_is_moved)
{
	struct tt_world world;
	struct tt_memory memory;
	int result;

	require_plain_malloc();
	tt_world_init(&world);
	tt_memory_init(&memory, 2 * PIECE_BYTES + 3 * TT_PAGE_BYTES);
	tt_limit_maps(0);
	result = tt_memory_publish(&memory, world.client, "x");
	tt_limit_maps(SIZE_MAX);
	cr_expect_eq(result, TIDL_ERR_NO_MEMORY, "%s", tidl_last_error());
	cr_expect(tt_memory_is_private(&memory));
	tt_memory_expect_intact(&memory);
	cr_assert_eq(tt_memory_publish(&memory, world.client, "x"), 0, "%s", tidl_last_error());
	cr_assert_eq(tidl_unshare(world.client, "x"), 0, "%s", tidl_last_error());
	tt_memory_expect_intact(&memory);
	tt_memory_deinit(&memory);
	tt_world_deinit(&world);
}

enum { RANGES = 200 };

/* A bundle of many ranges, each of which takes maps. */
struct ranges {
	struct tidl_draft *draft;
	struct tt_memory memories[RANGES];
	struct tidl_block blocks[RANGES];
	struct tidl_publish_options options;
};

static void ranges_init(struct ranges *ranges)
{
	cr_assert_eq(tidl_draft_new(&ranges->draft), 0);
	for (size_t i = 0; i < RANGES; i++) {
		char key[8];

		(void)snprintf(key, sizeof(key), "%zu", i);
		tt_memory_init(&ranges->memories[i], 4 * TT_PAGE_BYTES);
		ranges->blocks[i] = ranges->memories[i].block;
		cr_assert_eq(
			tidl_draft_add(ranges->draft, key, &ranges->memories[i].foreign.managed),
			0);
	}
	ranges->options = (struct tidl_publish_options){
		.size = sizeof(ranges->options),
		.copy = TIDL_COPY_NEVER,
		.block_count = RANGES,
		.blocks = ranges->blocks,
	};
}

static void ranges_expect_private(const struct ranges *ranges)
{
	for (size_t i = 0; i < RANGES; i++) {
		cr_assert(tt_memory_is_private(&ranges->memories[i]), "%zu", i);
		tt_memory_expect_intact(&ranges->memories[i]);
	}
}

TT_TEST(inplace_ends, many_ranges_at_the_limit_of_maps)
{
	static struct ranges ranges;
	struct tt_world world;
	int result;

	require_plain_malloc();
	tt_world_init(&world);
	ranges_init(&ranges);
	/* In the middle there are no more. */
	tt_limit_maps(RANGES);
	result = tidl_publish_bundle(world.client, "b", ranges.draft, &ranges.options, NULL);
	tt_limit_maps(SIZE_MAX);
	cr_expect_eq(result, TIDL_ERR_NO_MEMORY, "%s", tidl_last_error());
	ranges_expect_private(&ranges);
	cr_assert_eq(tidl_publish_bundle(world.client, "b", ranges.draft, &ranges.options, NULL), 0,
		     "%s", tidl_last_error());
	tidl_draft_free(ranges.draft);
	tt_limit_maps(0);
	result = tidl_unshare(world.client, "b");
	tt_limit_maps(SIZE_MAX);
	cr_expect_eq(result, 0, "%s", tidl_last_error());
	for (size_t i = 0; i < RANGES; i++) {
		cr_expect_eq(ranges.memories[i].foreign.deleted, 1);
		tt_memory_expect_intact(&ranges.memories[i]);
		tt_memory_deinit(&ranges.memories[i]);
	}
	tt_world_deinit(&world);
}

enum { MANY_DESCRIPTORS = 100 };

/* A process with many descriptors keeps none for this, and may have to try again. */
TT_TEST(inplace_ends, where_no_descriptor_is_kept)
{
	struct rlimit before;
	struct rlimit few;
	struct shared shared;
	int others[MANY_DESCRIPTORS];
	int result;

	cr_assert_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	for (size_t i = 0; i < MANY_DESCRIPTORS; i++)
		others[i] = dup(0);
	few = (struct rlimit){.rlim_cur = 2UL * MANY_DESCRIPTORS, .rlim_max = before.rlim_max};
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	shared_init(&shared);
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
	for (size_t i = 0; i < MANY_DESCRIPTORS; i++)
		cr_assert_eq(close(others[i]), 0);
	tt_limit_addresses(0);
	result = tidl_unshare(shared.world.client, "x");
	tt_limit_addresses(SIZE_MAX);
	cr_expect_eq(result, TIDL_ERR_NO_MEMORY);
	cr_expect_eq(shared.memory.foreign.deleted, 0);
	cr_assert_eq(tidl_unshare(shared.world.client, "x"), 0, "%s", tidl_last_error());
	shared_expect_ended(&shared);
	shared_deinit(&shared);
}

static int fail_to_copy(enum tdc_move_step step, size_t piece)
{
	return step == TDC_MOVE_BACK && piece == 1 ? ENOMEM : 0;
}

static int fail_on_any_way_back(enum tdc_move_step step, size_t piece)
{
	(void)piece;
	return step != TDC_MOVE_THERE ? ENOMEM : 0;
}

TT_TEST(inplace_ends, what_cannot_be_copied_is_mapped_privately)
{
	struct shared shared;

	shared_init(&shared);
	tdc_move_hook = fail_to_copy;
	cr_expect_eq(tidl_unshare(shared.world.client, "x"), 0, "%s", tidl_last_error());
	tdc_move_hook = NULL;
	shared_expect_ended(&shared);
	shared_deinit(&shared);
}

/* Seals are against writing what is shared. */
TT_TEST(inplace_ends, so_is_sealed_memory)
{
	static const enum tidl_access accesses[] = {TIDL_ACCESS_LIVE, TIDL_ACCESS_IMMUTABLE};
	struct tt_world world;
	struct tt_memory memory;

	tt_world_init(&world);
	for (size_t i = 0; i < sizeof(accesses) / sizeof(accesses[0]); i++) {
		tt_memory_init(&memory, 2 * PIECE_BYTES);
		memory.options.access = accesses[i];
		cr_assert_eq(tt_memory_publish(&memory, world.client, "x"), 0, "%s",
			     tidl_last_error());
		tdc_move_hook = fail_to_copy;
		cr_expect_eq(tidl_unshare(world.client, "x"), 0, "%s", tidl_last_error());
		tdc_move_hook = NULL;
		tt_memory_expect_intact(&memory);
		memory.data[7] = -7; /* would end the process in read-only memory */
		tt_memory_deinit(&memory);
	}
	tt_world_deinit(&world);
}

TT_TEST(inplace_ends, disconnect_says_what_stays_shared)
{
	struct shared shared;

	shared_init(&shared);
	tdc_move_hook = fail_on_any_way_back;
	tidl_close(shared.world.client);
	cr_expect_eq(shared.memory.foreign.deleted, 0);
	cr_expect_eq(tidl_disconnect(shared.world.client), TIDL_ERR_NO_MEMORY);
	tdc_move_hook = NULL;
	shared.world.client = NULL;
	cr_expect_not_null(strstr(tidl_last_error(), "'x'"), "%s", tidl_last_error());
	cr_expect_not_null(strstr(tidl_last_error(), "4206592 bytes"), "%s", tidl_last_error());
	cr_expect_eq(shared.memory.foreign.deleted, 1);
	shared.theirs[7] = -7;
	cr_expect_eq(shared.memory.data[7], -7);
	shared_deinit(&shared);
}

/* ---- in children ---- */

/* Exit codes of a child say what went wrong. */
static void child_end(struct shared *shared)
{
	struct tt_memory *memory = &shared->memory;

	tt_forbid_userfaultfd();
	if (tidl_disconnect(shared->world.client) != 0)
		_exit(1);
	if (!tt_memory_is_private(memory))
		_exit(2);
	memory->data[5] = -5;
	_exit(memory->data[7] == 7 ? 0 : 3);
}

TT_TEST(inplace_ends, a_child_has_private_memory_of_its_own)
{
	struct shared shared;
	int status = -1;
	pid_t pid;

	shared_init(&shared);
	pid = fork();
	if (pid == 0)
		child_end(&shared);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_expect_eq(status, 0, "%d", WEXITSTATUS(status));
	/* Nothing of it was done to the parent. */
	shared.theirs[7] = -7;
	cr_expect_eq(shared.memory.data[7], -7);
	cr_expect_eq(shared.memory.data[5], 5);
	shared.memory.data[7] = 7;
	cr_assert_eq(tidl_unshare(shared.world.client, "x"), 0, "%s", tidl_last_error());
	shared_expect_ended(&shared);
	shared_deinit(&shared);
}

static pthread_t forker;
static struct shared forked;
static int child_status;

static void *fork_and_end(void *context)
{
	pid_t pid = fork();

	(void)context;
	if (pid == 0)
		child_end(&forked);
	(void)waitpid(pid, &child_status, 0);
	return NULL;
}

static int fork_in_the_middle(enum tdc_move_step step, size_t piece)
{
	if (step == TDC_MOVE_THERE && piece == 1)
		(void)pthread_create(&forker, NULL, fork_and_end, NULL);
	return 0;
}

/* In the child nobody goes on with the publish. */
TT_TEST(inplace_ends, a_child_made_in_the_middle_of_a_publish)
{
	tt_world_init(&forked.world);
	tt_memory_init(&forked.memory, 3 * PIECE_BYTES);
	tdc_move_hook = fork_in_the_middle;
	cr_assert_eq(tt_memory_publish(&forked.memory, forked.world.client, "x"), 0, "%s",
		     tidl_last_error());
	tdc_move_hook = NULL;
	cr_assert_eq(pthread_join(forker, NULL), 0);
	cr_expect_eq(child_status, 0, "%d", WEXITSTATUS(child_status));
	cr_assert_eq(tidl_unshare(forked.world.client, "x"), 0, "%s", tidl_last_error());
	tt_memory_expect_intact(&forked.memory);
	tt_memory_deinit(&forked.memory);
	tt_world_deinit(&forked.world);
}
