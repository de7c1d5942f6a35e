/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Are the tensors in segments of ours already? Those are published where they are, whatever views
 * of it they are. All others are copied once, together, into a new segment, which this process
 * keeps no map of; or, where copies are forbidden, moved into one where they lie. Knows neither
 * names nor the publish message.
 */
#include "client/lib/placement.h"

#include <string.h>

#include "client/lib/aliases.h"
#include "client/lib/allocation.h"
#include "client/lib/client.h"
#include "client/lib/copying.h"
#include "client/lib/huge.h"
#include "client/lib/packing.h"
#include "client/lib/pool.h"
#include "client/lib/seal.h"
#include "proto/tensor/layout.h"

/* One placement while it is being worked out. */
struct placing {
	struct tidl_client *client;
	struct tdc_placement *placement;
	const struct tdc_member *members;
	const struct tidl_publish_options *options;
	struct tdc_aliases aliases;
	int64_t **strides;	     /* of each tensor, to be filled in */
	struct tdc_pack_item *items; /* to be copied */
	size_t item_count;
	struct tdc_move_item *moves; /* to be shared where they lie */
	size_t move_count;
};

int tdc_member_fault(struct tdp_fault *fault, const char *key)
{
	struct tdp_fault inner;

	if (key[0] == '\0')
		return fault->code;
	inner = *fault;
	(void)tdp_fault_set(fault, inner.code, "'%s': %s", key, inner.text);
	fault->detail = inner.detail;
	return inner.code;
}

static const char *copy_reason_sentence(enum tidl_copy_reason reason)
{
	switch (reason) {
	case TIDL_COPY_REASON_FOREIGN:
		return "the tensor does not lie in memory of this client";
	case TIDL_COPY_REASON_NOT_OWNER:
		return "the tensor lies in memory that belongs to another user";
	case TIDL_COPY_REASON_PRIVATE_MAP:
		return "the tensor was attached copy-on-write, so its pages may be private";
	case TIDL_COPY_REASON_OTHER_BROKER:
		return "the tensor lies in memory of another broker or connection";
	default:
		return "a copy was asked for";
	}
}

/* ---- one tensor ---- */

/* The description of a tensor whose place is not known yet. */
static int placing_describe(struct placing *placing, size_t index, struct tdp_fault *fault)
{
	struct tdc_placement *placement = placing->placement;
	const struct tdp_layout *layout = &placing->members[index].import.layout;
	int64_t *strides = tdp_arena_alloc(&placement->arena, layout->ndim * sizeof(*strides));

	if (strides == NULL)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	placing->strides[index] = strides;
	placement->tensors[index] = (struct tdp_tensor){
		.key = placing->members[index].key,
		.segment_index = -1,
		.dtype = layout->dtype,
		.ndim = layout->ndim,
		.shape = layout->shape,
		.strides = strides,
		.flags = layout->flags,
	};
	return 0;
}

static void strides_fill(const struct tdp_layout *layout, bool keeps_strides, int64_t *strides)
{
	if (keeps_strides && layout->strides != NULL)
		tdp_layout_normal_strides(layout->ndim, layout->shape, layout->strides, strides);
	else
		tdp_layout_compact_strides(layout->ndim, layout->shape, strides);
}

static void placing_alias(struct placing *placing, const struct tdc_import *import,
			  struct tdp_tensor *tensor)
{
	const struct tdc_segment *segment = placing->aliases.last->segment;

	if (segment->moved != NULL && import->is_readonly && !placing->options->writable &&
	    placing->placement->access == TIDL_ACCESS_SHARED &&
	    atomic_load(&segment->access) != TIDL_ACCESS_SHARED)
		placing->placement->access = TIDL_ACCESS_LIVE;
	tensor->segment_index = (int64_t)placing->aliases.last->index;
	tensor->byte_offset = segment->data_offset_bytes +
			      (uint64_t)((uintptr_t)import->first - (uintptr_t)segment->base);
}

