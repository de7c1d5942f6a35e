/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of a PUBLISH: segments, tensors against the segments that they lie in, empty mappings,
 * and the keys of them all. Where the rows come from is not known here.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/handlers/publish.h"
#include "daemon/limits.h"
#include "daemon/map.h"
#include "daemon/registry.h"
#include "daemon/server.h"
#include "daemon/work.h"
#include "proto/base/checked.h"
#include "proto/tensor/layout.h"

/* Of pointers and flags for the segments; what is allowed takes a fraction of it. */
enum { DRAFT_ARENA_MAX_BYTES = 1 << 20 };

/* Before anybody asks whether it takes too long. */
enum { KEYS_PER_LOOK = 64 };

void tdd_draft_init(struct tdd_draft *draft, const struct tdd_session *session,
		    const struct tdp_publish *publish)
{
	draft->session = session;
	draft->publish = publish;
	draft->spec = (struct tdd_publication_spec){
		.name = publish->name,
		.access = publish->access,
		.path = publish->path,
		.ttl_ms = publish->ttl_ms,
		.timeline = &session->server->registry.timeline,
		.metadata = publish->metadata,
		.is_bundle = publish->is_bundle,
	};
	tdp_arena_init(&draft->arena, DRAFT_ARENA_MAX_BYTES);
	draft->segments = NULL;
	draft->is_used = NULL;
	draft->mark = tdd_segment_new_mark();
	draft->keys = (struct tdp_keyset){0};
	draft->is_exposing = !publish->expose && (publish->mode & TDD_MODE_OTHERS);
	draft->exposure = (struct tdd_exposure){0};
	draft->empty_mapping_count = 0;
	draft->last_position = 0;
	draft->stage = TDD_DRAFT_BEGIN;
	draft->has_paused = false;
	draft->key_position = 0;
	draft->manifest = NULL;
	draft->manifest_bytes = NULL;
}

void tdd_draft_deinit(struct tdd_draft *draft)
{
	draft->manifest = tdd_manifest_free(draft->manifest);
	free(draft->manifest_bytes);
	draft->manifest_bytes = NULL;
	tdd_exposure_deinit(&draft->exposure);
	tdp_keyset_deinit(&draft->keys);
	tdp_arena_deinit(&draft->arena);
}

static int check_counts(const struct tdd_draft *draft, const struct tdp_manifest *counts,
			struct tdp_fault *fault)
{
	size_t row_count = counts->tensor_count + counts->empty_mapping_count;

	if (counts->segment_count > TDP_SEGMENTS_PER_PUBLICATION)
		return tdp_fault_set(
			fault, TIDL_ERR_LIMIT,
			"\"%s\" has %zu segments and may have %d: let its tensors share "
			"some, or publish a copy",
			draft->spec.name, counts->segment_count, TDP_SEGMENTS_PER_PUBLICATION);
	if (row_count > TDP_TENSORS_PER_PUBLICATION)
		return tdp_fault_set(fault, TIDL_ERR_LIMIT,
				     "\"%s\" has %zu tensors and empty mappings and may have %d: "
				     "publish it in parts",
				     draft->spec.name, row_count, TDP_TENSORS_PER_PUBLICATION);
	if (draft->spec.is_bundle)
		return 0;
	if (counts->tensor_count == 1 && counts->segment_count <= 1 &&
	    counts->empty_mapping_count == 0)
		return 0;
	return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT,
			     "\"%s\" has %zu tensors, %zu segments and %zu empty mappings, but is "
			     "no bundle: publish one tensor, or a bundle",
			     draft->spec.name, counts->tensor_count, counts->segment_count,
			     counts->empty_mapping_count);
}

int tdd_draft_begin_rows(struct tdd_draft *draft, const struct tdp_manifest *counts,
			 struct tdp_fault *fault)
{
	int r = check_counts(draft, counts, fault);

	if (r < 0)
		return r;
	draft->segments = tdp_arena_zalloc(&draft->arena, counts->segment_count,
					   sizeof(struct tdd_segment *));
	draft->is_used = tdp_arena_zalloc(&draft->arena, counts->segment_count, sizeof(bool));
	if (!draft->segments || !draft->is_used)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	draft->spec.segments = draft->segments;
	if (draft->spec.is_bundle)
		r = tdp_keyset_init(&draft->keys,
				    counts->tensor_count + counts->empty_mapping_count,
				    tdd_map_secret(), fault);
	if (r == 0 && draft->is_exposing)
		r = tdd_exposure_init(&draft->exposure, counts->tensor_count, fault);
	return r;
}

