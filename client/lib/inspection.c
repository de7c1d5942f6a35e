/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inspections: the broker's pages about one generation put together. Owns the answers, since texts
 * and extents stay in them; the public records point there.
 */
#include "client/lib/inspection.h"

#include <stdlib.h>

#include <utlist.h>

#include "client/lib/call.h"
#include "proto/mem/control.h"
#include "proto/tensor/layout.h"

/* More pages than any broker can have, so that one which never ends is noticed. */
enum { INSPECTION_MAX_PAGES = 1 << 16 };

/* Times that a name may be replaced while its pages are asked for. */
enum { INSPECTION_ATTEMPTS = 16 };

struct tidl_inspection {
	struct tidl_inspect_info info;
	struct tidl_segment_info *segments;
	struct tidl_tensor_info *tensors;
	struct tidl_holder *holders;
	struct tdc_reply *pages;
};

/* Where the next page goes on. */
struct inspection_cursor {
	uint64_t generation;
	uint64_t tensor;
	uint64_t holder;
	uint64_t segment;
	bool has_all_tensors;
	bool has_all_holders;
	bool has_all_segments;
};

/* Room for @more records behind @count of them; NULL without memory. Never called with 0. */
static void *records_grow(void *records, size_t count, size_t more, size_t size_bytes)
{
	return reallocarray(records, count + more, size_bytes);
}

static struct tidl_process process_convert(const struct tdp_process *wire)
{
	return (struct tidl_process){
		.uid = wire->uid,
		.gid = wire->gid,
		.pid = wire->pid,
		.name = wire->name,
		.command = wire->command,
		.cgroup = wire->cgroup,
		.is_connected = wire->is_connected,
	};
}

static int inspection_add_segments(struct tidl_inspection *inspection,
				   const struct tdp_inspection *wire)
{
	struct tidl_inspect_info *info = &inspection->info;
	struct tidl_segment_info *grown;

	if (wire->segment_count == 0)
		return 0;
	grown = records_grow(inspection->segments, info->segment_count, wire->segment_count,
			     sizeof(*grown));
	if (grown == NULL)
		return TIDL_ERR_NO_MEMORY;
	inspection->segments = grown;
	for (size_t i = 0; i < wire->segment_count; i++) {
		const struct tdp_segment *segment = &wire->segments[i];

		grown[info->segment_count++] = (struct tidl_segment_info){
			.id = segment->id,
			.size_bytes = segment->size_bytes,
			.data_offset_bytes = segment->data_offset_bytes,
			.data_size_bytes = segment->data_size_bytes,
			.seals = segment->seals,
			.inode = segment->inode,
			.huge_bytes = segment->huge_bytes,
			.step = tdp_word_steps(segment->step_word),
			.is_updating = tdp_word_is_open(segment->step_word),
		};
	}
	return 0;
}

/* The size of a tensor as the broker describes it; 0 for a description that makes no sense. */
static uint64_t tensor_measure(const struct tdp_tensor *wire)
{
	struct tdp_layout layout = {
		.dtype = wire->dtype,
		.ndim = wire->ndim,
		.shape = wire->shape,
		.strides = wire->strides,
		.flags = wire->flags,
	};
	struct tdp_extent extent;
	struct tdp_fault unused;
	int64_t begin;
	int64_t end;

	return tdp_layout_measure(&layout, &begin, &end, &extent, &unused) == 0 ? extent.nbytes : 0;
}

static int inspection_add_tensors(struct tidl_inspection *inspection,
				  const struct tdp_inspection *wire)
{
	struct tidl_inspect_info *info = &inspection->info;
	struct tidl_tensor_info *grown;

	if (wire->tensor_count == 0)
		return 0;
	grown = records_grow(inspection->tensors, info->tensor_count, wire->tensor_count,
			     sizeof(*grown));
	if (grown == NULL)
		return TIDL_ERR_NO_MEMORY;
	inspection->tensors = grown;
	for (size_t i = 0; i < wire->tensor_count; i++) {
		const struct tdp_tensor *tensor = &wire->tensors[i];

		grown[info->tensor_count++] = (struct tidl_tensor_info){
			.key = tensor->key,
			.segment_index = tensor->segment_index,
			.byte_offset = tensor->byte_offset,
			.dtype = tensor->dtype,
			.ndim = tensor->ndim,
			.shape = tensor->shape,
			.strides = tensor->strides,
			.nbytes = tensor_measure(tensor),
		};
	}
	return 0;
}

static int inspection_add_holders(struct tidl_inspection *inspection,
				  const struct tdp_inspection *wire)
{
	struct tidl_inspect_info *info = &inspection->info;
	struct tidl_holder *grown;

	if (wire->holder_count == 0)
		return 0;
	grown = records_grow(inspection->holders, info->holder_count, wire->holder_count,
			     sizeof(*grown));
	if (grown == NULL)
		return TIDL_ERR_NO_MEMORY;
	inspection->holders = grown;
	for (size_t i = 0; i < wire->holder_count; i++) {
		const struct tdp_holder *holder = &wire->holders[i];

		grown[info->holder_count++] = (struct tidl_holder){
			.kind = holder->kind,
			.attach = holder->attach,
			.age_ms = holder->age_ms,
			.process = process_convert(&holder->process),
			.left_ms = holder->left_ms,
		};
	}
	return 0;
}

