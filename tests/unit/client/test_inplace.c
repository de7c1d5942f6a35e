/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is shared where it lies: moved, recognised, made private again, and left alone where
 * anything is in the way. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <dlpack/dlpack.h>

#include "client/lib/inplace/move.h"
#include "tests/support/leak.h"
#include "tests/unit/client/support/memory.h"

#define PIECE_BYTES ((size_t)TDC_PIECE_BYTES)

TT_TEST(inplace, both_sides_write_the_same_memory)
{
	struct tt_world world;
	struct tt_memory memory;
	struct tidl_tensor *tensor;
	float *theirs;
	size_t last;

	tt_world_init(&world);
	tt_memory_init(&memory, 2 * PIECE_BYTES + 3 * TT_PAGE_BYTES);
	last = memory.bytes / TT_ELEMENT_BYTES - 1;
	cr_assert_eq(tt_memory_publish(&memory, world.client, "x"), 0, "%s", tidl_last_error());
	cr_expect_eq(memory.publication.path, TIDL_PATH_IN_PLACE);
	cr_expect_eq(memory.publication.moved_bytes, memory.bytes);
	cr_expect_eq(memory.publication.neighbour_bytes, 0);
	cr_expect_eq(memory.publication.copied, 0);
	cr_expect_eq(memory.foreign.deleted, 0, "its owner could free it while others write");
	tt_memory_expect_intact(&memory);

	tensor = tt_get(world.other, "x", TIDL_ATTACH_WRITE);
	theirs = tidl_tensor_data(tensor);
	cr_expect_eq(theirs[7], 7);
	theirs[7] = -7;
	cr_expect_eq(memory.data[7], -7);
	memory.data[last] = 0.5F;
	cr_expect_eq(theirs[last], 0.5F);

	cr_assert_eq(tidl_unshare(world.client, "x"), 0, "%s", tidl_last_error());
	cr_expect_eq(memory.foreign.deleted, 1);
	cr_expect(tt_memory_is_private(&memory));
	cr_expect_eq(memory.data[7], -7);
	theirs[7] = 70;
	cr_expect_eq(memory.data[7], -7);
	tidl_tensor_unref(tensor);
	tt_memory_deinit(&memory);
	tt_world_deinit(&world);
}

TT_TEST(inplace, what_was_moved_is_recognised)
{
	struct tt_world world;
	struct tt_memory memory;
	struct tt_memory view;

	tt_world_init(&world);
	tt_memory_init(&memory, 64 * TT_PAGE_BYTES);
	cr_assert_eq(tt_memory_publish(&memory, world.client, "x"), 0, "%s", tidl_last_error());
	view = memory;
	tt_foreign_init(&view.foreign, memory.data + 100, 1, (const int64_t[]){50}, NULL);
	view.options = (struct tidl_publish_options){.size = sizeof(view.options)};
	cr_assert_eq(tt_memory_publish(&view, world.client, "view"), 0, "%s", tidl_last_error());
	cr_expect_eq(view.publication.path, TIDL_PATH_IN_PLACE);
	cr_expect_eq(view.publication.moved_bytes, 0);
	cr_expect_eq(view.foreign.deleted, 1);
	cr_expect_eq(tidl_unshare(world.client, "x"), TIDL_ERR_BUSY);
	cr_expect_eq(tt_holder_count(world.client, "x"), 1, "the name has to stay");
	cr_assert_eq(tidl_remove(world.client, "view"), 0);
	cr_assert_eq(tidl_unshare(world.client, "x"), 0, "%s", tidl_last_error());
	cr_expect_eq(memory.foreign.deleted, 1);
	cr_expect_eq(tidl_unshare(world.client, "x"), TIDL_ERR_NOT_FOUND, "%s", tidl_last_error());
	tt_memory_expect_intact(&memory);

	/* And it can be shared again. */
	cr_assert_eq(tt_memory_publish(&memory, world.client, "x"), 0, "%s", tidl_last_error());
	cr_expect_eq(memory.publication.moved_bytes, memory.bytes);
	cr_assert_eq(tidl_unshare(world.client, "x"), 0);
	tt_memory_deinit(&memory);
	tt_world_deinit(&world);
}

