/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of malloc that are shared where they lie: found by their header, and freed in the end. */
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/lib/inplace/allocator.h"
#include "client/lib/inplace/move.h"
#include "tests/support/leak.h"
#include "tests/unit/client/support/limits.h"
#include "tests/unit/client/support/memory.h"

static void require_glibc_malloc(void)
{
	if (tdc_malloc_refusal() != TIDL_COPY_REASON_NONE)
		cr_skip_test("a sanitizer has replaced malloc");
}

TT_TEST(inplace_malloc, blocks_of_malloc_are_found_by_their_header)
{
	struct tt_world world;
	struct tt_memory memory;
	void *data = NULL;

	require_glibc_malloc();
	tt_world_init(&world);
	cr_assert_eq(tidl_prefer_shareable(0, NULL), 0);
	for (size_t alignment = 16; alignment <= 8192; alignment *= 2) {
		cr_assert_eq(posix_memalign(&data, alignment, (size_t)1 << 20), 0);
		tt_memory_init_over(&memory, data, (size_t)1 << 20);
		memory.options.block_count = 0;
		cr_assert_eq(tt_memory_publish(&memory, world.client, "x"), 0, "%zu: %s", alignment,
			     tidl_last_error());
		cr_expect_eq(memory.publication.neighbour_bytes, 0);
		tt_memory_expect_intact(&memory);
		cr_assert_eq(tidl_unshare(world.client, "x"), 0);
		tt_memory_expect_intact(&memory);
		free(data);
	}
	tt_world_deinit(&world);
}

TT_TEST(inplace_malloc, small_blocks_and_the_heap_are_refused)
{
	struct tt_world world;
	struct tt_memory memory;
	void *data;

	require_glibc_malloc();
	tt_world_init(&world);
	data = malloc(1000);
	tt_memory_init_over(&memory, data, 1000);
	memory.options.block_count = 0;
	cr_expect_eq(tt_memory_publish(&memory, world.client, "x"), TIDL_ERR_COPY_NEEDED);
	cr_expect_eq(tidl_last_copy_reason(), TIDL_COPY_REASON_SMALL);
	free(data);
	cr_assert_eq(mallopt(M_MMAP_THRESHOLD, 32 << 20), 1);
	data = malloc((size_t)1 << 20);
	tt_memory_init_over(&memory, data, (size_t)1 << 20);
	memory.options.block_count = 0;
	cr_expect_eq(tt_memory_publish(&memory, world.client, "x"), TIDL_ERR_COPY_NEEDED);
	cr_expect_neq(tidl_last_copy_reason(), TIDL_COPY_REASON_NONE);
	tt_memory_expect_intact(&memory);
	free(data);
	tt_world_deinit(&world);
}

TT_TEST(inplace_malloc, a_hostile_writer_cannot_break_free)
{
	struct tt_world world;
	struct tt_memory memory;
	struct tidl_tensor *tensor;
	unsigned char *page;
	void *data;

	require_glibc_malloc();
	tt_world_init(&world);
	cr_assert_eq(tidl_prefer_shareable(0, NULL), 0);
	data = malloc((size_t)1 << 20);
	tt_memory_init_over(&memory, data, (size_t)1 << 20);
	memory.options.block_count = 0;
	cr_assert_eq(tt_memory_publish(&memory, world.client, "x"), 0, "%s", tidl_last_error());
	tensor = tt_get(world.other, "x", TIDL_ATTACH_WRITE);
	/* All that the map shows, malloc's header and all. */
	page = (unsigned char *)((uintptr_t)tidl_tensor_data(tensor) & ~(TT_PAGE_BYTES - 1));
	memset(page, 0xa5, memory.publication.moved_bytes);
	cr_assert_eq(tidl_unshare(world.client, "x"), 0, "%s", tidl_last_error());
	memset(page, 0x5a, memory.publication.moved_bytes);
	cr_expect_eq(((unsigned char *)data)[12345], 0xa5);
	free(data);
	tidl_tensor_unref(tensor);
	tt_world_deinit(&world);
}

/* Its map must not grow into what lies behind the memory in the segment, and past the end. */
TT_TEST(inplace_malloc, realloc_makes_another_block)
{
	struct tt_world world;
	struct tt_memory memory;
	unsigned char *data;

	require_glibc_malloc();
	tt_world_init(&world);
	cr_assert_eq(tidl_prefer_shareable(0, NULL), 0);
	data = malloc((size_t)1 << 20);
	tt_memory_init_over(&memory, data, (size_t)1 << 20);
	memory.options.block_count = 0;
	cr_assert_eq(tt_memory_publish(&memory, world.client, "x"), 0, "%s", tidl_last_error());
	data = realloc(data, (size_t)4 << 20);
	cr_assert_not_null(data);
	memset(data + (1 << 20), 0xa5, (size_t)3 << 20);
	memory.data = (float *)(void *)data;
	tt_memory_expect_intact(&memory);
	cr_expect(tt_memory_is_private(&memory));
	cr_assert_eq(tidl_unshare(world.client, "x"), 0, "%s", tidl_last_error());
	tt_memory_expect_intact(&memory);
	free(data);
	tt_world_deinit(&world);
}