int tdd_draft_add_segment(struct tdd_draft *draft, const struct tdp_segment *asked,
			  struct tdp_fault *fault)
{
	struct tdd_segment *segment;
	int r = tdd_draft_check_segment(draft, asked, &segment, fault);

	if (r < 0)
		return r;
	if (segment->mark == draft->mark)
		return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT,
				     "segment %" PRIu64 " is listed twice in \"%s\": list it once, "
				     "for all tensors in it",
				     asked->id, draft->spec.name);
	segment->mark = draft->mark;
	draft->segments[draft->spec.segment_count++] = segment;
	return 0;
}

/* ---- tensors ---- */

/* The bytes of its segment that a tensor may touch: the data, never the control page. */
static int find_window(struct tdd_draft *draft, const struct tdp_tensor *tensor,
		       struct tdp_memfd_geometry *ret_window, struct tdp_fault *fault)
{
	*ret_window = (struct tdp_memfd_geometry){0};
	if (tensor->segment_index < 0)
		return 0;
	if ((uint64_t)tensor->segment_index >= draft->spec.segment_count)
		return tdp_fault_set(
			fault, TIDL_ERR_LAYOUT,
			"the tensor of \"%s\" lies in segment %" PRId64 " of %zu: count from 0",
			draft->spec.name, tensor->segment_index, draft->spec.segment_count);
	draft->is_used[tensor->segment_index] = true;
	*ret_window = draft->segments[tensor->segment_index]->geometry;
	return 0;
}

static int check_layout(struct tdd_draft *draft, const struct tdp_tensor *tensor,
			struct tdp_extent *ret_extent, struct tdp_fault *fault)
{
	struct tdp_layout layout = {
		.dtype = tensor->dtype,
		.ndim = tensor->ndim,
		.shape = tensor->shape,
		.strides = tensor->strides,
		.byte_offset = tensor->byte_offset,
		.flags = tensor->flags,
	};
	struct tdp_memfd_geometry window;
	int r = find_window(draft, tensor, &window, fault);

	if (r < 0)
		return r;
	r = tdp_layout_check(&layout, window.data_offset_bytes,
			     window.data_offset_bytes + window.data_size_bytes, ret_extent, fault);
	if (r < 0)
		return r;
	if (ret_extent->is_empty && tensor->segment_index >= 0)
		return tdp_fault_set(fault, TIDL_ERR_LAYOUT,
				     "the tensor of \"%s\" has no elements, but a segment: publish "
				     "it without",
				     draft->spec.name);
	return 0;
}

/* Which of many it was. */
static int name_key(const char *key, struct tdp_fault *fault)
{
	struct tdp_fault bare = *fault;

	return tdp_fault_set(fault, bare.code, "tensor \"%s\": %s", key, bare.text);
}

static int add_key(struct tdd_draft *draft, const char *key, size_t key_bytes,
		   struct tdp_fault *fault)
{
	int r = tdp_key_check(key, key_bytes, fault);

	return r < 0 ? r : tdp_keyset_add(&draft->keys, key, key_bytes, fault);
}

int tdd_draft_add_tensor(struct tdd_draft *draft, const struct tdp_tensor *tensor, const char *key,
			 struct tdp_fault *fault)
{
	struct tdp_extent extent;
	int r = check_layout(draft, tensor, &extent, fault);

	if (r < 0)
		return draft->spec.is_bundle ? name_key(tensor->key, fault) : r;
	if (!tdp_add_u64(draft->spec.tensor_bytes, extent.nbytes, &draft->spec.tensor_bytes))
		return tdp_fault_set(fault, TIDL_ERR_LAYOUT,
				     "the tensors of \"%s\" are larger than any memory",
				     draft->spec.name);
	if (draft->is_exposing)
		tdd_exposure_add(&draft->exposure, (uint32_t)tensor->segment_index, &extent);
	draft->spec.tensor_count++;
	if (draft->spec.is_bundle)
		return add_key(draft, key, strlen(tensor->key), fault);
	if (tensor->key[0] == '\0')
		return 0;
	return tdp_fault_set(
		fault, TIDL_ERR_INVALID_ARGUMENT,
		"the tensor of \"%s\" has the key \"%s\", but is no bundle's: leave it "
		"out, or publish a bundle",
		draft->spec.name, tensor->key);
}