/* ---- the end by itself ---- */

TT_TEST(inplace, ends_when_nobody_holds_the_removed_name)
{
	struct tt_world world;
	struct tt_memory memory;
	struct tidl_tensor *tensor;

	tt_world_init(&world);
	tt_memory_init(&memory, 16 * TT_PAGE_BYTES);
	cr_assert_eq(tt_memory_publish(&memory, world.client, "x"), 0, "%s", tidl_last_error());
	tensor = tt_get(world.other, "x", TIDL_ATTACH_WRITE);
	cr_assert_eq(tidl_remove(world.client, "x"), 0);
	cr_assert_eq(tidl_dispatch(world.client), 0);
	cr_expect_eq(memory.foreign.deleted, 0, "a writer is still there");
	((float *)tidl_tensor_data(tensor))[3] = 33;
	cr_expect_eq(memory.data[3], 33);
	tidl_tensor_unref(tensor);
	/* The broker's answer is an event; a request of the other side comes after it. */
	cr_assert_eq(tidl_remove(world.other, "none"), TIDL_ERR_NOT_FOUND);
	cr_assert_eq(tidl_remove(world.client, "none"), TIDL_ERR_NOT_FOUND);
	cr_assert_eq(tidl_dispatch(world.client), 0);
	cr_expect_eq(memory.foreign.deleted, 1);
	cr_expect(tt_memory_is_private(&memory));
	cr_expect_eq(memory.data[3], 33);
	tt_memory_deinit(&memory);
	tt_world_deinit(&world);
}

TT_TEST(inplace, ends_when_the_name_gets_other_content)
{
	struct tt_world world;
	struct tt_memory first;
	struct tt_memory second;

	tt_world_init(&world);
	tt_memory_init(&first, 16 * TT_PAGE_BYTES);
	tt_memory_init(&second, 16 * TT_PAGE_BYTES);
	second.options.replace = 1;
	cr_assert_eq(tt_memory_publish(&first, world.client, "x"), 0, "%s", tidl_last_error());
	cr_assert_eq(tt_memory_publish(&second, world.client, "x"), 0, "%s", tidl_last_error());
	cr_assert_eq(tidl_remove(world.client, "none"), TIDL_ERR_NOT_FOUND);
	cr_assert_eq(tidl_dispatch(world.client), 0);
	cr_expect_eq(first.foreign.deleted, 1);
	cr_expect_eq(second.foreign.deleted, 0);
	cr_expect(tt_memory_is_private(&first));
	cr_expect(!tt_memory_is_private(&second));
	/* Closing is an end, too. */
	tidl_close(world.client);
	cr_expect_eq(second.foreign.deleted, 1);
	cr_expect(tt_memory_is_private(&second));
	tt_memory_expect_intact(&second);
	tt_memory_deinit(&second);
	tt_memory_deinit(&first);
	tt_world_deinit(&world);
}

