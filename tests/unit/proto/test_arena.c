/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <string.h>

#include "proto/base/arena.h"
#include "tests/support/leak.h"

TT_TEST(arena, gives_aligned_pieces_that_do_not_overlap)
{
	static unsigned char *pieces[600];
	tdp_auto_arena arena;

	tdp_arena_init(&arena, 1 << 20);
	for (size_t i = 0; i < TDP_ARRAY_LENGTH(pieces); i++) {
		pieces[i] = tdp_arena_alloc(&arena, i);
		cr_assert_not_null(pieces[i]);
		cr_assert_eq((uintptr_t)pieces[i] % _Alignof(max_align_t), 0);
		memset(pieces[i], (int)(i & 0xff), i);
	}
	for (size_t i = 0; i < TDP_ARRAY_LENGTH(pieces); i++) {
		for (size_t k = 0; k < i; k++)
			cr_assert_eq(pieces[i][k], i & 0xff, "piece %zu, byte %zu", i, k);
	}
}

TT_TEST(arena, refuses_beyond_its_cap_and_goes_on_below_it)
{
	tdp_auto_arena arena;

	tdp_arena_init(&arena, 8192);
	cr_assert_null(tdp_arena_alloc(&arena, 8193));
	cr_assert_null(tdp_arena_alloc(&arena, SIZE_MAX));
	cr_assert_null(tdp_arena_alloc(&arena, SIZE_MAX - 8));
	cr_assert_not_null(tdp_arena_alloc(&arena, 8000));
	cr_assert_null(tdp_arena_alloc(&arena, 256));
	cr_assert_not_null(tdp_arena_alloc(&arena, 128));
}

TT_TEST(arena, counts_empty_pieces_too)
{
	tdp_auto_arena arena;
	size_t count = 0;

	tdp_arena_init(&arena, 4096);
	while (tdp_arena_alloc(&arena, 0) != NULL)
		count++;
	cr_assert_eq(count, 4096 / _Alignof(max_align_t));
}

TT_TEST(arena, zeroes_arrays_and_refuses_products_that_overflow)
{
	static const unsigned char zeroes[4000];
	struct tdp_arena arena;
	unsigned char *piece;

	memset(&arena, 0xff, sizeof(arena));
	tdp_arena_init(&arena, 1 << 20);
	piece = tdp_arena_zalloc(&arena, 1000, 4);
	cr_assert_not_null(piece);
	cr_assert_eq(memcmp(piece, zeroes, 4000), 0);
	cr_assert_null(tdp_arena_zalloc(&arena, SIZE_MAX / 2, 3));
	cr_assert_null(tdp_arena_zalloc(&arena, (size_t)1 << 32, (size_t)1 << 32));
	tdp_arena_deinit(&arena);
}

TT_TEST(arena, copies_strings)
{
	tdp_auto_arena arena;
	char text[] = "state";
	char *copy;

	tdp_arena_init(&arena, 64);
	copy = tdp_arena_strdup(&arena, text);
	text[0] = 'S';
	cr_assert_str_eq(copy, "state");
	cr_assert_null(tdp_arena_strdup(&arena, "a text of more than forty-eight bytes: too long"
						" for what is left"));
}

TT_TEST(arena, can_be_used_again_after_deinit)
{
	struct tdp_arena arena;

	for (int i = 0; i < 3; i++) {
		tdp_arena_init(&arena, 1 << 20);
		cr_assert_not_null(tdp_arena_alloc(&arena, 100000));
		cr_assert_not_null(tdp_arena_alloc(&arena, 10));
		tdp_arena_deinit(&arena);
		tdp_arena_deinit(&arena);
	}
}
