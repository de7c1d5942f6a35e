/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From tensors to the ranges that have to be moved for them. A tensor's block is one that the
 * caller named, or the one that its pointer came from malloc as. Moves nothing itself.
 */
#include "client/lib/inplace/plan.h"

#include <stdlib.h>
#include <string.h>

#include "client/lib/cuda/driver.h"
#include "client/lib/inplace/maps.h"
#include "proto/mem/memfd.h"

/* One move while it is being worked out. */
struct planning {
	const struct tidl_publish_options *options;
	struct tdc_maps maps;
	size_t item_count;
	struct tdc_move_item *items;
	size_t range_count;
	struct tdc_range *ranges; /* of each item; later each of them once */
};

/* ---- one tensor ---- */

static bool block_holds(const struct tidl_block *block, const struct tdc_import *import)
{
	uintptr_t begin = (uintptr_t)block->address;

	return import->begin >= begin && import->end - begin <= block->bytes;
}

static const struct tidl_block *options_find_block(const struct tidl_publish_options *options,
						   const struct tdc_import *import)
{
	for (size_t i = 0; i < options->block_count; i++) {
		if (block_holds(&options->blocks[i], import))
			return &options->blocks[i];
	}
	return NULL;
}

static int item_find_pages(const struct planning *planning, const struct tdc_import *import,
			   struct tdc_range *ret_range, struct tdp_fault *fault)
{
	const struct tidl_block *named = options_find_block(planning->options, import);
	struct tidl_block guessed = {
		.address = import->data,
		.kind = TIDL_BLOCK_MALLOC,
	};
	uintptr_t data = (uintptr_t)import->data;

	if (import->is_pinned)
		return tdc_range_refuse(TIDL_COPY_REASON_PINNED, fault);
	if (named != NULL)
		return tdc_range_find(&planning->maps, named, ret_range, fault);
	/* A view that goes backwards begins behind its memory. */
	if (data > import->begin)
		return tdc_range_refuse(TIDL_COPY_REASON_POOL, fault);
	guessed.bytes = import->end - data;
	return tdc_range_find(&planning->maps, &guessed, ret_range, fault);
}

static int item_find_range(const struct planning *planning, const struct tdc_import *import,
			   struct tdc_range *ret_range, struct tdp_fault *fault)
{
	int r = item_find_pages(planning, import, ret_range, fault);

	/* What CUDA has allocated is refused as something else: this says more. */
	if (r == TIDL_ERR_COPY_NEEDED && tdc_cuda_knows(import->begin, import->begin + 1))
		r = tdc_range_refuse(TIDL_COPY_REASON_PINNED, fault);
	return r;
}

/* ---- all of them ---- */

static int range_compare(const void *left, const void *right)
{
	const struct tdc_range *a = left;
	const struct tdc_range *b = right;

	return (a->begin > b->begin) - (a->begin < b->begin);
}

static int item_compare(const void *left, const void *right)
{
	const struct tdc_move_item *a = left;
	const struct tdc_move_item *b = right;

	return (a->import->begin > b->import->begin) - (a->import->begin < b->import->begin);
}

/* Sort, each once. Blocks that overlap are two opinions on one memory. */
static int planning_merge(struct planning *planning, struct tdp_fault *fault)
{
	struct tdc_range *ranges = planning->ranges;
	size_t count = 0;

	qsort(ranges, planning->range_count, sizeof(*ranges), range_compare);
	for (size_t i = 0; i < planning->range_count; i++) {
		struct tdc_range *last = count > 0 ? &ranges[count - 1] : NULL;

		if (last != NULL && last->begin == ranges[i].begin &&
		    last->size_bytes == ranges[i].size_bytes) {
			if (ranges[i].content_end > last->content_end)
				last->content_end = ranges[i].content_end;
			continue;
		}
		if (last != NULL && last->begin + last->size_bytes > ranges[i].begin)
			return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT,
					     "two blocks of the call overlap: name each memory "
					     "once");
		ranges[count++] = ranges[i];
	}
	planning->range_count = count;
	return 0;
}

/* The range that the tensor lies in. Each of them has one. */
static size_t planning_find(const struct planning *planning, const struct tdc_import *import)
{
	size_t low = 0;
	size_t high = planning->range_count;

	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;

		if ((uintptr_t)planning->ranges[middle].begin <= import->begin)
			low = middle;
		else
			high = middle;
	}
	return low;
}