TT_TEST(inplace, memory_that_its_owner_freed_is_left_alone)
{
	struct tt_world world;
	struct tt_memory memory;
	struct tt_memory next;
	void *data;

	tt_world_init(&world);
	tt_memory_init(&memory, 16 * TT_PAGE_BYTES);
	cr_assert_eq(tt_memory_publish(&memory, world.client, "x"), 0, "%s", tidl_last_error());
	tt_memory_deinit(&memory);
	data = mmap(memory.data, memory.bytes, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	cr_assert_eq(data, memory.data);
	tt_memory_init_over(&next, data, memory.bytes);
	cr_assert_eq(tt_memory_publish(&next, world.client, "y"), 0, "%s", tidl_last_error());
	cr_expect_eq(next.publication.moved_bytes, next.bytes, "that is other memory");
	cr_assert_eq(tidl_unshare(world.client, "x"), 0, "%s", tidl_last_error());
	cr_expect_eq(memory.foreign.deleted, 1);
	cr_expect(!tt_memory_is_private(&next));
	tt_memory_expect_intact(&next);
	cr_assert_eq(tidl_unshare(world.client, "y"), 0, "%s", tidl_last_error());
	tt_memory_deinit(&next);
	tt_world_deinit(&world);
}

/* The kernel gives addresses that are free to whoever asks next, a reader of the same tensor too.
 */
TT_TEST(inplace, another_map_of_the_segment_is_left_alone)
{
	struct tt_world world;
	struct tt_memory memory;
	struct tidl_tensor *tensor;
	void *theirs;

	tt_world_init(&world);
	tt_memory_init(&memory, 16 * TT_PAGE_BYTES);
	cr_assert_eq(tt_memory_publish(&memory, world.client, "x"), 0, "%s", tidl_last_error());
	tensor = tt_get(world.other, "x", TIDL_ATTACH_WRITE);
	theirs = tidl_tensor_data(tensor);
	tt_memory_deinit(&memory);
	cr_assert_eq(mremap(theirs, memory.bytes, memory.bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
			    memory.data),
		     memory.data);
	cr_assert_eq(tidl_unshare(world.client, "x"), 0, "%s", tidl_last_error());
	cr_expect_eq(memory.foreign.deleted, 1);
	cr_expect(!tt_memory_is_private(&memory), "writes to it would be lost");
	cr_assert_eq(mremap(memory.data, memory.bytes, memory.bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
			    theirs),
		     theirs);
	tidl_tensor_unref(tensor);
	tt_world_deinit(&world);
}

TT_TEST(inplace, a_limit_of_file_sizes_is_no_obstacle)
{
	const struct rlimit limit = {.rlim_cur = TT_PAGE_BYTES, .rlim_max = TT_PAGE_BYTES};
	struct tt_world world;
	struct tt_memory memory;

	tt_world_init(&world);
	tt_memory_init(&memory, PIECE_BYTES + TT_PAGE_BYTES);
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	cr_assert_eq(tt_memory_publish(&memory, world.client, "x"), 0, "%s", tidl_last_error());
	tt_memory_expect_intact(&memory);
	cr_expect(!tt_memory_is_private(&memory));
	cr_assert_eq(tidl_unshare(world.client, "x"), 0, "%s", tidl_last_error());
	tt_memory_expect_intact(&memory);
	tt_memory_deinit(&memory);
	tt_world_deinit(&world);
}

/* ---- refused, and failed in the middle ---- */

static size_t fail_at;
static size_t asked_count;

static int fail_at_piece(enum tdc_move_step step, size_t piece)
{
	if (step == TDC_MOVE_THERE)
		asked_count++;
	return step == TDC_MOVE_THERE && piece == fail_at ? ENOSPC : 0;
}

TT_TEST(inplace, a_failure_at_any_piece_leaves_all_as_it_was)
{
	struct tt_world world;
	struct tt_memory memory;

	tt_world_init(&world);
	tt_memory_init(&memory, 3 * PIECE_BYTES + TT_PAGE_BYTES);
	tdc_move_hook = fail_at_piece;
	for (fail_at = 0; fail_at < 4; fail_at++) {
		asked_count = 0;
		cr_expect_eq(tt_memory_publish(&memory, world.client, "x"), TIDL_ERR_NO_MEMORY);
		cr_expect_eq(asked_count, fail_at + 1);
		cr_expect_eq(memory.foreign.deleted, 0, "it stays with the caller");
		cr_expect(tt_memory_is_private(&memory));
		tt_memory_expect_intact(&memory);
		cr_expect_eq(tidl_remove(world.client, "x"), TIDL_ERR_NOT_FOUND);
	}
	tdc_move_hook = NULL;
	tt_memory_deinit(&memory);
	tt_world_deinit(&world);
}

static int fail_on_the_way_back(enum tdc_move_step step, size_t piece)
{
	return step != TDC_MOVE_THERE && piece == 0 ? ENOMEM : 0;
}

TT_TEST(inplace, what_could_not_become_private_is_tried_again)
{
	struct tt_world world;
	struct tt_memory memory;

	tt_world_init(&world);
	tt_memory_init(&memory, 2 * PIECE_BYTES);
	cr_assert_eq(tt_memory_publish(&memory, world.client, "x"), 0, "%s", tidl_last_error());
	tdc_move_hook = fail_on_the_way_back;
	cr_expect_eq(tidl_unshare(world.client, "x"), TIDL_ERR_NO_MEMORY);
	cr_expect_eq(memory.foreign.deleted, 0);
	tt_memory_expect_intact(&memory);
	tdc_move_hook = NULL;
	cr_assert_eq(tidl_dispatch(world.client), 0);
	cr_expect_eq(memory.foreign.deleted, 1);
	cr_expect(tt_memory_is_private(&memory));
	tt_memory_expect_intact(&memory);
	tt_memory_deinit(&memory);
	tt_world_deinit(&world);
}

TT_TEST(inplace, unshare_can_be_called_again)
{
	struct tt_world world;
	struct tt_memory memory;

	tt_world_init(&world);
	tt_memory_init(&memory, 2 * PIECE_BYTES);
	cr_assert_eq(tt_memory_publish(&memory, world.client, "x"), 0, "%s", tidl_last_error());
	tdc_move_hook = fail_on_the_way_back;
	cr_expect_eq(tidl_unshare(world.client, "x"), TIDL_ERR_NO_MEMORY);
	cr_expect_eq(tidl_unshare(world.client, "x"), TIDL_ERR_NO_MEMORY);
	tdc_move_hook = NULL;
	cr_assert_eq(tidl_unshare(world.client, "x"), 0, "%s", tidl_last_error());
	cr_expect_eq(memory.foreign.deleted, 1);
	cr_expect(tt_memory_is_private(&memory));
	tt_memory_expect_intact(&memory);
	tt_memory_deinit(&memory);
	tt_world_deinit(&world);
}

TT_TEST(inplace, a_name_that_is_taken_undoes_the_move)
{
	struct tt_world world;
	struct tt_memory memory;
	struct tt_memory taken;

	tt_world_init(&world);
	tt_memory_init(&memory, 16 * TT_PAGE_BYTES);
	tt_memory_init(&taken, 16 * TT_PAGE_BYTES);
	taken.options.copy = TIDL_COPY_ALWAYS;
	cr_assert_eq(tt_memory_publish(&taken, world.client, "x"), 0);
	cr_expect_eq(tt_memory_publish(&memory, world.client, "x"), TIDL_ERR_EXISTS);
	cr_expect(tt_memory_is_private(&memory));
	tt_memory_expect_intact(&memory);
	tt_memory_deinit(&taken);
	tt_memory_deinit(&memory);
	tt_world_deinit(&world);
}

/* What is no private memory of its own, and the reason that is given. */
struct refusal {
	const char *name;
	int protection;
	int flags;
	bool is_memfd;
	bool is_locked;
	enum tidl_copy_reason reason;
};

static const struct refusal refusals[] = {
	{"shared", PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, false, false,
	 TIDL_COPY_REASON_MAPPING},
	{"of a file", PROT_READ | PROT_WRITE, MAP_PRIVATE, true, false, TIDL_COPY_REASON_MAPPING},
	{"read-only", PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, false, false,
	 TIDL_COPY_REASON_NOT_WRITABLE},
	{"locked", PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, false, true,
	 TIDL_COPY_REASON_PINNED},
};

static void refusal_check(const struct refusal *refusal, struct tidl_client *client)
{
	size_t bytes = 16 * TT_PAGE_BYTES;
	int fd = refusal->is_memfd ? memfd_create("test", MFD_CLOEXEC) : -1;
	struct tt_memory memory;
	void *data;

	cr_assert(fd < 0 || ftruncate(fd, (off_t)bytes) == 0);
	data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, refusal->flags, fd, 0);
	cr_assert_neq(data, MAP_FAILED);
	tt_memory_init_over(&memory, data, bytes);
	cr_assert_eq(mprotect(data, bytes, refusal->protection), 0);
	/* AddressSanitizer makes the function of that name do nothing. */
	cr_assert(!refusal->is_locked || syscall(SYS_mlock, data, bytes) == 0);
	cr_expect_eq(tt_memory_publish(&memory, client, "x"), TIDL_ERR_COPY_NEEDED, "%s",
		     refusal->name);
	cr_expect_eq(tidl_last_copy_reason(), refusal->reason, "%s: %s", refusal->name,
		     tidl_last_error());
	tt_memory_expect_intact(&memory);
	tt_memory_deinit(&memory);
	if (fd >= 0)
		(void)close(fd);
}

