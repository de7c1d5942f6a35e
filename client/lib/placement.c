/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Are the tensors in segments of ours already? Those are published where they are, whatever views
 * of it they are. All others are copied once, together, into a new segment, which this process
 * keeps no map of. Knows neither names nor the publish message.
 */
#include "client/lib/placement.h"

#include <string.h>

#include "client/lib/allocation.h"
#include "client/lib/client.h"
#include "client/lib/copying.h"
#include "client/lib/fork.h"
#include "client/lib/packing.h"
#include "client/lib/pool.h"
#include "client/lib/seal.h"
#include "proto/tensor/layout.h"

/* The segments found so far. */
struct aliased_segment {
	struct tdc_segment *segment;
	size_t index;
	UT_hash_handle hh;
};

/* One placement while it is being worked out. */
struct placing {
	struct tidl_client *client;
	struct tdc_placement *placement;
	const struct tdc_member *members;
	const struct tidl_publish_options *options;
	struct aliased_segment *known; /* hash */
	struct aliased_segment *last;  /* found: the next tensor often lies there too */
	int64_t **strides;	       /* of each tensor, to be filled in */
	struct tdc_pack_item *items;   /* to be copied */
	size_t item_count;
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
	case TIDL_COPY_REASON_NONE:
	case TIDL_COPY_REASON_REQUESTED:
		break;
	}
	return "a copy was asked for";
}

/* Why memory in @segment cannot be published as it is; NONE when it can. */
static enum tidl_copy_reason segment_copy_reason(struct tidl_client *client,
						 const struct tdc_segment *segment)
{
	enum tidl_copy_reason reason = TIDL_COPY_REASON_NONE;

	tdc_client_lock(client);
	if (segment->key.era != client->era)
		reason = TIDL_COPY_REASON_OTHER_BROKER;
	else if (segment->owner_uid != client->broker.uid)
		reason = TIDL_COPY_REASON_NOT_OWNER;
	tdc_client_unlock(client);
	if (reason == TIDL_COPY_REASON_NONE && segment->attach == TIDL_ATTACH_COPY_ON_WRITE)
		reason = TIDL_COPY_REASON_PRIVATE_MAP;
	return reason;
}

/* ---- memory that is in a segment already ---- */

static bool segment_holds(const struct tdc_segment *segment, const struct tdc_import *import)
{
	uintptr_t base = (uintptr_t)segment->base;

	return import->begin >= base && import->end <= base + segment->map_bytes;
}

/* Enter a segment that tensors lie in. Takes the reference over in any case. */
static int placing_add_segment(struct placing *placing, struct tdc_segment *segment,
			       struct tdp_fault *fault)
{
	struct tdc_placement *placement = placing->placement;
	struct aliased_segment *known;

	HASH_FIND_PTR(placing->known, &segment, known);
	if (known != NULL) {
		(void)tdc_segment_unref(placing->client, segment);
		placing->last = known;
		return 0;
	}
	known = tdp_arena_zalloc(&placement->arena, 1, sizeof(*known));
	if (known != NULL) {
		known->segment = segment;
		known->index = placement->aliased_count;
		HASH_ADD_PTR(placing->known, segment, known);
	}
	if (known == NULL || known->hh.tbl == NULL) {
		(void)tdc_segment_unref(placing->client, segment);
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	}
	placement->aliased[placement->aliased_count++] = segment;
	placing->last = known;
	return 0;
}

/* Look the memory up; a segment that can be aliased becomes `last`. */
static int placing_find(struct placing *placing, const struct tdc_import *import,
			enum tidl_copy_reason *ret_reason, struct tdp_fault *fault)
{
	struct tidl_client *client = placing->client;
	enum tidl_copy_reason reason;
	struct tdc_segment *segment;

