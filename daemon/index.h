/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_INDEX_H
#define TDD_INDEX_H

#include <stddef.h>
#include <stdint.h>

#include "proto/base/attr.h"

struct tdd_publication;

/*
 * Listed publications in the order of their generations, which only grow: additions go to the end,
 * a removal leaves a gap, and gaps are closed when they are the majority. So that a listing can go
 * on behind any generation, whether that one still exists or not.
 */
struct tdd_index_slot {
	uint64_t generation;
	struct tdd_publication *publication; /* NULL: a gap */
};

struct tdd_index {
	size_t slot_count;
	size_t gap_count;
	size_t capacity;
	struct tdd_index_slot *slots;
};

void tdd_index_deinit(struct tdd_index *index);

/* Make room for one more. Returns 0 or TIDL_ERR_NO_MEMORY. */
int tdd_index_reserve(struct tdd_index *index) TDP_MUST_CHECK;

/* @generation is higher than any before, and room is reserved. */
void tdd_index_append(struct tdd_index *index, uint64_t generation,
		      struct tdd_publication *publication);
void tdd_index_remove(struct tdd_index *index, uint64_t generation);

/* NULL: no publication of this generation is in it. */
struct tdd_publication *tdd_index_find(const struct tdd_index *index, uint64_t generation);

/* Position of the first slot behind @generation; slot_count: none. */
size_t tdd_index_after(const struct tdd_index *index, uint64_t generation);

static inline size_t tdd_index_count(const struct tdd_index *index)
{
	return index->slot_count - index->gap_count;
}

#endif