TT_TEST(inplace, only_private_memory_is_moved)
{
	struct tt_world world;
	struct tt_memory memory;

	tt_world_init(&world);
	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++)
		refusal_check(&refusals[i], world.client);
	tt_memory_init(&memory, 16 * TT_PAGE_BYTES);
	memory.foreign.managed.dl_tensor.device.device_type = kDLCUDAHost;
	cr_expect_eq(tt_memory_publish(&memory, world.client, "x"), TIDL_ERR_COPY_NEEDED);
	cr_expect_eq(tidl_last_copy_reason(), TIDL_COPY_REASON_PINNED);
	memory.foreign.managed.dl_tensor.device.device_type = kDLCPU;
	memory.block.bytes = 100;
	memory.options.block_count = 0;
	/* Nobody says what it is, and malloc has not made it. */
	cr_expect_eq(tt_memory_publish(&memory, world.client, "x"), TIDL_ERR_COPY_NEEDED);
	tt_memory_deinit(&memory);
	tt_world_deinit(&world);
}

/* ---- bundles ---- */

TT_TEST(inplace, a_bundle_lies_in_one_segment)
{
	struct tt_world world;
	struct tt_memory memories[5];
	struct tidl_block blocks[5];
	struct tidl_publication publication = {.size = sizeof(publication)};
	struct tidl_publish_options options = {.size = sizeof(options), .copy = TIDL_COPY_NEVER};
	struct tidl_draft *draft;
	struct tidl_bundle *bundle;
	uint64_t moved_bytes = 0;

	tt_world_init(&world);
	cr_assert_eq(tidl_draft_new(&draft), 0);
	for (size_t i = 0; i < 5; i++) {
		char key[2] = {(char)('a' + i), '\0'};

		tt_memory_init(&memories[i], (20 + i) * TT_PAGE_BYTES);
		blocks[i] = memories[i].block;
		moved_bytes += memories[i].bytes;
		cr_assert_eq(tidl_draft_add(draft, key, &memories[i].foreign.managed), 0);
	}
	options.block_count = 5;
	options.blocks = blocks;
	cr_assert_eq(tidl_publish_bundle(world.client, "b", draft, &options, &publication), 0, "%s",
		     tidl_last_error());
	cr_expect_eq(publication.path, TIDL_PATH_IN_PLACE);
	cr_expect_eq(publication.moved_bytes, moved_bytes);
	cr_expect_eq(publication.exposed_bytes, moved_bytes);
	tidl_draft_free(draft);
	cr_expect_eq(memories[4].foreign.deleted, 0);
	cr_assert_eq(
		tidl_get_bundle(world.other, "b",
				&(struct tidl_get_options){.size = sizeof(struct tidl_get_options),
							   .attach = TIDL_ATTACH_WRITE},
				&bundle),
		0, "%s", tidl_last_error());
	cr_expect_eq(tidl_bundle_segment_count(bundle), 1);
	for (size_t i = 0; i < 5; i++) {
		struct tidl_tensor *tensor;

		cr_assert_eq(tidl_bundle_tensor(bundle, i, &tensor), 0);
		cr_expect_eq(((float *)tidl_tensor_data(tensor))[1], 1);
		((float *)tidl_tensor_data(tensor))[1] = 100 + (float)i;
		cr_expect_eq(memories[i].data[1], 100 + (float)i);
		tidl_tensor_unref(tensor);
	}
	tidl_bundle_unref(bundle);
	cr_assert_eq(tidl_unshare(world.client, "b"), 0, "%s", tidl_last_error());
	for (size_t i = 0; i < 5; i++) {
		cr_expect_eq(memories[i].foreign.deleted, 1);
		cr_expect_eq(memories[i].data[1], 100 + (float)i);
		cr_expect(tt_memory_is_private(&memories[i]));
		tt_memory_deinit(&memories[i]);
	}
	tt_world_deinit(&world);
}