static void inspection_fill_info(struct tidl_inspect_info *info, const struct tdp_inspection *wire)
{
	*info = (struct tidl_inspect_info){
		.owner_uid = wire->owner_uid,
		.name = wire->name,
		.generation = wire->generation,
		.access = wire->access,
		.retention = wire->retention,
		.path = wire->path,
		.mode = wire->mode,
		.group = wire->gid,
		.age_ms = wire->age_ms,
		.exposed_bytes = wire->exposed_bytes,
		.survives_restart = wire->survives_restart,
		.is_write_protected = wire->is_write_protected,
		.is_same_uid_write_protected = wire->is_same_uid_write_protected,
		.metadata = wire->metadata,
		.publisher = process_convert(&wire->publisher),
		.is_bundle = wire->is_bundle,
		.left_ms =
			wire->has_left && wire->left_ms <= INT64_MAX ? (int64_t)wire->left_ms : -1,
		.kept_count = wire->kept_count,
		.kept_generations = wire->kept_generations,
	};
}

/* Takes the page over in any case. A page repeats what another list had already when only one of
 * them goes on. */
static int inspection_add_page(struct tidl_inspection *inspection, struct tdc_reply *page,
			       struct inspection_cursor *cursor)
{
	const struct tdp_inspection *wire = &page->message.inspection;
	bool is_first = inspection->pages == NULL;
	int r = 0;

	LL_PREPEND(inspection->pages, page);
	if (is_first)
		inspection_fill_info(&inspection->info, wire);
	if (!cursor->has_all_segments)
		r = inspection_add_segments(inspection, wire);
	if (r == 0 && !cursor->has_all_tensors)
		r = inspection_add_tensors(inspection, wire);
	if (r == 0 && !cursor->has_all_holders)
		r = inspection_add_holders(inspection, wire);
	cursor->generation = wire->generation;
	if (!cursor->has_all_tensors)
		cursor->tensor = wire->next_tensor_cursor;
	if (!cursor->has_all_holders)
		cursor->holder = wire->next_holder_cursor;
	if (!cursor->has_all_segments)
		cursor->segment = wire->next_segment_cursor;
	cursor->has_all_tensors = cursor->has_all_tensors || wire->next_tensor_cursor == 0;
	cursor->has_all_holders = cursor->has_all_holders || wire->next_holder_cursor == 0;
	cursor->has_all_segments = cursor->has_all_segments || wire->next_segment_cursor == 0;
	return r;
}

static int inspection_fetch(struct tidl_client *client, const struct tdc_name *name,
			    struct tidl_inspection *inspection, struct inspection_cursor *cursor,
			    struct tdp_fault *fault)
{
	struct tdp_message request = {
		.kind = TDP_MESSAGE_INSPECT,
		.inspect = {.name = name->path,
			    .has_owner = name->has_owner,
			    .owner_uid = name->owner_uid,
			    .generation = cursor->generation,
			    .tensor_cursor = cursor->tensor,
			    .holder_cursor = cursor->holder,
			    .segment_cursor = cursor->segment},
	};
	struct tdc_reply *page = NULL;
	int r = tdc_call(client, &request, TDC_ANSWER_DUE, TDP_MESSAGE_INSPECTION, &page, fault);

	if (r < 0)
		return r;
	if (inspection_add_page(inspection, page, cursor) < 0)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	return 0;
}

static bool cursor_is_at_end(const struct inspection_cursor *cursor)
{
	return cursor->has_all_tensors && cursor->has_all_holders && cursor->has_all_segments;
}

/* All pages of what has the name now. */
static int inspect_once(struct tidl_client *client, const struct tdc_name *name,
			struct tidl_inspection **ret_inspection, struct tdp_fault *fault)
{
	struct tidl_inspection *inspection = calloc(1, sizeof(*inspection));
	struct inspection_cursor cursor = {.generation = 0};
	int r = 0;

	if (inspection == NULL)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	for (int pages = 0; r == 0 && !cursor_is_at_end(&cursor); pages++)
		r = pages == INSPECTION_MAX_PAGES
			    ? tdp_fault_set(fault, TIDL_ERR_PROTOCOL,
					    "the broker's inspection does not end: check its "
					    "version")
			    : inspection_fetch(client, name, inspection, &cursor, fault);
	if (r < 0) {
		tidl_inspection_free(inspection);
		return r;
	}
	*ret_inspection = inspection;
	return 0;
}

int tdc_inspect(struct tidl_client *client, const struct tdc_name *name,
		struct tidl_inspection **ret_inspection, struct tdp_fault *fault)
{
	int r = TIDL_ERR_GENERATION_GONE;

	/* What was removed or replaced between two pages has no more of them: start over, with what
	 * has the name then. */
	for (int i = 0; i < INSPECTION_ATTEMPTS && r == TIDL_ERR_GENERATION_GONE; i++)
		r = inspect_once(client, name, ret_inspection, fault);
	return r;
}

const struct tidl_inspect_info *tidl_inspection_info(const struct tidl_inspection *i)
{
	return &i->info;
}

const struct tidl_segment_info *tidl_inspection_segment(const struct tidl_inspection *i,
							size_t index)
{
	return index < i->info.segment_count ? &i->segments[index] : NULL;
}

const struct tidl_tensor_info *tidl_inspection_tensor(const struct tidl_inspection *i, size_t index)
{
	return index < i->info.tensor_count ? &i->tensors[index] : NULL;
}

const struct tidl_holder *tidl_inspection_holder(const struct tidl_inspection *i, size_t index)
{
	return index < i->info.holder_count ? &i->holders[index] : NULL;
}

void tidl_inspection_free(struct tidl_inspection *inspection)
{
	struct tdc_reply *page;
	struct tdc_reply *following;

	if (inspection == NULL)
		return;
	LL_FOREACH_SAFE (inspection->pages, page, following)
		(void)tdc_reply_free(page);
	free(inspection->segments);
	free(inspection->tensors);
	free(inspection->holders);
	free(inspection);
}
