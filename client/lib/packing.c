/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How tensors from anywhere come to lie side by side in one block. Tensors whose memory overlaps
 * form a cluster, which is found by sorting. Only plans: reads no tensor's memory and writes none.
 */
#include "client/lib/packing.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/checked.h"
#include "proto/tensor/layout.h"
#include "proto/wire/limits.h"

static int number_compare(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

/* Any order will do that puts equal layouts side by side. */
static int layout_compare(const struct tdp_layout *a, const struct tdp_layout *b)
{
	int order = memcmp(&a->dtype, &b->dtype, sizeof(a->dtype));

	if (order == 0)
		order = number_compare(a->flags, b->flags);
	if (order == 0)
		order = number_compare(a->ndim, b->ndim);
	if (order == 0)
		order = number_compare(a->strides != NULL, b->strides != NULL);
	if (order == 0 && a->ndim > 0)
		order = memcmp(a->shape, b->shape, a->ndim * sizeof(*a->shape));
	if (order == 0 && a->ndim > 0 && a->strides != NULL)
		order = memcmp(a->strides, b->strides, a->ndim * sizeof(*a->strides));
	return order;
}

/* Where it begins; of those that begin there the longest first, then equal ones together. */
static int item_compare(const void *left, const void *right)
{
	const struct tdc_pack_item *a = left;
	const struct tdc_pack_item *b = right;
	int order = number_compare(a->import->begin, b->import->begin);

	if (order == 0)
		order = number_compare(b->import->end, a->import->end);
	if (order == 0)
		order = number_compare((uintptr_t)a->import->first, (uintptr_t)b->import->first);
	if (order == 0)
		order = layout_compare(&a->import->layout, &b->import->layout);
	return order != 0 ? order : number_compare(a->member, b->member);
}

static bool items_are_equal(const struct tdc_pack_item *a, const struct tdc_pack_item *b)
{
	return a->import->begin == b->import->begin && a->import->end == b->import->end &&
	       a->import->first == b->import->first &&
	       layout_compare(&a->import->layout, &b->import->layout) == 0;
}

static int pack_add(struct tdc_pack *pack, const struct tdc_pack_part *part,
		    struct tdp_fault *fault)
{
	uint64_t offset_bytes;
	uint64_t end_bytes;

	if (!tdp_round_up_u64(pack->size_bytes, TDP_BUNDLE_ALIGN_BYTES, &offset_bytes) ||
	    !tdp_add_u64(offset_bytes, part->size_bytes, &end_bytes) || end_bytes > INT64_MAX)
		return tdp_fault_set(fault, TIDL_ERR_LIMIT,
				     "the tensors have more bytes together than one segment can: "
				     "publish fewer at once");
	pack->parts[pack->part_count] = *part;
	pack->parts[pack->part_count++].offset_bytes = offset_bytes;
	pack->size_bytes = end_bytes;
	return 0;
}

/* A piece for one tensor alone, row-major. */
static int pack_add_single(struct tdc_pack *pack, struct tdc_pack_item *item,
			   struct tdp_fault *fault)
{
	const struct tdc_import *import = item->import;
	struct tdc_pack_part part = {
		.source = import->first,
		.size_bytes = import->extent.nbytes,
		.gathered = import->extent.is_compact ? NULL : &import->layout,
		.member = item->member,
	};
	int r = pack_add(pack, &part, fault);

	if (r == 0)
		item->offset_bytes = pack->parts[pack->part_count - 1].offset_bytes;
	return r;
}

/* One piece for a whole cluster, copied as it is. */
static int pack_add_cluster(struct tdc_pack *pack, struct tdc_pack_item *items, size_t count,
			    uintptr_t end, struct tdp_fault *fault)
{
	uintptr_t begin = items[0].import->begin;
	struct tdc_pack_part part = {
		.source = items[0].import->first - ((uintptr_t)items[0].import->first - begin),
		.size_bytes = end - begin,
		.member = items[0].member,
	};
	int r = pack_add(pack, &part, fault);

	if (r < 0)
		return r;
	for (size_t i = 0; i < count; i++) {
		items[i].keeps_strides = true;
		items[i].offset_bytes = pack->parts[pack->part_count - 1].offset_bytes +
					((uintptr_t)items[i].import->first - begin);
	}
	return 0;
}

/* Do the tensors without gaps touch all bytes from the first to the last one? */
static bool cluster_is_covered(const struct tdc_pack_item *items, size_t count, uintptr_t end)
{
	uintptr_t covered = items[0].import->begin;

	for (size_t i = 0; i < count && items[i].import->begin <= covered; i++) {
		if (items[i].is_dense && items[i].import->end > covered)
			covered = items[i].import->end;
	}
	return covered == end;
}

static int pack_add_apart(struct tdc_pack *pack, struct tdc_pack_item *items, size_t count,
			  struct tdp_fault *fault)
{
	for (size_t i = 0; i < count; i++) {
		int r = 0;

		if (i > 0 && items_are_equal(&items[i - 1], &items[i]))
			items[i].offset_bytes = items[i - 1].offset_bytes;
		else
			r = pack_add_single(pack, &items[i], fault);
		if (r < 0)
			return r;
	}
	return 0;
}

/* The number of items from the first one on whose memory overlaps, and where it ends. */
static size_t cluster_measure(const struct tdc_pack_item *items, size_t item_count,
			      uintptr_t *ret_end)
{
	uintptr_t end = items[0].import->end;
	size_t count = 1;

	while (count < item_count && items[count].import->begin < end) {
		if (items[count].import->end > end)
			end = items[count].import->end;
		count++;
	}
	*ret_end = end;
	return count;
}

int tdc_pack_plan(struct tdp_arena *arena, size_t item_count, struct tdc_pack_item *items,
		  struct tdc_pack *ret_pack, struct tdp_fault *fault)
{
	struct tdc_pack pack = {
		.parts = tdp_arena_zalloc(arena, item_count, sizeof(*pack.parts)),
	};

	if (pack.parts == NULL)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	for (size_t i = 0; i < item_count; i++)
		items[i].is_dense = tdp_layout_is_dense(&items[i].import->layout);
	qsort(items, item_count, sizeof(*items), item_compare);
	for (size_t i = 0; i < item_count;) {
		uintptr_t end;
		size_t count = cluster_measure(&items[i], item_count - i, &end);
		int r;

		if (count > 1 && cluster_is_covered(&items[i], count, end))
			r = pack_add_cluster(&pack, &items[i], count, end, fault);
		else
			r = pack_add_apart(&pack, &items[i], count, fault);
		if (r < 0)
			return r;
		i += count;
	}
	*ret_pack = pack;
	return 0;
}