TT_TEST(inplace, a_bundle_can_become_immutable_where_it_lies)
{
	struct tt_world world;
	struct tt_memory memories[2];
	struct tidl_block blocks[2];
	struct tidl_publish_options options = {
		.size = sizeof(options), .copy = TIDL_COPY_NEVER, .access = TIDL_ACCESS_IMMUTABLE};
	struct tidl_draft *draft;

	tt_world_init(&world);
	cr_assert_eq(tidl_draft_new(&draft), 0);
	for (size_t i = 0; i < 2; i++) {
		tt_memory_init(&memories[i], 20 * TT_PAGE_BYTES);
		blocks[i] = memories[i].block;
		cr_assert_eq(
			tidl_draft_add(draft, i == 0 ? "a" : "b", &memories[i].foreign.managed), 0);
	}
	options.block_count = 2;
	options.blocks = blocks;
	cr_assert_eq(tidl_publish_bundle(world.client, "b", draft, &options, NULL), 0, "%s",
		     tidl_last_error());
	tidl_draft_free(draft);
	tt_memory_expect_intact(&memories[1]);
	cr_assert_eq(tidl_unshare(world.client, "b"), 0, "%s", tidl_last_error());
	for (size_t i = 0; i < 2; i++) {
		memories[i].data[0] = 5; /* would end the process in read-only memory */
		cr_expect(tt_memory_is_private(&memories[i]));
		tt_memory_deinit(&memories[i]);
	}
	tt_world_deinit(&world);
}