int tdd_draft_add_empty_mapping(struct tdd_draft *draft, const struct tdp_empty_mapping *mapping,
				const char *key, struct tdp_fault *fault)
{
	if (mapping->position < draft->last_position ||
	    mapping->position > draft->spec.tensor_count)
		return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT,
				     "the empty mapping \"%s\" stands before tensor %" PRIu32
				     " of %zu, and the one before it before tensor %" PRIu32
				     ": give them in order",
				     mapping->key, mapping->position, draft->spec.tensor_count,
				     draft->last_position);
	draft->last_position = mapping->position;
	draft->empty_mapping_count++;
	return add_key(draft, key, strlen(mapping->key), fault);
}

int tdd_draft_end_rows(const struct tdd_draft *draft, struct tdp_fault *fault)
{
	for (size_t i = 0; i < draft->spec.segment_count; i++) {
		if (!draft->is_used[i])
			return tdp_fault_set(fault, TIDL_ERR_LAYOUT,
					     "segment %" PRIu64 " of \"%s\" is used by no tensor: "
					     "leave it out",
					     draft->segments[i]->id, draft->spec.name);
	}
	return 0;
}

int tdd_draft_check_keys(struct tdd_draft *draft, struct tdp_fault *fault)
{
	size_t left = draft->keys.count - draft->key_position;
	size_t count = left < KEYS_PER_LOOK ? left : KEYS_PER_LOOK;
	int r = tdp_keyset_check(&draft->keys, draft->key_position, count, fault);

	if (r < 0)
		return r;
	tdd_work_count(count * TDD_ROW_STEPS);
	draft->key_position += count;
	return draft->key_position < draft->keys.count ? TDD_WORK_LEFT : 0;
}

/* ---- the rows of a packet ---- */

static int add_rows(struct tdd_draft *draft, const struct tdp_manifest *rows,
		    struct tdp_fault *fault)
{
	int r = tdd_draft_begin_rows(draft, rows, fault);

	for (size_t i = 0; r == 0 && i < rows->segment_count; i++)
		r = tdd_draft_add_segment(draft, &rows->segments[i], fault);
	for (size_t i = 0; r == 0 && i < rows->tensor_count; i++)
		r = tdd_draft_add_tensor(draft, &rows->tensors[i], rows->tensors[i].key, fault);
	for (size_t i = 0; r == 0 && i < rows->empty_mapping_count; i++)
		r = tdd_draft_add_empty_mapping(draft, &rows->empty_mappings[i],
						rows->empty_mappings[i].key, fault);
	if (r == 0)
		r = tdd_draft_end_rows(draft, fault);
	return r < 0 ? r : tdp_keyset_check(&draft->keys, 0, draft->keys.count, fault);
}

int tdd_draft_take_rows(struct tdd_draft *draft, struct tdp_fault *fault)
{
	const struct tdp_publish *publish = draft->publish;
	struct tdp_manifest rows = {
		.segment_count = publish->segment_count,
		.segments = publish->segments,
		.tensor_count = publish->tensor_count,
		.tensors = publish->tensors,
		.empty_mapping_count = publish->empty_mapping_count,
		.empty_mappings = publish->empty_mappings,
	};
	size_t size_bytes = publish->is_bundle ? tdp_manifest_packed_bytes(&rows) : 0;

	if (size_bytes > TDP_INLINE_ROWS_MAX_BYTES)
		return tdp_fault_set(fault, TIDL_ERR_LIMIT,
				     "the lists of \"%s\" have %zu bytes, which is more than %d: "
				     "send them as a manifest",
				     draft->spec.name, size_bytes, TDP_INLINE_ROWS_MAX_BYTES);
	draft->spec.tensors = publish->tensors;
	draft->spec.empty_mapping_count = publish->empty_mapping_count;
	draft->spec.empty_mappings = publish->empty_mappings;
	return add_rows(draft, &rows, fault);
}
