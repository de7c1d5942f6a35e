/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDP_BASE_ARENA_H
#define TDP_BASE_ARENA_H

#include <stddef.h>

#include "proto/base/attr.h"

/*
 * Memory for one message: handed out piece by piece, given back all at once, and capped, so that a
 * packet that unpacks into far more than its own size is refused instead of served. The first few
 * kilobytes lie inside the struct itself, so that ordinary messages never reach malloc.
 */

enum { TDP_ARENA_INLINE_BYTES = 4096 };

struct tdp_arena_chunk;

struct tdp_arena {
	size_t used_bytes;  /* of the current chunk */
	size_t total_bytes; /* handed out so far */
	size_t cap_bytes;
	struct tdp_arena_chunk *chunks; /* newest first; empty while the inline part suffices */
	_Alignas(max_align_t) unsigned char inline_bytes[TDP_ARENA_INLINE_BYTES];
};

void tdp_arena_init(struct tdp_arena *arena, size_t cap_bytes);
void tdp_arena_deinit(struct tdp_arena *arena);

/* Uninitialised, aligned for any type. NULL beyond the cap or without memory. */
void *tdp_arena_alloc(struct tdp_arena *arena, size_t size_bytes) TDP_MUST_CHECK;

/* @count zeroed elements; NULL as above, or when the product overflows. */
void *tdp_arena_zalloc(struct tdp_arena *arena, size_t count, size_t size_bytes) TDP_MUST_CHECK;

/* A copy of a string; NULL as above. */
char *tdp_arena_strdup(struct tdp_arena *arena, const char *text) TDP_MUST_CHECK;

#define tdp_auto_arena TDP_CLEANUP(tdp_arena_deinit) struct tdp_arena

#endif