/* May it be copied, and would a copy be of any use? */
static int copy_check(const struct tidl_publish_options *options, enum tidl_copy_reason reason,
		      struct tdp_fault *fault)
{
	if (options->copy == TIDL_COPY_NEVER)
		(void)tdp_fault_set(fault, TIDL_ERR_COPY_NEEDED,
				    "%s: allow a copy, or allocate the tensor through this client",
				    copy_reason_sentence(reason));
	else if (options->access == TIDL_ACCESS_LIVE)
		(void)tdp_fault_set(fault, TIDL_ERR_COPY_NEEDED,
				    "%s, and nobody could write a live copy of it: allocate the "
				    "tensor through this client (empty), share it where it lies "
				    "(copy=False), or publish it as shared",
				    copy_reason_sentence(reason));
	else
		return 0;
	fault->detail = (int)reason;
	return TIDL_ERR_COPY_NEEDED;
}

static int placing_copy_later(struct placing *placing, size_t index, enum tidl_copy_reason reason,
			      struct tdp_fault *fault)
{
	struct tdc_placement *placement = placing->placement;
	int r = copy_check(placing->options, reason, fault);

	if (r < 0)
		return r;
	if (placing->item_count == 0)
		placement->reason = reason;
	placing->items[placing->item_count++] = (struct tdc_pack_item){
		.import = &placing->members[index].import,
		.member = index,
	};
	return 0;
}

static void placing_move_later(struct placing *placing, size_t index)
{
	placing->moves[placing->move_count++] = (struct tdc_move_item){
		.import = &placing->members[index].import,
		.source = placing->members[index].source,
		.member = index,
	};
}

static int placing_add(struct placing *placing, size_t index, struct tdp_fault *fault)
{
	struct tdc_placement *placement = placing->placement;
	const struct tdc_import *import = &placing->members[index].import;
	enum tidl_copy_reason reason = TIDL_COPY_REASON_REQUESTED;
	int r = placing_describe(placing, index, fault);

	if (r < 0)
		return r;
	placement->tensor_bytes += import->extent.nbytes;
	strides_fill(&import->layout, !import->extent.is_empty, placing->strides[index]);
	if (import->extent.is_empty)
		return 0;
	if (placing->options->copy != TIDL_COPY_ALWAYS)
		r = tdc_alias_find(&placing->aliases, import, &reason, fault);
	if (r < 0)
		return r;
	if (reason == TIDL_COPY_REASON_FOREIGN && placing->options->copy == TIDL_COPY_NEVER) {
		placing_move_later(placing, index);
		return 0;
	}
	if (reason != TIDL_COPY_REASON_NONE)
		return placing_copy_later(placing, index, reason, fault);
	placing_alias(placing, import, &placement->tensors[index]);
	return 0;
}

/* ---- all of them ---- */

/* Where the copies lie in their segment, which comes behind all others. */
static void placing_settle(struct placing *placing, uint64_t data_offset_bytes)
{
	struct tdc_placement *placement = placing->placement;

	for (size_t i = 0; i < placing->item_count; i++) {
		const struct tdc_pack_item *item = &placing->items[i];
		struct tdp_tensor *tensor = &placement->tensors[item->member];

		tensor->segment_index = (int64_t)placement->id_count;
		tensor->byte_offset = data_offset_bytes + item->offset_bytes;
		strides_fill(&item->import->layout, item->keeps_strides,
			     placing->strides[item->member]);
	}
}

/* Into memory that is mapped already, for what is published again and again. Sealed memory is used
 * once, and what lies in a segment of the user's is not handed over. */
static int placing_copy_pooled(struct placing *placing, const struct tdc_pack *pack,
			       struct tdp_fault *fault)
{
	struct tdc_placement *placement = placing->placement;
	int r;

	if (placing->options->access != TIDL_ACCESS_SHARED || placement->aliased_count > 0)
		return 0;
	r = tdc_pool_take(placing->client, pack->size_bytes, &placement->pooled, fault);
	if (r < 0 || placement->pooled == NULL)
		return r;
	tdc_pooled_fill(placement->pooled, pack);
	placement->lease = placement->pooled->lease;
	placement->copied_count = placing->item_count;
	placing_settle(placing, placement->pooled->data_offset_bytes);
	return 0;
}

