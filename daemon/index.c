/* SPDX-License-Identifier: Apache-2.0 */
/* A sorted array with gaps: 16 bytes a publication, binary search, amortised constant removal. */
#include "daemon/index.h"

#include <assert.h>
#include <stdlib.h>

#include "include/tidl/error.h"

enum { CAPACITY_MIN = 64 };

void tdd_index_deinit(struct tdd_index *index)
{
	free(index->slots);
	*index = (struct tdd_index){0};
}

static void index_close_gaps(struct tdd_index *index)
{
	size_t kept = 0;

	for (size_t i = 0; i < index->slot_count; i++) {
		if (index->slots[i].publication)
			index->slots[kept++] = index->slots[i];
	}
	index->slot_count = kept;
	index->gap_count = 0;
}

/* Give memory back after a large listing has gone; keeping it is no failure. */
static void index_shrink(struct tdd_index *index)
{
	size_t capacity = index->capacity / 2;
	struct tdd_index_slot *slots;

	if (capacity < CAPACITY_MIN || index->slot_count > capacity / 2)
		return;
	slots = realloc(index->slots, capacity * sizeof(*slots));
	if (!slots)
		return;
	index->slots = slots;
	index->capacity = capacity;
}

int tdd_index_reserve(struct tdd_index *index)
{
	size_t capacity = index->capacity ? 2 * index->capacity : CAPACITY_MIN;
	struct tdd_index_slot *slots;

	if (index->slot_count < index->capacity)
		return 0;
	slots = reallocarray(index->slots, capacity, sizeof(*slots));
	if (!slots)
		return TIDL_ERR_NO_MEMORY;
	index->slots = slots;
	index->capacity = capacity;
	return 0;
}

void tdd_index_append(struct tdd_index *index, uint64_t generation,
		      struct tdd_publication *publication)
{
	assert(index->slot_count < index->capacity);
	index->slots[index->slot_count++] = (struct tdd_index_slot){generation, publication};
}

size_t tdd_index_after(const struct tdd_index *index, uint64_t generation)
{
	size_t low = 0;
	size_t high = index->slot_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (index->slots[middle].generation <= generation)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct tdd_publication *tdd_index_find(const struct tdd_index *index, uint64_t generation)
{
	size_t position =
		generation > 0 ? tdd_index_after(index, generation - 1) : index->slot_count;

	if (position == index->slot_count || index->slots[position].generation != generation)
		return NULL;
	return index->slots[position].publication;
}

void tdd_index_remove(struct tdd_index *index, uint64_t generation)
{
	size_t position = tdd_index_after(index, generation - 1);

	assert(position < index->slot_count && index->slots[position].generation == generation);
	index->slots[position].publication = NULL;
	index->gap_count++;
	if (index->gap_count <= index->slot_count / 2)
		return;
	index_close_gaps(index);
	index_shrink(index);
}
