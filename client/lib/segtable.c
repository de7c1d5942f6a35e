/* SPDX-License-Identifier: Apache-2.0 */
/* Where the mapped segments of one client lie. A sorted array, since maps never overlap and ranges
 * are looked up far more often than they change; and a hash over their identity. */
#include "client/lib/segtable.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/segment.h"

enum { SEGTABLE_FIRST_CAPACITY = 16 };

static uintptr_t segment_begin(const struct tdc_segment *segment)
{
	return (uintptr_t)segment->base;
}

/* The first position whose segment begins behind @address. */
static size_t segtable_upper(const struct tdc_segtable *table, uintptr_t address)
{
	size_t low = 0;
	size_t high = table->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (segment_begin(table->by_address[middle]) <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static int segtable_reserve(struct tdc_segtable *table)
{
	size_t capacity = table->capacity ? table->capacity * 2 : SEGTABLE_FIRST_CAPACITY;
	struct tdc_segment **grown;

	if (table->count < table->capacity)
		return 0;
	grown = reallocarray(table->by_address, capacity, sizeof(struct tdc_segment *));
	if (grown == NULL)
		return -ENOMEM;
	table->by_address = grown;
	table->capacity = capacity;
	return 0;
}

/* Two copy-on-write maps of one segment are two memories; and of memory that was shared where it
 * lay, many parts may be in one segment. */
static bool segment_is_keyed(const struct tdc_segment *segment)
{
	return segment->attach != TIDL_ATTACH_COPY_ON_WRITE && segment->moved == NULL;
}

int tdc_segtable_link(struct tdc_segtable *table, struct tdc_segment *segment)
{
	size_t position;

	if (segtable_reserve(table) < 0)
		return -ENOMEM;
	if (segment_is_keyed(segment)) {
		HASH_ADD(hh, table->by_key, key, sizeof(segment->key), segment);
		if (segment->hh.tbl == NULL)
			return -ENOMEM;
	}
	position = segtable_upper(table, segment_begin(segment));
	memmove(table->by_address + position + 1, table->by_address + position,
		(table->count - position) * sizeof(struct tdc_segment *));
	table->by_address[position] = segment;
	table->count++;
	segment->is_linked = true;
	return 0;
}

void tdc_segtable_unlink(struct tdc_segtable *table, struct tdc_segment *segment)
{
	size_t position = segtable_upper(table, segment_begin(segment)) - 1;

	/* Where memory was freed by its owner another map may lie by now. */
	while (table->by_address[position] != segment)
		position--;
	segment->is_linked = false;
	if (segment_is_keyed(segment))
		HASH_DELETE(hh, table->by_key, segment);
	table->count--;
	memmove(table->by_address + position, table->by_address + position + 1,
		(table->count - position) * sizeof(struct tdc_segment *));
}

void tdc_segtable_deinit(struct tdc_segtable *table)
{
	free(table->by_address);
	table->by_address = NULL;
	table->count = 0;
	table->capacity = 0;
}

struct tdc_segment *tdc_segtable_find(struct tdc_segtable *table, uint64_t id, uint64_t era,
				      enum tidl_attach attach)
{
	struct tdc_segment_key key;
	struct tdc_segment *segment;

	memset(&key, 0, sizeof(key));
	key.id = id;
	key.era = era;
	key.attach = attach;
	HASH_FIND(hh, table->by_key, &key, sizeof(key), segment);
	return segment;
}

struct tdc_segment *tdc_segtable_find_range(const struct tdc_segtable *table, uintptr_t begin,
					    uintptr_t end)
{
	size_t position = segtable_upper(table, begin);
	struct tdc_segment *segment;

	if (position == 0)
		return NULL;
	segment = table->by_address[position - 1];
	return end <= segment_begin(segment) + segment->map_bytes ? segment : NULL;
}