static int placing_copy_once(struct placing *placing, const struct tdc_pack *pack,
			     struct tdp_fault *fault)
{
	struct tdc_placement *placement = placing->placement;
	struct tdc_allocation allocation;
	size_t culprit = SIZE_MAX;
	int r = tdc_allocate(placing->client, pack->size_bytes, &allocation, fault);

	if (r < 0)
		return r;
	r = tdc_copy(placing->client, &allocation, pack, &culprit, fault);
	if (r == 0 && placing->options->access == TIDL_ACCESS_IMMUTABLE)
		r = tdc_seal(placing->client, allocation.fd, fault);
	if (r == 0) {
		placing_settle(placing, allocation.wire.data_offset_bytes);
		placement->lease = allocation.lease;
		allocation.lease = NULL;
		placement->copied_count = placing->item_count;
	} else if (culprit != SIZE_MAX) {
		r = tdc_member_fault(fault, placing->members[culprit].key);
	}
	tdc_allocation_deinit(placing->client, &allocation);
	return r;
}

static int placing_copy(struct placing *placing, struct tdp_fault *fault)
{
	struct tdc_placement *placement = placing->placement;
	struct tdc_pack pack;
	int r = tdc_pack_plan(&placement->arena, placing->item_count, placing->items, &pack, fault);

	if (r == 0)
		r = placing_copy_pooled(placing, &pack, fault);
	if (r == 0 && placement->pooled == NULL)
		r = placing_copy_once(placing, &pack, fault);
	return r;
}

/* Share where they lie what may not be copied. */
static int placing_move(struct placing *placing, struct tdp_fault *fault)
{
	struct tdc_placement *placement = placing->placement;
	struct tdc_move_request request = {
		.options = placing->options,
		.arena = &placement->arena,
		.item_count = placing->move_count,
		.items = placing->moves,
		.culprit = SIZE_MAX,
	};
	int r = tdc_move_all(placing->client, &request, &placement->move, fault);

	if (r < 0 && request.culprit != SIZE_MAX)
		return tdc_member_fault(fault, placing->members[request.culprit].key);
	if (r < 0)
		return r;
	for (size_t i = 0; i < placing->move_count; i++) {
		const struct tdc_move_item *move = &placing->moves[i];

		r = tdc_alias_add(&placing->aliases,
				  tdc_segment_ref(placing->client, move->segment), fault);
		if (r < 0)
			return r;
		placing_alias(placing, move->import, &placement->tensors[move->member]);
	}
	return 0;
}

static enum tidl_path placement_path(const struct tdc_placement *placement)
{
	enum tidl_path path = TIDL_PATH_EMPTY;

	if (placement->copied_count > 0)
		return TIDL_PATH_COPIED;
	for (size_t i = 0; i < placement->aliased_count; i++) {
		if (!placement->aliased[i]->is_allocated)
			return TIDL_PATH_ATTACHED;
		if (placement->aliased[i]->moved != NULL)
			path = TIDL_PATH_IN_PLACE;
		else if (path == TIDL_PATH_EMPTY)
			path = TIDL_PATH_ALLOCATED;
	}
	return path;
}

/* Only for display, and nothing where there are no huge pages. */
static void placement_tell_huge_pages(struct tdc_placement *placement)
{
	const struct tdc_pooled *pooled = placement->pooled;

	if (pooled != NULL && tdc_huge_is_allowed(pooled->size_bytes))
		placement->segments[0].huge_bytes = tdc_huge_measure(pooled->base);
	for (size_t i = 0; i < placement->aliased_count; i++) {
		const struct tdc_segment *segment = placement->aliased[i];
		size_t k = 0;

		if (!tdc_huge_is_allowed(segment->map_bytes))
			continue;
		while (k < placement->id_count && placement->ids[k] != segment->key.id)
			k++;
		if (k < placement->id_count)
			placement->segments[k].huge_bytes += tdc_huge_measure(segment->base);
	}
}

static int placement_list_segments(struct tdc_placement *placement, struct tdp_fault *fault)
{
	placement->segment_count = placement->id_count + (placement->lease != NULL);
	placement->segments = tdp_arena_zalloc(&placement->arena, placement->segment_count,
					       sizeof(*placement->segments));
	if (placement->segments == NULL)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	for (size_t i = 0; i < placement->segment_count; i++) {
		placement->segments[i].kind = TDP_SEGMENT_MEMFD;
		placement->segments[i].id =
			i < placement->id_count ? placement->ids[i] : placement->lease->id;
	}
	placement_tell_huge_pages(placement);
	return 0;
}

