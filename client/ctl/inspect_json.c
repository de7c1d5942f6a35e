/* SPDX-License-Identifier: Apache-2.0 */
/* An inspection for programs. */
#include "client/ctl/inspect.h"

#include "client/ctl/out_json.h"
#include "client/ctl/text.h"

/* Metadata is JSON already; were it not, it would go out as the text that it is. */
static json_t *metadata_to_json(const char *metadata)
{
	json_t *value = metadata ? json_loads(metadata, 0, NULL) : json_null();

	return value ? value : ctl_json_text(metadata);
}

static json_t *kept_to_json(const struct tidl_inspect_info *info)
{
	json_t *kept = json_array();

	for (size_t i = 0; i < info->kept_count; i++)
		ctl_json_append(kept, ctl_json_number(info->kept_generations[i]));
	return kept;
}

static void info_to_json(json_t *document, const struct tidl_inspect_info *info)
{
	json_t *protection = json_object();

	ctl_json_set(document, "name", ctl_json_text(info->name));
	ctl_json_set(document, "owner", ctl_json_user(info->owner_uid));
	ctl_json_set(document, "publisher", ctl_json_process(&info->publisher));
	ctl_json_set(document, "generation", ctl_json_number(info->generation));
	ctl_json_set(document, "access", ctl_json_text(tidl_access_name(info->access)));
	ctl_json_set(document, "retention", ctl_json_text(tidl_retention_name(info->retention)));
	ctl_json_set(document, "mode", ctl_json_mode(info->mode));
	ctl_json_set(document, "group", ctl_json_number(info->group));
	ctl_json_set(document, "age_ms", ctl_json_number(info->age_ms));
	ctl_json_set(document, "left_ms",
		     info->left_ms >= 0 ? ctl_json_number((uint64_t)info->left_ms) : json_null());
	ctl_json_set(document, "kept_generations", kept_to_json(info));
	ctl_json_set(document, "bundle", json_boolean(info->is_bundle));
	ctl_json_set(document, "path", ctl_json_text(tidl_path_name(info->path)));
	ctl_json_set(document, "copied", json_boolean(info->path == TIDL_PATH_COPIED));
	ctl_json_set(document, "exposed_bytes", ctl_json_number(info->exposed_bytes));
	ctl_json_set(document, "survives_restart", json_boolean(info->survives_restart));
	ctl_json_set(document, "metadata", metadata_to_json(info->metadata));
	ctl_json_set(protection, "write_protected", json_boolean(info->is_write_protected));
	ctl_json_set(protection, "same_uid_write_protected",
		     json_boolean(info->is_same_uid_write_protected));
	ctl_json_set(document, "protection", protection);
}

static json_t *tensor_to_json(const struct tidl_tensor_info *tensor)
{
	char dtype[CTL_WORD_MAX];
	json_t *object = json_object();

	ctl_json_set(object, "key", ctl_json_text(tensor->key));
	ctl_json_set(object, "dtype",
		     ctl_json_text(tidl_dtype_name(tensor->dtype, dtype, sizeof(dtype))));
	ctl_json_set(object, "shape", ctl_json_tuple(tensor->shape, tensor->ndim));
	ctl_json_set(object, "strides", ctl_json_tuple(tensor->strides, tensor->ndim));
	ctl_json_set(object, "bytes", ctl_json_number(tensor->nbytes));
	ctl_json_set(object, "byte_offset", ctl_json_number(tensor->byte_offset));
	ctl_json_set(object, "segment",
		     tensor->segment_index >= 0 ? json_integer(tensor->segment_index)
						: json_null());
	return object;
}

static json_t *segment_to_json(const struct tidl_segment_info *segment)
{
	char buffer[CTL_WORD_MAX];
	json_t *object = json_object();
	json_t *seals = json_array();
	uint32_t bits = segment->seals;
	const char *word;

	while ((word = ctl_text_next_seal(&bits, buffer)))
		ctl_json_append(seals, ctl_json_text(word));
	ctl_json_set(object, "id", ctl_json_number(segment->id));
	ctl_json_set(object, "bytes", ctl_json_number(segment->size_bytes));
	ctl_json_set(object, "data_offset", ctl_json_number(segment->data_offset_bytes));
	ctl_json_set(object, "data_bytes", ctl_json_number(segment->data_size_bytes));
	ctl_json_set(object, "inode", ctl_json_number(segment->inode));
	ctl_json_set(object, "seals", seals);
	ctl_json_set(object, "huge_bytes", ctl_json_number(segment->huge_bytes));
	ctl_json_set(object, "step", ctl_json_number(segment->step));
	ctl_json_set(object, "updating", json_boolean(segment->is_updating));
	return object;
}

static json_t *holder_to_json(const struct tidl_holder *holder)
{
	json_t *object = ctl_json_process(&holder->process);

	ctl_json_set(object, "kind", ctl_json_text(ctl_text_holder_kind(holder->kind)));
	ctl_json_set(object, "attach", ctl_json_text(tidl_attach_name(holder->attach)));
	ctl_json_set(object, "age_ms", ctl_json_number(holder->age_ms));
	ctl_json_set(object, "left_ms",
		     holder->kind == TIDL_HOLDER_PIN ? ctl_json_number(holder->left_ms)
						     : json_null());
	return object;
}

void ctl_inspect_print_json(const struct tidl_inspection *inspection)
{
	const struct tidl_inspect_info *info = tidl_inspection_info(inspection);
	json_t *document = ctl_json_document();
	json_t *tensors = json_array();
	json_t *segments = json_array();
	json_t *holders = json_array();

	info_to_json(document, info);
	for (size_t i = 0; i < info->tensor_count; i++)
		ctl_json_append(tensors, tensor_to_json(tidl_inspection_tensor(inspection, i)));
	for (size_t i = 0; i < info->segment_count; i++)
		ctl_json_append(segments, segment_to_json(tidl_inspection_segment(inspection, i)));
	for (size_t i = 0; i < info->holder_count; i++)
		ctl_json_append(holders, holder_to_json(tidl_inspection_holder(inspection, i)));
	ctl_json_set(document, "tensors", tensors);
	ctl_json_set(document, "segments", segments);
	ctl_json_set(document, "holders", holders);
	ctl_json_print(document);
}