TT_TEST(inplace, constants_are_moved_for_readers_only)
{
	struct tt_world world;
	struct tt_memory memory;
	struct tidl_get_options write = {.size = sizeof(write), .attach = TIDL_ATTACH_WRITE};
	struct tidl_tensor *tensor;

	tt_world_init(&world);
	tt_memory_init(&memory, 16 * TT_PAGE_BYTES);
	memory.foreign.managed.flags |= DLPACK_FLAG_BITMASK_READ_ONLY;
	cr_assert_eq(tt_memory_publish(&memory, world.client, "x"), 0, "%s", tidl_last_error());
	cr_expect_eq(memory.publication.access, TIDL_ACCESS_LIVE);
	cr_expect_eq(tidl_get(world.other, "x", &write, &tensor), TIDL_ERR_ACCESS);
	cr_assert_eq(tidl_unshare(world.client, "x"), 0);
	memory.options.writable = 1;
	cr_assert_eq(tt_memory_publish(&memory, world.client, "x"), 0, "%s", tidl_last_error());
	cr_expect_eq(memory.publication.access, TIDL_ACCESS_SHARED);
	cr_assert_eq(tidl_get(world.other, "x", &write, &tensor), 0);
	tidl_tensor_unref(tensor);
	cr_assert_eq(tidl_unshare(world.client, "x"), 0);
	tt_memory_deinit(&memory);
	tt_world_deinit(&world);
}
