/* SPDX-License-Identifier: Apache-2.0 */
/* What comes in the way while memory is moved, and what lies in the way already: nothing of it is
 * shared then, and all of it is as its owner wants it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "client/lib/inplace/allocator.h"
#include "client/lib/inplace/move.h"
#include "tests/support/leak.h"
#include "tests/unit/client/support/memory.h"

#define PIECE_BYTES ((size_t)TDC_PIECE_BYTES)

enum { PART_COUNT = 4 };

/* ---- its owner, from another thread: here from the hook, so at a piece that is known ---- */

static struct tt_memory *owned;
static size_t acts_at;
static void (*act)(void);

static int act_at_piece(enum tdc_move_step step, size_t piece)
{
	if (step == TDC_MOVE_THERE && piece == acts_at)
		act();
	return 0;
}

static void memory_free(void)
{
	tt_memory_deinit(owned);
}

/* What somebody else has mapped where it was. */
static void memory_free_and_map(void)
{
	void *data;

	tt_memory_deinit(owned);
	data = mmap(owned->data, owned->bytes, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	cr_assert_eq(data, owned->data);
	memset(data, 0x5a, owned->bytes);
}

/* As a pool does that gives the end of its region back. */
static void memory_shrink(void)
{
	owned->bytes -= PIECE_BYTES;
	cr_assert_eq(munmap((char *)owned->data + owned->bytes, PIECE_BYTES), 0);
}

/* Publishes four pieces while their owner does that at piece @piece. */
static void publish_while(void (*does)(void), size_t piece, struct tt_memory *memory,
			  struct tidl_client *client)
{
	tt_memory_init(memory, 4 * PIECE_BYTES);
	owned = memory;
	acts_at = piece;
	act = does;
	tdc_move_hook = act_at_piece;
	cr_expect_eq(tt_memory_publish(memory, client, "x"), TIDL_ERR_INVALID_ARGUMENT, "%zu: %s",
		     piece, tidl_last_error());
	tdc_move_hook = NULL;
	cr_expect_eq(memory->foreign.deleted, 0, "it stays with the caller");
	cr_expect_eq(tidl_remove(client, "x"), TIDL_ERR_NOT_FOUND);
}

TT_TEST(inplace_failures, memory_that_is_freed_meanwhile_stays_free)
{
	struct tt_world world;
	struct tt_memory memory;
	void *data;

	tt_world_init(&world);
	for (size_t piece = 0; piece < 4; piece++) {
		publish_while(memory_free, piece, &memory, world.client);
		data = mmap(memory.data, memory.bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
		cr_assert_eq(data, memory.data, "something was mapped there: %s", strerror(errno));
		tt_memory_deinit(&memory);
	}
	tt_world_deinit(&world);
}

TT_TEST(inplace_failures, what_comes_to_lie_there_is_left_alone)
{
	struct tt_world world;
	struct tt_memory memory;

	tt_world_init(&world);
	for (size_t piece = 0; piece < 4; piece++) {
		publish_while(memory_free_and_map, piece, &memory, world.client);
		cr_expect(tt_memory_is_private(&memory));
		for (size_t i = 0; i < memory.bytes; i++)
			cr_assert_eq(((unsigned char *)memory.data)[i], 0x5a);
		tt_memory_deinit(&memory);
	}
	tt_world_deinit(&world);
}

TT_TEST(inplace_failures, a_pool_that_shrinks_keeps_the_rest)
{
	struct tt_world world;
	struct tt_memory memory;

	tt_world_init(&world);
	for (size_t piece = 0; piece < 4; piece++) {
		publish_while(memory_shrink, piece, &memory, world.client);
		cr_expect(tt_memory_is_private(&memory));
		tt_memory_expect_intact(&memory);
		tt_memory_deinit(&memory);
	}
	tt_world_deinit(&world);
}

static size_t resized_bytes;
static struct tt_memory behind;

/* malloc's header is in front of a block, and its end on a page boundary. */
static void block_end_use(const struct tt_memory *memory)
{
	size_t block_bytes = memory->bytes + 16;
	size_t rest_bytes = (TT_PAGE_BYTES - block_bytes % TT_PAGE_BYTES) % TT_PAGE_BYTES;
	void *data = mmap((char *)memory->data + memory->bytes + rest_bytes, TT_PAGE_BYTES,
			  PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
			  -1, 0);

	cr_assert_neq(data, MAP_FAILED, "%s", strerror(errno));
	tt_memory_init_over(&behind, data, TT_PAGE_BYTES);
}

static void memory_resize(void)
{
	void *data = realloc(owned->data, resized_bytes);

	cr_assert_not_null(data);
	owned->data = data;
	if (resized_bytes < owned->bytes) {
		owned->bytes = resized_bytes;
		block_end_use(owned);
	}
}

/* What has come to lie behind it must not go with it, as it would by the block's old size. */
static void block_free(struct tt_memory *memory)
{
	free(memory->data);
	if (behind.data != NULL) {
		tt_memory_expect_intact(&behind);
		tt_memory_deinit(&behind);
		behind.data = NULL;
	}
}

TT_TEST(inplace_failures, a_block_that_is_resized_meanwhile_is_its_owners)
{
	static const size_t sizes[] = {PIECE_BYTES, 9 * PIECE_BYTES};
	struct tt_world world;
	struct tt_memory memory;

	if (tdc_malloc_refusal() != TIDL_COPY_REASON_NONE)
		cr_skip_test("a sanitizer has replaced malloc");
	tt_world_init(&world);
	cr_assert_eq(tidl_prefer_shareable(0, NULL), 0);
	tdc_move_hook = act_at_piece;
	act = memory_resize;
	owned = &memory;
	for (size_t i = 0; i < 2; i++) {
		for (acts_at = 0; acts_at < 4; acts_at++) {
			void *data = malloc(4 * PIECE_BYTES - TT_PAGE_BYTES);

			resized_bytes = sizes[i];
			tt_memory_init_over(&memory, data, 4 * PIECE_BYTES - TT_PAGE_BYTES);
			memory.options.block_count = 0;
			cr_expect_eq(tt_memory_publish(&memory, world.client, "x"),
				     TIDL_ERR_INVALID_ARGUMENT, "%zu at %zu: %s", sizes[i], acts_at,
				     tidl_last_error());
			tt_memory_expect_intact(&memory);
			cr_expect(tt_memory_is_private(&memory));
			block_free(&memory);
		}
	}
	tdc_move_hook = NULL;
	tt_world_deinit(&world);
}

/* ---- its owner, later ---- */

TT_TEST(inplace_failures, a_pool_that_has_shrunk_becomes_private)
{
	struct tt_world world;
	struct tt_memory memory;
	struct tidl_tensor *tensor;

	tt_world_init(&world);
	tt_memory_init(&memory, 2 * PIECE_BYTES);
	cr_assert_eq(tt_memory_publish(&memory, world.client, "x"), 0, "%s", tidl_last_error());
	tensor = tt_get(world.other, "x", TIDL_ATTACH_WRITE);
	owned = &memory;
	memory_shrink();
	cr_assert_eq(tidl_unshare(world.client, "x"), 0, "%s", tidl_last_error());
	cr_expect_eq(memory.foreign.deleted, 1);
	cr_expect(tt_memory_is_private(&memory));
	memset(tidl_tensor_data(tensor), 0, 2 * PIECE_BYTES);
	tt_memory_expect_intact(&memory);
	tidl_tensor_unref(tensor);
	tt_memory_deinit(&memory);
	tt_world_deinit(&world);
}

TT_TEST(inplace_failures, a_block_that_was_cut_becomes_private)
{
	struct tt_world world;
	struct tt_memory memory;
	struct tidl_tensor *tensor;
	void *data;

	if (tdc_malloc_refusal() != TIDL_COPY_REASON_NONE)
		cr_skip_test("a sanitizer has replaced malloc");
	tt_world_init(&world);
	cr_assert_eq(tidl_prefer_shareable(0, NULL), 0);
	data = malloc(2 * PIECE_BYTES);
	tt_memory_init_over(&memory, data, 2 * PIECE_BYTES);
	memory.options.block_count = 0;
	cr_assert_eq(tt_memory_publish(&memory, world.client, "x"), 0, "%s", tidl_last_error());
	tensor = tt_get(world.other, "x", TIDL_ATTACH_WRITE);
	owned = &memory;
	resized_bytes = PIECE_BYTES;
	memory_resize();
	cr_assert_eq(tidl_unshare(world.client, "x"), 0, "%s", tidl_last_error());
	cr_expect(tt_memory_is_private(&memory));
	memset(tidl_tensor_data(tensor), 0, 2 * PIECE_BYTES);
	tt_memory_expect_intact(&memory);
	block_free(&memory);
	tidl_tensor_unref(tensor);
	tt_world_deinit(&world);
}

/* ---- several at once ---- */

/* Several memories as one bundle. */
struct parts {
	struct tt_memory memories[PART_COUNT];
	struct tidl_block blocks[PART_COUNT];
	struct tidl_draft *draft;
	struct tidl_publish_options options;
};

static void parts_add(struct parts *parts, size_t i)
{
	const char key[] = {(char)('a' + i), '\0'};

	parts->blocks[i] = parts->memories[i].block;
	cr_assert_eq(tidl_draft_add(parts->draft, key, &parts->memories[i].foreign.managed), 0);
}

static void parts_begin(struct parts *parts)
{
	cr_assert_eq(tidl_draft_new(&parts->draft), 0);
	parts->options = (struct tidl_publish_options){
		.size = sizeof(parts->options),
		.copy = TIDL_COPY_NEVER,
		.block_count = PART_COUNT,
		.blocks = parts->blocks,
	};
}

static void parts_init(struct parts *parts)
{
	parts_begin(parts);
	for (size_t i = 0; i < PART_COUNT; i++) {
		tt_memory_init(&parts->memories[i], PIECE_BYTES + (i + 1) * TT_PAGE_BYTES);
		parts_add(parts, i);
	}
}

static int parts_publish(struct parts *parts, struct tidl_client *client)
{
	return tidl_publish_bundle(client, "b", parts->draft, &parts->options, NULL);
}

static void parts_expect_own(struct parts *parts)
{
	for (size_t i = 0; i < PART_COUNT; i++) {
		cr_expect_eq(parts->memories[i].foreign.deleted, 0, "it stays with the caller");
		cr_expect(tt_memory_is_private(&parts->memories[i]), "%zu", i);
		tt_memory_expect_intact(&parts->memories[i]);
	}
}

static void parts_deinit(struct parts *parts)
{
	tidl_draft_free(parts->draft);
	for (size_t i = 0; i < PART_COUNT; i++)
		tt_memory_deinit(&parts->memories[i]);
}

static size_t pieces_left;

static int fail_when_none_is_left(enum tdc_move_step step, size_t piece)
{
	(void)piece;
	return step == TDC_MOVE_THERE && pieces_left-- == 0 ? ENOMEM : 0;
}

TT_TEST(inplace_failures, at_any_piece_of_any_of_them)
{
	struct tt_world world;
	struct parts parts;

	tt_world_init(&world);
	parts_init(&parts);
	tdc_move_hook = fail_when_none_is_left;
	for (size_t i = 0; i < 2 * (size_t)PART_COUNT; i++) {
		pieces_left = i;
		cr_expect_eq(parts_publish(&parts, world.client), TIDL_ERR_NO_MEMORY, "%zu", i);
		parts_expect_own(&parts);
		cr_expect_eq(tidl_remove(world.client, "b"), TIDL_ERR_NOT_FOUND);
	}
	pieces_left = 2 * (size_t)PART_COUNT;
	cr_assert_eq(parts_publish(&parts, world.client), 0, "%s", tidl_last_error());
	tdc_move_hook = NULL;
	cr_assert_eq(tidl_unshare(world.client, "b"), 0);
	for (size_t i = 0; i < PART_COUNT; i++)
		cr_expect(tt_memory_is_private(&parts.memories[i]));
	parts_deinit(&parts);
	tt_world_deinit(&world);
}

static struct tt_memory *freed;

static int free_at_the_last(enum tdc_move_step step, size_t piece)
{
	(void)piece;
	if (step == TDC_MOVE_THERE && pieces_left-- == 0)
		tt_memory_deinit(freed);
	return 0;
}

/* They are moved in the order of their addresses. */
TT_TEST(inplace_failures, one_of_them_is_freed_meanwhile)
{
	struct tt_world world;
	struct parts parts;

	tt_world_init(&world);
	parts_init(&parts);
	freed = &parts.memories[0];
	for (size_t i = 1; i < PART_COUNT; i++) {
		if (parts.memories[i].data > freed->data)
			freed = &parts.memories[i];
	}
	pieces_left = 2;
	tdc_move_hook = free_at_the_last;
	cr_expect_lt(parts_publish(&parts, world.client), 0);
	tdc_move_hook = NULL;
	tt_memory_init(freed, TT_PAGE_BYTES);
	parts_expect_own(&parts);
	parts_deinit(&parts);
	tt_world_deinit(&world);
}

/* ---- overlaps ---- */

TT_TEST(inplace_failures, more_than_what_is_shared_already_is_refused)
{
	struct tt_world world;
	struct tt_memory whole;
	struct tt_memory middle;

	tt_world_init(&world);
	tt_memory_init(&whole, 24 * TT_PAGE_BYTES);
	tt_memory_init_over(&middle, whole.data + 8 * TT_PAGE_BYTES / TT_ELEMENT_BYTES,
			    8 * TT_PAGE_BYTES);
	cr_assert_eq(tt_memory_publish(&middle, world.client, "middle"), 0, "%s",
		     tidl_last_error());
	cr_expect_eq(tt_memory_publish(&whole, world.client, "x"), TIDL_ERR_COPY_NEEDED);
	cr_expect_eq(tidl_last_copy_reason(), TIDL_COPY_REASON_MAPPING, "%s", tidl_last_error());
	cr_expect_eq(whole.foreign.deleted, 0);
	whole.bytes = 8 * TT_PAGE_BYTES;
	cr_expect(tt_memory_is_private(&whole));
	tt_memory_expect_intact(&whole);
	whole.bytes = 24 * TT_PAGE_BYTES;
	tt_memory_expect_intact(&middle);
	cr_expect(!tt_memory_is_private(&middle));
	cr_assert_eq(tidl_unshare(world.client, "middle"), 0, "%s", tidl_last_error());
	tt_memory_expect_intact(&middle);
	cr_assert_eq(tt_memory_publish(&whole, world.client, "x"), 0, "%s", tidl_last_error());
	cr_assert_eq(tidl_unshare(world.client, "x"), 0);
	tt_memory_deinit(&whole);
	tt_world_deinit(&world);
}

/* Two tensors of one memory, each with a block of its own that has some of the other one's. */
TT_TEST(inplace_failures, blocks_of_one_call_that_overlap_are_refused)
{
	const int64_t shape[] = {10};
	struct tt_world world;
	struct tt_memory memory;
	struct tt_foreign ends[2];
	struct tidl_block blocks[2];
	struct tidl_publish_options options = {
		.size = sizeof(options),
		.copy = TIDL_COPY_NEVER,
		.block_count = 2,
		.blocks = blocks,
	};
	struct tidl_draft *draft;

	tt_world_init(&world);
	tt_memory_init(&memory, 24 * TT_PAGE_BYTES);
	cr_assert_eq(tidl_draft_new(&draft), 0);
	for (size_t i = 0; i < 2; i++) {
		blocks[i] = memory.block;
		blocks[i].address = (char *)memory.data + i * 8 * TT_PAGE_BYTES;
		blocks[i].bytes = 16 * TT_PAGE_BYTES;
		tt_foreign_init(&ends[i], (char *)memory.data + i * 20 * TT_PAGE_BYTES, 1, shape,
				NULL);
		cr_assert_eq(tidl_draft_add(draft, i == 0 ? "a" : "b", &ends[i].managed), 0);
	}
	cr_expect_eq(tidl_publish_bundle(world.client, "b", draft, &options, NULL),
		     TIDL_ERR_INVALID_ARGUMENT, "%s", tidl_last_error());
	cr_expect_eq(ends[0].deleted + ends[1].deleted, 0);
	cr_expect(tt_memory_is_private(&memory));
	tt_memory_expect_intact(&memory);
	tidl_draft_free(draft);
	tt_memory_deinit(&memory);
	tt_world_deinit(&world);
}

/* Only what is not shared yet is moved. */
TT_TEST(inplace_failures, one_of_them_is_shared_already)
{
	struct tidl_publication publication = {.size = sizeof(publication)};
	struct tt_world world;
	struct parts parts;
	uint64_t moved_bytes = 0;

	tt_world_init(&world);
	parts_init(&parts);
	for (size_t i = 1; i < PART_COUNT; i++)
		moved_bytes += parts.memories[i].bytes;
	cr_assert_eq(tt_memory_publish(&parts.memories[0], world.client, "x"), 0, "%s",
		     tidl_last_error());
	cr_assert_eq(
		tidl_publish_bundle(world.client, "b", parts.draft, &parts.options, &publication),
		0, "%s", tidl_last_error());
	cr_expect_eq(publication.path, TIDL_PATH_IN_PLACE);
	cr_expect_eq(publication.moved_bytes, moved_bytes);
	cr_expect_eq(tidl_unshare(world.client, "x"), TIDL_ERR_BUSY);
	cr_assert_eq(tidl_unshare(world.client, "b"), TIDL_ERR_BUSY, "%s", tidl_last_error());
	cr_assert_eq(tidl_remove(world.client, "x"), 0);
	cr_assert_eq(tidl_unshare(world.client, "b"), 0, "%s", tidl_last_error());
	for (size_t i = 0; i < PART_COUNT; i++) {
		cr_expect(tt_memory_is_private(&parts.memories[i]), "%zu", i);
		tt_memory_expect_intact(&parts.memories[i]);
	}
	parts_deinit(&parts);
	tt_world_deinit(&world);
}