static int placement_fill(struct placing *placing, struct tdp_fault *fault)
{
	struct tdc_placement *placement = placing->placement;
	int r = 0;

	for (size_t i = 0; i < placement->tensor_count; i++) {
		r = placing_add(placing, i, fault);
		if (r < 0)
			return tdc_member_fault(fault, placing->members[i].key);
	}
	if (placing->item_count > 0)
		r = placing_copy(placing, fault);
	if (r == 0 && placing->move_count > 0)
		r = placing_move(placing, fault);
	if (r == 0)
		r = placement_list_segments(placement, fault);
	if (r == 0)
		placement->path = placement_path(placement);
	return r;
}

static int placing_reserve(struct placing *placing, struct tdp_fault *fault)
{
	struct tdc_placement *placement = placing->placement;
	struct tdp_arena *arena = &placement->arena;
	size_t count = placement->tensor_count;

	placement->tensors = tdp_arena_alloc(arena, count * sizeof(*placement->tensors));
	placement->aliased = tdp_arena_alloc(arena, count * sizeof(struct tdc_segment *));
	placing->strides = tdp_arena_alloc(arena, count * sizeof(*placing->strides));
	placing->items = tdp_arena_alloc(arena, count * sizeof(*placing->items));
	placing->moves = tdp_arena_alloc(arena, count * sizeof(*placing->moves));
	placement->ids = tdp_arena_alloc(arena, count * sizeof(*placement->ids));
	if (placement->tensors == NULL || placement->aliased == NULL || placing->strides == NULL ||
	    placing->items == NULL || placing->moves == NULL || placement->ids == NULL)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	return 0;
}

int tdc_placement_init(struct tdc_placement *placement, struct tidl_client *client,
		       const struct tdc_content *content,
		       const struct tidl_publish_options *options, struct tdp_fault *fault)
{
	struct placing placing = {
		.client = client,
		.placement = placement,
		.aliases = {.client = client, .placement = placement},
		.members = content->members,
		.options = options,
	};
	int r;

	memset(placement, 0, offsetof(struct tdc_placement, arena));
	tdp_arena_init(&placement->arena, SIZE_MAX);
	placement->tensor_count = content->member_count;
	placement->access = options->access;
	r = placing_reserve(&placing, fault);
	if (r == 0)
		r = placement_fill(&placing, fault);
	tdc_aliases_deinit(&placing.aliases);
	if (r < 0)
		tdc_placement_deinit(client, placement);
	return r;
}

bool tdc_placement_hands_over(const struct tdc_placement *placement)
{
	return placement->lease != NULL && placement->aliased_count == 0;
}

bool tdc_placement_is_padded(const struct tdc_placement *placement)
{
	return placement->move.moved != NULL && placement->move.neighbour_bytes == 0 &&
	       placement->segment_count == 1;
}

void tdc_placement_handed_over(struct tidl_client *client, struct tdc_placement *placement)
{
	if (placement->pooled != NULL)
		tdc_pool_lend(client, placement->pooled);
	else
		(void)tdc_lease_forget(placement->lease);
	placement->pooled = NULL;
	placement->lease = NULL;
}

void tdc_placement_deinit(struct tidl_client *client, struct tdc_placement *placement)
{
	struct tdp_fault unused;

	for (size_t i = 0; i < placement->aliased_count; i++)
		(void)tdc_segment_unref(client, placement->aliased[i]);
	placement->aliased_count = 0;
	/* It got no name. */
	if (placement->move.moved != NULL)
		(void)!tdc_moved_end(client, placement->move.moved, &unused);
	placement->move.moved = NULL;
	/* Whether it was published is not known when the call was interrupted: do not write there
	 * again. */
	if (placement->pooled != NULL)
		placement->pooled = tdc_pooled_free(client, placement->pooled);
	else
		tdc_lease_end(client, placement->lease);
	placement->lease = NULL;
	tdp_arena_deinit(&placement->arena);
}