static int planning_find_ranges(struct planning *planning, size_t *ret_culprit,
				struct tdp_fault *fault)
{
	for (size_t i = 0; i < planning->item_count; i++) {
		const struct tdc_move_item *item = &planning->items[i];
		int r = item_find_range(planning, item->import, &planning->ranges[i], fault);

		if (r < 0) {
			*ret_culprit = item->member;
			return r;
		}
	}
	planning->range_count = planning->item_count;
	return planning_merge(planning, fault);
}

/* Devices would go on with the old pages. */
static int planning_check_devices(const struct planning *planning, size_t *ret_culprit,
				  struct tdp_fault *fault)
{
	for (size_t i = 0; i < planning->range_count; i++) {
		uintptr_t begin = (uintptr_t)planning->ranges[i].begin;
		size_t item = 0;

		if (!tdc_cuda_knows(begin, begin + planning->ranges[i].size_bytes))
			continue;
		while (planning_find(planning, planning->items[item].import) != i)
			item++;
		*ret_culprit = planning->items[item].member;
		return tdc_range_refuse(TIDL_COPY_REASON_PINNED, fault);
	}
	return 0;
}

/*
 * Bytes of a range that were asked for and that none of the tensors from @items on touches. Blocks
 * of whole pages were rounded: what is less than a page at their end is nothing.
 */
static uint64_t range_neighbours(const struct tdc_range *range, const struct tdc_move_item *items,
				 size_t count)
{
	uintptr_t position = range->content_begin;
	uint64_t neighbour_bytes = 0;
	uintptr_t rest_bytes;

	for (size_t i = 0; i < count; i++) {
		const struct tdc_import *import = items[i].import;

		if (import->begin > position)
			neighbour_bytes += import->begin - position;
		if (import->end > position)
			position = import->end;
	}
	rest_bytes = range->content_end > position ? range->content_end - position : 0;
	if (range->header == NULL && rest_bytes < tdp_page_bytes())
		rest_bytes = 0;
	return neighbour_bytes + rest_bytes;
}

static uint64_t planning_neighbours(const struct planning *planning)
{
	uint64_t neighbour_bytes = 0;
	size_t first = 0;

	for (size_t i = 0; i < planning->range_count; i++) {
		size_t count = 0;

		while (first + count < planning->item_count &&
		       planning->items[first + count].part == i)
			count++;
		neighbour_bytes +=
			range_neighbours(&planning->ranges[i], &planning->items[first], count);
		first += count;
	}
	return neighbour_bytes;
}

static int planning_move(struct tidl_client *client, struct planning *planning,
			 struct tdp_arena *arena, struct tdc_move_result *ret_result,
			 struct tdp_fault *fault)
{
	struct tdc_source **sources =
		tdp_arena_alloc(arena, planning->item_count * sizeof(struct tdc_source *));
	struct tdc_move_order order = {
		.range_count = planning->range_count,
		.ranges = planning->ranges,
		.nobody_writes = planning->options->nobody_writes != 0,
		.source_count = planning->item_count,
		.sources = sources,
	};
	struct tdc_move_result result = {.moved_bytes = 0};
	int r;

	if (sources == NULL)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	qsort(planning->items, planning->item_count, sizeof(*planning->items), item_compare);
	for (size_t i = 0; i < planning->item_count; i++) {
		sources[i] = planning->items[i].source;
		planning->items[i].part = planning_find(planning, planning->items[i].import);
	}
	for (size_t i = 0; i < planning->range_count; i++)
		result.moved_bytes += planning->ranges[i].size_bytes;
	result.neighbour_bytes = planning_neighbours(planning);
	r = tdc_moved_make(client, &order, &result.moved, fault);
	if (r < 0)
		return r;
	for (size_t i = 0; i < planning->item_count; i++)
		planning->items[i].segment = result.moved->parts[planning->items[i].part].segment;
	*ret_result = result;
	return 0;
}

int tdc_move_all(struct tidl_client *client, struct tdc_move_request *request,
		 struct tdc_move_result *ret_result, struct tdp_fault *fault)
{
	struct planning planning = {
		.options = request->options,
		.item_count = request->item_count,
		.items = request->items,
		.ranges = tdp_arena_zalloc(request->arena, request->item_count,
					   sizeof(*planning.ranges)),
	};
	int r;

	if (planning.ranges == NULL)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	r = tdc_maps_load(&planning.maps, fault);
	if (r < 0)
		return r;
	r = planning_find_ranges(&planning, &request->culprit, fault);
	tdc_maps_deinit(&planning.maps);
	if (r == 0)
		r = planning_check_devices(&planning, &request->culprit, fault);
	return r < 0 ? r : planning_move(client, &planning, request->arena, ret_result, fault);
}