/* In a child, so that this process has not asked yet. */
static bool is_glibc_malloc(void)
{
	int status = -1;
	pid_t pid = fork();

	if (pid == 0)
		_exit(tdc_malloc_refusal() == TIDL_COPY_REASON_NONE ? 0 : 1);
	(void)waitpid(pid, &status, 0);
	return status == 0;
}

TT_TEST(inplace_malloc, a_want_of_memory_is_no_answer)
{
	struct tt_world world;
	struct tt_memory memory;
	enum tidl_copy_reason reason;
	void *data = NULL;
	int result;

	if (!is_glibc_malloc())
		cr_skip_test("a sanitizer has replaced malloc");
	tt_world_init(&world);
	cr_assert_eq(mallopt(M_MMAP_THRESHOLD, 65536), 1);
	cr_assert_eq(posix_memalign(&data, 64, (size_t)1 << 20), 0);
	tt_memory_init_over(&memory, data, (size_t)1 << 20);
	memory.options.block_count = 0;
	tt_limit_addresses((size_t)8 << 20);
	result = tt_memory_publish(&memory, world.client, "x");
	reason = tidl_last_copy_reason();
	cr_expect_eq(tidl_prefer_shareable(0, NULL), TIDL_ERR_NO_MEMORY);
	tt_limit_addresses(SIZE_MAX);
	cr_expect_eq(result, TIDL_ERR_COPY_NEEDED);
	cr_expect_eq(reason, TIDL_COPY_REASON_UNSURE);
	cr_assert_eq(tidl_prefer_shareable(0, NULL), 0, "%s", tidl_last_error());
	cr_assert_eq(tt_memory_publish(&memory, world.client, "x"), 0, "%s", tidl_last_error());
	cr_assert_eq(tidl_unshare(world.client, "x"), 0, "%s", tidl_last_error());
	tt_memory_expect_intact(&memory);
	free(data);
	tt_world_deinit(&world);
}

static int fail_to_become_private(enum tdc_move_step step, size_t piece)
{
	(void)piece;
	return step == TDC_MOVE_BACK || step == TDC_MOVE_APART ? ENOMEM : 0;
}

static int fail_on_any_way_back(enum tdc_move_step step, size_t piece)
{
	(void)piece;
	return step != TDC_MOVE_THERE ? ENOMEM : 0;
}

/* A block that is shared, and one who has it for writing. */
struct shared_block {
	struct tt_world world;
	struct tt_memory memory;
	struct tidl_tensor *tensor;
	unsigned char *page;
	void *data;
};

static void shared_block_init(struct shared_block *block)
{
	tt_world_init(&block->world);
	cr_assert_eq(tidl_prefer_shareable(0, NULL), 0);
	block->data = malloc((size_t)1 << 20);
	tt_memory_init_over(&block->memory, block->data, (size_t)1 << 20);
	block->memory.options.block_count = 0;
	cr_assert_eq(tt_memory_publish(&block->memory, block->world.client, "x"), 0, "%s",
		     tidl_last_error());
	block->tensor = tt_get(block->world.other, "x", TIDL_ATTACH_WRITE);
	block->page = (unsigned char *)((uintptr_t)tidl_tensor_data(block->tensor) &
					~(TT_PAGE_BYTES - 1));
}

/* The client ends, and what fails fails. */
static void shared_block_end(struct shared_block *block, tdc_move_hook_fn hook)
{
	tdc_move_hook = hook;
	cr_expect_eq(tidl_disconnect(block->world.client), TIDL_ERR_NO_MEMORY);
	tdc_move_hook = NULL;
	block->world.client = NULL;
}

static void shared_block_deinit(struct shared_block *block)
{
	tidl_tensor_unref(block->tensor);
	tt_world_deinit(&block->world);
}

/* What stays shared can be freed all the same. */
TT_TEST(inplace_malloc, a_hostile_writer_cannot_break_free_of_what_stays_shared)
{
	struct shared_block block;

	require_glibc_malloc();
	shared_block_init(&block);
	memset(block.page, 0xa5, block.memory.publication.moved_bytes);
	shared_block_end(&block, fail_to_become_private);
	cr_expect_eq(block.memory.foreign.deleted, 1);
	memset(block.page, 0x5a, block.memory.publication.moved_bytes);
	cr_expect_eq(((unsigned char *)block.data)[12], 0xa5);
	cr_expect_eq(((unsigned char *)block.data)[12345], 0x5a);
	free(block.data);
	shared_block_deinit(&block);
}

/* And what cannot be freed without harm is not given back. */
TT_TEST(inplace_malloc, a_header_that_cannot_be_saved_is_never_freed)
{
	struct shared_block block;

	require_glibc_malloc();
	shared_block_init(&block);
	shared_block_end(&block, fail_on_any_way_back);
	cr_expect_eq(block.memory.foreign.deleted, 0);
	shared_block_deinit(&block);
}
