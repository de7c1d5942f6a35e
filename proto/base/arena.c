/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bump allocator for one message, owned by whoever handles that message. It grows in chunks up to
 * its cap and never gives back single pieces. Under AddressSanitizer every piece is a chunk of its
 * own, so that running over the end of one is found.
 */
#include "proto/base/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/checked.h"

#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define ARENA_HAS_ASAN
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define ARENA_HAS_ASAN
#endif

#ifdef ARENA_HAS_ASAN
enum { ARENA_INLINE_USED_BYTES = 0, ARENA_CHUNK_BYTES = 0 };
#else
enum { ARENA_INLINE_USED_BYTES = TDP_ARENA_INLINE_BYTES, ARENA_CHUNK_BYTES = 16384 };
#endif

struct tdp_arena_chunk {
	struct tdp_arena_chunk *next;
	size_t capacity_bytes;
	_Alignas(max_align_t) unsigned char bytes[];
};

void tdp_arena_init(struct tdp_arena *arena, size_t cap_bytes)
{
	arena->used_bytes = 0;
	arena->total_bytes = 0;
	arena->cap_bytes = cap_bytes;
	arena->chunks = NULL;
}

void tdp_arena_deinit(struct tdp_arena *arena)
{
	while (arena->chunks != NULL) {
		struct tdp_arena_chunk *chunk = arena->chunks;

		arena->chunks = chunk->next;
		free(chunk);
	}
	arena->used_bytes = 0;
}

/* The chunk ends where the piece ends, unless chunks are larger than that. */
static bool arena_add_chunk(struct tdp_arena *arena, size_t piece_bytes, size_t rounded_bytes)
{
	size_t size = piece_bytes > ARENA_CHUNK_BYTES ? piece_bytes : ARENA_CHUNK_BYTES;
	struct tdp_arena_chunk *chunk = malloc(sizeof(*chunk) + size);

	if (chunk == NULL)
		return false;
	chunk->next = arena->chunks;
	chunk->capacity_bytes = size > rounded_bytes ? size : rounded_bytes;
	arena->chunks = chunk;
	arena->used_bytes = 0;
	return true;
}

void *tdp_arena_alloc(struct tdp_arena *arena, size_t size_bytes)
{
	size_t capacity = arena->chunks ? arena->chunks->capacity_bytes : ARENA_INLINE_USED_BYTES;
	unsigned char *start;
	uint64_t rounded;

	/* An empty piece is one byte long, so that NULL keeps its meaning. */
	if (!tdp_round_up_u64(size_bytes ? size_bytes : 1, _Alignof(max_align_t), &rounded))
		return NULL;
	if (rounded > arena->cap_bytes - arena->total_bytes)
		return NULL;
	if (rounded > capacity - arena->used_bytes && !arena_add_chunk(arena, size_bytes, rounded))
		return NULL;
	start = arena->chunks ? arena->chunks->bytes : arena->inline_bytes;
	start += arena->used_bytes;
	arena->used_bytes += rounded;
	arena->total_bytes += rounded;
	return start;
}

void *tdp_arena_zalloc(struct tdp_arena *arena, size_t count, size_t size_bytes)
{
	uint64_t product;
	void *piece;

	if (!tdp_mul_u64(count, size_bytes, &product))
		return NULL;
	piece = tdp_arena_alloc(arena, product);
	if (piece != NULL)
		memset(piece, 0, product);
	return piece;
}

char *tdp_arena_strdup(struct tdp_arena *arena, const char *text)
{
	size_t size = strlen(text) + 1;
	char *copy = tdp_arena_alloc(arena, size);

	if (copy != NULL)
		memcpy(copy, text, size);
	return copy;
}