	*ret_reason = TIDL_COPY_REASON_NONE;
	if (placing->last != NULL && segment_holds(placing->last->segment, import))
		return 0;
	segment = tdc_segment_find_range(client, import->begin, import->end);
	if (segment == NULL) {
		*ret_reason = tdc_fork_find_elsewhere(client, import->begin, import->end)
				      ? TIDL_COPY_REASON_OTHER_BROKER
				      : TIDL_COPY_REASON_FOREIGN;
		return 0;
	}
	reason = segment_copy_reason(client, segment);
	if (reason == TIDL_COPY_REASON_NONE)
		return placing_add_segment(placing, segment, fault);
	(void)tdc_segment_unref(client, segment);
	*ret_reason = reason;
	return 0;
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
	const struct tdc_segment *segment = placing->last->segment;

	tensor->segment_index = (int64_t)placing->last->index;
	tensor->byte_offset = segment->data_offset_bytes +
			      (uint64_t)((uintptr_t)import->first - (uintptr_t)segment->base);
}

/* May it be copied, and would a copy be of any use? */
static int copy_check(const struct tidl_publish_options *options, enum tidl_copy_reason reason,
		      struct tdp_fault *fault)
{
	if (options->copy == TIDL_COPY_NEVER)
		return tdp_fault_set(fault, TIDL_ERR_COPY_NEEDED,
				     "%s: allow a copy, or allocate the tensor through this client",
				     copy_reason_sentence(reason));
	if (options->access == TIDL_ACCESS_LIVE)
		return tdp_fault_set(fault, TIDL_ERR_COPY_NEEDED,
				     "%s, and nobody could write a live copy of it: allocate the "
				     "tensor through this client (empty), or publish it as shared",
				     copy_reason_sentence(reason));
	return 0;
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
		r = placing_find(placing, import, &reason, fault);
	if (r < 0)
		return r;
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

		tensor->segment_index = (int64_t)placement->aliased_count;
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

static enum tidl_path placement_path(const struct tdc_placement *placement)
{
	if (placement->copied_count > 0)
		return TIDL_PATH_COPIED;
	for (size_t i = 0; i < placement->aliased_count; i++) {
		if (!placement->aliased[i]->is_allocated)
			return TIDL_PATH_ATTACHED;
	}
	return placement->aliased_count > 0 ? TIDL_PATH_ALLOCATED : TIDL_PATH_EMPTY;
}

static int placement_list_segments(struct tdc_placement *placement, struct tdp_fault *fault)
{
	placement->segment_count = placement->aliased_count + (placement->lease != NULL);
	placement->segments = tdp_arena_zalloc(&placement->arena, placement->segment_count,
					       sizeof(*placement->segments));
	if (placement->segments == NULL)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	for (size_t i = 0; i < placement->segment_count; i++) {
		placement->segments[i].kind = TDP_SEGMENT_MEMFD;
		placement->segments[i].id = i < placement->aliased_count
						    ? placement->aliased[i]->key.id
						    : placement->lease->id;
	}
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
	if (placement->tensors == NULL || placement->aliased == NULL || placing->strides == NULL ||
	    placing->items == NULL)
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
		.members = content->members,
		.options = options,
	};
	int r;

	memset(placement, 0, offsetof(struct tdc_placement, arena));
	tdp_arena_init(&placement->arena, SIZE_MAX);
	placement->tensor_count = content->member_count;
	r = placing_reserve(&placing, fault);
	if (r == 0)
		r = placement_fill(&placing, fault);
	HASH_CLEAR(hh, placing.known);
	if (r < 0)
		tdc_placement_deinit(client, placement);
	return r;
}

bool tdc_placement_hands_over(const struct tdc_placement *placement)
{
	return placement->lease != NULL && placement->aliased_count == 0;
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
	for (size_t i = 0; i < placement->aliased_count; i++)
		(void)tdc_segment_unref(client, placement->aliased[i]);
	placement->aliased_count = 0;
	/* Whether it was published is not known when the call was interrupted: do not write there
	 * again. */
	if (placement->pooled != NULL)
		placement->pooled = tdc_pooled_free(client, placement->pooled);
	else
		tdc_lease_end(client, placement->lease);
	placement->lease = NULL;
	tdp_arena_deinit(&placement->arena);
}
