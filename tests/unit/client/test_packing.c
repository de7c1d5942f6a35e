/* SPDX-License-Identifier: Apache-2.0 */
/* How tensors come to lie in one block: who shares, who is apart, and that nothing else is taken.
 */
#include <stdlib.h>
#include <string.h>

#include "client/lib/packing.h"
#include "proto/wire/limits.h"
#include "tests/support/leak.h"
#include "tests/unit/client/support/foreign.h"

enum { ITEMS_MAX = 8 };

static float memory[4096];

/* A plan over views of `memory`. */
struct packed {
	struct tdp_arena arena;
	struct tt_foreign foreign[ITEMS_MAX];
	struct tdc_import imports[ITEMS_MAX];
	struct tdc_pack_item items[ITEMS_MAX];
	size_t count;
	struct tdc_pack pack;
};

static void packed_add(struct packed *packed, size_t first, int32_t ndim, const int64_t *shape,
		       const int64_t *strides)
{
	size_t index = packed->count++;
	struct tdp_fault fault;

	tt_foreign_init(&packed->foreign[index], &memory[first], ndim, shape, strides);
	cr_assert_eq(tdc_import(&packed->foreign[index].managed, &packed->imports[index], &fault),
		     0, "%s", fault.text);
	packed->items[index] =
		(struct tdc_pack_item){.import = &packed->imports[index], .member = index};
}

static void packed_plan(struct packed *packed)
{
	struct tdp_fault fault;

	tdp_arena_init(&packed->arena, SIZE_MAX);
	cr_assert_eq(
		tdc_pack_plan(&packed->arena, packed->count, packed->items, &packed->pack, &fault),
		0);
}

static const struct tdc_pack_item *packed_item(const struct packed *packed, size_t member)
{
	for (size_t i = 0; i < packed->count; i++) {
		if (packed->items[i].member == member)
			return &packed->items[i];
	}
	return NULL;
}

TT_TEST(packing, strangers_lie_apart_on_multiples_of_256)
{
	struct packed packed = {.count = 0};

	packed_add(&packed, 100, 1, (int64_t[]){3}, NULL);
	packed_add(&packed, 0, 2, (int64_t[]){8, 8}, NULL);
	packed_add(&packed, 103, 1, (int64_t[]){70}, NULL);
	packed_plan(&packed);
	cr_assert_eq(packed.pack.part_count, 3);
	cr_assert_eq(packed_item(&packed, 1)->offset_bytes, 0);
	cr_assert_eq(packed_item(&packed, 0)->offset_bytes, 256);
	cr_assert_eq(packed_item(&packed, 2)->offset_bytes, 512);
	cr_assert_eq(packed.pack.size_bytes, 512 + 280);
	tdp_arena_deinit(&packed.arena);
}

TT_TEST(packing, the_same_tensor_twice_is_copied_once)
{
	struct packed packed = {.count = 0};

	packed_add(&packed, 64, 2, (int64_t[]){4, 8}, NULL);
	packed_add(&packed, 0, 1, (int64_t[]){5}, NULL);
	packed_add(&packed, 64, 2, (int64_t[]){4, 8}, NULL);
	packed_plan(&packed);
	cr_assert_eq(packed.pack.part_count, 2);
	cr_assert_eq(packed_item(&packed, 0)->offset_bytes, packed_item(&packed, 2)->offset_bytes);
	cr_assert_eq(packed.pack.size_bytes, 256 + 128);
	tdp_arena_deinit(&packed.arena);
}

TT_TEST(packing, views_keep_sharing_what_one_of_them_covers)
{
	struct packed packed = {.count = 0};

	packed_add(&packed, 10, 1, (int64_t[]){6}, (int64_t[]){2});
	packed_add(&packed, 0, 2, (int64_t[]){8, 4}, NULL);
	packed_add(&packed, 0, 2, (int64_t[]){4, 8}, (int64_t[]){1, 4});
	packed_add(&packed, 31, 1, (int64_t[]){32}, (int64_t[]){-1});
	packed_plan(&packed);
	cr_assert_eq(packed.pack.part_count, 1);
	cr_assert_null(packed.pack.parts[0].gathered);
	cr_assert_eq((const void *)packed.pack.parts[0].source, (const void *)memory);
	cr_assert_eq(packed.pack.size_bytes, 128);
	cr_assert_eq(packed_item(&packed, 0)->offset_bytes, 40);
	cr_assert_eq(packed_item(&packed, 1)->offset_bytes, 0);
	cr_assert_eq(packed_item(&packed, 3)->offset_bytes, 124);
	for (size_t i = 0; i < packed.count; i++)
		cr_assert(packed_item(&packed, i)->keeps_strides);
	tdp_arena_deinit(&packed.arena);
}

TT_TEST(packing, halves_that_overlap_are_one_piece)
{
	struct packed packed = {.count = 0};

	packed_add(&packed, 20, 1, (int64_t[]){20}, NULL);
	packed_add(&packed, 0, 1, (int64_t[]){30}, NULL);
	packed_add(&packed, 40, 1, (int64_t[]){1}, NULL);
	packed_plan(&packed);
	cr_assert_eq(packed.pack.part_count, 2, "what only touches shares nothing");
	cr_assert_eq(packed.pack.parts[0].size_bytes, 160);
	cr_assert_eq(packed_item(&packed, 0)->offset_bytes, 80);
	cr_assert_eq(packed_item(&packed, 2)->offset_bytes, 256);
	tdp_arena_deinit(&packed.arena);
}

TT_TEST(packing, what_lies_between_columns_is_not_taken)
{
	struct packed packed = {.count = 0};

	packed_add(&packed, 0, 1, (int64_t[]){4}, (int64_t[]){1000});
	packed_add(&packed, 1, 1, (int64_t[]){4}, (int64_t[]){1000});
	packed_add(&packed, 0, 1, (int64_t[]){4}, (int64_t[]){1000});
	packed_plan(&packed);
	cr_assert_eq(packed.pack.part_count, 2);
	cr_assert_eq(packed.pack.size_bytes, 256 + 16);
	cr_assert_eq(packed_item(&packed, 0)->offset_bytes, packed_item(&packed, 2)->offset_bytes);
	cr_assert_not(packed_item(&packed, 0)->keeps_strides);
	tdp_arena_deinit(&packed.arena);
}

/* As many bytes as from the first to the last, but not all of them. */
TT_TEST(packing, strides_that_repeat_and_skip_cover_nothing)
{
	struct packed packed = {.count = 0};

	packed_add(&packed, 0, 2, (int64_t[]){2, 2}, (int64_t[]){0, 3});
	packed_add(&packed, 0, 2, (int64_t[]){2, 2}, (int64_t[]){3, 0});
	packed_plan(&packed);
	cr_assert_eq(packed.pack.part_count, 2);
	cr_assert_not_null(packed.pack.parts[0].gathered);
	tdp_arena_deinit(&packed.arena);
}
