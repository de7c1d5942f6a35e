/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Manifests in: one pass over bytes that may hold anything. A row is decoded into the caller's
 * struct, so nothing is allocated and nothing points into what was read, save the raw key.
 */
#include <string.h>

#include "proto/codec/codec.h"
#include "proto/codec/varint.h"
#include "proto/tensor/layout.h"
#include "proto/wire/manifest.h"

/* The bytes of one message, and how far they are read. */
struct span {
	const uint8_t *bytes;
	size_t size_bytes;
	size_t position;
};

struct field {
	unsigned int number;
	unsigned int type;
	uint64_t value;	   /* of a varint */
	struct span bytes; /* of bytes */
};

static int manifest_malformed(struct tdp_codec *codec)
{
	return tdp_fault_set(codec->fault, TIDL_ERR_PROTOCOL,
			     "the manifest is malformed: check that both sides are tidl of the "
			     "same version");
}

/* True and the next field, whose content has been skipped; false when it is malformed. */
static bool field_read(struct span *span, struct field *ret_field)
{
	uint64_t tag, length;

	if (!tdp_varint_read(span->bytes, span->size_bytes, &span->position, &tag) ||
	    tag >> 3 == 0 || tag > UINT32_MAX)
		return false;
	*ret_field = (struct field){.number = (unsigned int)(tag >> 3), .type = tag & 7};
	if (ret_field->type == TDP_WIRE_VARINT)
		return tdp_varint_read(span->bytes, span->size_bytes, &span->position,
				       &ret_field->value);
	if (ret_field->type != TDP_WIRE_BYTES)
		return tdp_field_skip(span->bytes, span->size_bytes, &span->position,
				      ret_field->type);
	if (!tdp_varint_read(span->bytes, span->size_bytes, &span->position, &length) ||
	    length > span->size_bytes - span->position)
		return false;
	ret_field->bytes =
		(struct span){.bytes = span->bytes + span->position, .size_bytes = length};
	span->position += length;
	return true;
}

static bool span_is_at_end(const struct span *span)
{
	return span->position == span->size_bytes;
}

/* Numbers as one packed field or one by one; both are allowed to every writer. */
static bool numbers_read(struct field *field, int64_t *numbers, size_t *count)
{
	struct span *packed = &field->bytes;

	if (field->type == TDP_WIRE_VARINT) {
		if (*count == TDP_NDIM_MAX)
			return false;
		numbers[(*count)++] = (int64_t)field->value;
		return true;
	}
	while (!span_is_at_end(packed)) {
		uint64_t number;

		if (*count == TDP_NDIM_MAX ||
		    !tdp_varint_read(packed->bytes, packed->size_bytes, &packed->position, &number))
			return false;
		numbers[(*count)++] = (int64_t)number;
	}
	return true;
}

/* The row's key: terminated, and checked to be a text. */
static int key_read(struct tdp_codec *codec, const struct field *field,
		    struct tdp_manifest_row *row)
{
	size_t size_bytes = field->bytes.size_bytes;
	int result = tdp_codec_check_range(codec, "manifest.key", (int64_t)size_bytes, 0,
					   TDP_KEY_MAX_BYTES);

	if (result < 0)
		return result;
	row->raw_key = (const char *)field->bytes.bytes;
	row->key_bytes = size_bytes;
	memcpy(row->key, field->bytes.bytes, size_bytes);
	row->key[size_bytes] = '\0';
	if (memchr(row->key, '\0', size_bytes) != NULL)
		return manifest_malformed(codec);
	return tdp_codec_check_text(codec, "manifest.key", row->key, TDP_KEY_MAX_BYTES);
}

static int dtype_read(struct tdp_codec *codec, struct span span, struct tidl_dtype *ret_dtype)
{
	Tidl__Wire__DataType wire = TIDL__WIRE__DATA_TYPE__INIT;
	unsigned int seen = 0;

	while (!span_is_at_end(&span)) {
		struct field field;

		if (!field_read(&span, &field))
			return manifest_malformed(codec);
		if (field.number > 3)
			continue;
		if (field.type != TDP_WIRE_VARINT || field.value > UINT32_MAX)
			return manifest_malformed(codec);
		seen |= 1u << field.number;
		if (field.number == 1)
			wire.code = (uint32_t)field.value;
		else if (field.number == 2)
			wire.bits = (uint32_t)field.value;
		else
			wire.lanes = (uint32_t)field.value;
	}
	if (seen != (1u << 1 | 1u << 2 | 1u << 3))
		return manifest_malformed(codec);
	return tdp_codec_unpack_dtype(codec, &wire, ret_dtype);
}

enum tensor_field {
	TENSOR_KEY = 1,
	TENSOR_SEGMENT_INDEX,
	TENSOR_BYTE_OFFSET,
	TENSOR_DTYPE,
	TENSOR_SHAPE,
	TENSOR_STRIDES,
	TENSOR_FLAGS,
	TENSOR_FIELD_COUNT
};

/* The types that each field may come in, as bits. */
static const unsigned int tensor_types[TENSOR_FIELD_COUNT] = {
	[TENSOR_KEY] = 1u << TDP_WIRE_BYTES,
	[TENSOR_SEGMENT_INDEX] = 1u << TDP_WIRE_VARINT,
	[TENSOR_BYTE_OFFSET] = 1u << TDP_WIRE_VARINT,
	[TENSOR_DTYPE] = 1u << TDP_WIRE_BYTES,
	[TENSOR_SHAPE] = 1u << TDP_WIRE_BYTES | 1u << TDP_WIRE_VARINT,
	[TENSOR_STRIDES] = 1u << TDP_WIRE_BYTES | 1u << TDP_WIRE_VARINT,
	[TENSOR_FLAGS] = 1u << TDP_WIRE_VARINT,
};

/* What a tensor's row has been found to hold. */
struct tensor_seen {
	unsigned int fields;
	size_t shape_count;
	size_t stride_count;
};

static int tensor_read_field(struct tdp_codec *codec, struct field *field,
			     struct tdp_manifest_row *row, struct tensor_seen *seen)
{
	struct tdp_tensor *tensor = &row->tensor;
	bool is_fine = true;

	switch (field->number) {
	case TENSOR_KEY:
		return key_read(codec, field, row);
	case TENSOR_SEGMENT_INDEX:
		is_fine = field->value <= UINT32_MAX;
		tensor->segment_index = (int64_t)field->value;
		break;
	case TENSOR_BYTE_OFFSET:
		tensor->byte_offset = field->value;
		break;
	case TENSOR_DTYPE:
		return dtype_read(codec, field->bytes, &tensor->dtype);
	case TENSOR_SHAPE:
		is_fine = numbers_read(field, row->shape, &seen->shape_count);
		break;
	case TENSOR_STRIDES:
		is_fine = numbers_read(field, row->strides, &seen->stride_count);
		break;
	default:
		is_fine = field->value <= UINT32_MAX;
		tensor->flags = (uint32_t)field->value;
		break;
	}
	return is_fine ? 0 : manifest_malformed(codec);
}

static int tensor_read(struct tdp_codec *codec, struct span span, struct tdp_manifest_row *row)
{
	const unsigned int required = 1u << TENSOR_BYTE_OFFSET | 1u << TENSOR_DTYPE;
	struct tensor_seen seen = {0};

	row->tensor = (struct tdp_tensor){
		.key = row->key, .segment_index = -1, .shape = row->shape, .strides = row->strides};
	while (!span_is_at_end(&span)) {
		struct field field;
		int result;

		if (!field_read(&span, &field))
			return manifest_malformed(codec);
		if (field.number >= TENSOR_FIELD_COUNT)
			continue;
		if ((tensor_types[field.number] >> field.type & 1) == 0)
			return manifest_malformed(codec);
		seen.fields |= 1u << field.number;
		result = tensor_read_field(codec, &field, row, &seen);
		if (result < 0)
			return result;
	}
	if ((seen.fields & required) != required || seen.shape_count != seen.stride_count)
		return manifest_malformed(codec);
	row->tensor.ndim = (uint32_t)seen.shape_count;
	/* The others speak of one export, not of the memory. */
	row->tensor.flags &= TDP_LAYOUT_SUBBYTE_PADDED;
	return 0;
}

static int segment_read(struct tdp_codec *codec, struct span span, struct tdp_manifest_row *row)
{
	row->segment = (struct tdp_segment){0};
	while (!span_is_at_end(&span)) {
		struct field field;

		if (!field_read(&span, &field))
			return manifest_malformed(codec);
		if (field.number > 2)
			continue;
		if (field.type != TDP_WIRE_VARINT)
			return manifest_malformed(codec);
		if (field.number == 2)
			row->segment.id = field.value;
		else if (field.value < TDP_SEGMENT_MEMFD || field.value > TDP_SEGMENT_DEVICE_CHUNKS)
			return manifest_malformed(codec);
		else
			row->segment.kind = (enum tdp_segment_kind)field.value;
	}
	return row->segment.kind != 0 ? 0 : manifest_malformed(codec);
}

static int empty_mapping_read(struct tdp_codec *codec, struct span span,
			      struct tdp_manifest_row *row)
{
	unsigned int seen = 0;

	while (!span_is_at_end(&span)) {
		struct field field;
		int result = 0;

		if (!field_read(&span, &field))
			return manifest_malformed(codec);
		if (field.number > 2)
			continue;
		if (field.type != (field.number == 1 ? TDP_WIRE_BYTES : TDP_WIRE_VARINT))
			return manifest_malformed(codec);
		seen |= field.number;
		if (field.number == 1)
			result = key_read(codec, &field, row);
		else if (field.value > UINT32_MAX)
			result = manifest_malformed(codec);
		if (result < 0)
			return result;
		if (field.number == 2)
			row->empty_mapping.position = (uint32_t)field.value;
	}
	row->empty_mapping.key = row->key;
	return seen == 3 ? 0 : manifest_malformed(codec);
}

void tdp_manifest_reader_init(struct tdp_manifest_reader *reader, const void *bytes,
			      size_t size_bytes)
{
	*reader = (struct tdp_manifest_reader){.bytes = bytes, .size_bytes = size_bytes};
}

static int row_read(struct tdp_codec *codec, const struct field *field,
		    struct tdp_manifest_row *row)
{
	row->raw_key = NULL;
	row->key_bytes = 0;
	row->key[0] = '\0';
	switch (row->kind) {
	case TDP_MANIFEST_SEGMENT:
		return segment_read(codec, field->bytes, row);
	case TDP_MANIFEST_TENSOR:
		return tensor_read(codec, field->bytes, row);
	default:
		return empty_mapping_read(codec, field->bytes, row);
	}
}

int tdp_manifest_next(struct tdp_manifest_reader *reader, struct tdp_manifest_row *row,
		      struct tdp_fault *fault)
{
	struct tdp_codec codec = {.fault = fault};
	struct span span = {reader->bytes, reader->size_bytes, reader->position_bytes};
	struct field field;

	do {
		row->offset_bytes = span.position;
		row->kind = TDP_MANIFEST_END;
		if (span_is_at_end(&span))
			return 0;
		if (!field_read(&span, &field))
			return manifest_malformed(&codec);
	} while (field.number > TDP_MANIFEST_EMPTY_MAPPING);
	if (field.type != TDP_WIRE_BYTES || field.number < reader->last_kind)
		return manifest_malformed(&codec);
	row->kind = (enum tdp_manifest_kind)field.number;
	reader->last_kind = row->kind;
	reader->position_bytes = span.position;
	row->end_bytes = span.position;
	return row_read(&codec, &field, row);
}

/* ---- all at once ---- */

int tdp_manifest_count(const void *bytes, size_t size_bytes, struct tdp_manifest *ret_counts,
		       struct tdp_fault *fault)
{
	struct tdp_codec codec = {.fault = fault};
	struct span span = {.bytes = bytes, .size_bytes = size_bytes};
	struct tdp_manifest counts = {0};

	while (!span_is_at_end(&span)) {
		struct field field;

		if (!field_read(&span, &field))
			return manifest_malformed(&codec);
		if (field.number == TDP_MANIFEST_SEGMENT)
			counts.segment_count++;
		else if (field.number == TDP_MANIFEST_TENSOR)
			counts.tensor_count++;
		else if (field.number == TDP_MANIFEST_EMPTY_MAPPING)
			counts.empty_mapping_count++;
	}
	*ret_counts = counts;
	return 0;
}

static int manifest_plan(struct tdp_codec *codec, const void *bytes, size_t size_bytes,
			 struct tdp_manifest *ret_counts)
{
	int result = tdp_manifest_count(bytes, size_bytes, ret_counts, codec->fault);

	if (result < 0)
		return result;
	if (ret_counts->segment_count <= TDP_SEGMENTS_PER_PUBLICATION &&
	    ret_counts->tensor_count + ret_counts->empty_mapping_count <=
		    TDP_TENSORS_PER_PUBLICATION)
		return 0;
	return tdp_fault_set(codec->fault, TIDL_ERR_PROTOCOL,
			     "the manifest has more rows than are allowed: check that both sides "
			     "are tidl of the same version");
}

/* Where the rows are put. */
struct rows {
	struct tdp_segment *segments;
	struct tdp_tensor *tensors;
	struct tdp_empty_mapping *empty_mappings;
};

static const int64_t *numbers_keep(struct tdp_arena *arena, const int64_t *numbers, size_t count)
{
	int64_t *kept = tdp_arena_alloc(arena, count * sizeof(*kept));

	if (kept != NULL)
		memcpy(kept, numbers, count * sizeof(*kept));
	return kept;
}

static int row_keep(struct tdp_codec *codec, const struct tdp_manifest_row *row, struct rows *rows)
{
	const char *key;
	struct tdp_tensor *tensor;

	if (row->kind == TDP_MANIFEST_SEGMENT) {
		*rows->segments++ = row->segment;
		return 0;
	}
	key = tdp_arena_strdup(codec->arena, row->key);
	if (key == NULL)
		return tdp_codec_no_memory(codec);
	if (row->kind == TDP_MANIFEST_EMPTY_MAPPING) {
		*rows->empty_mappings++ = (struct tdp_empty_mapping){
			.key = key, .position = row->empty_mapping.position};
		return 0;
	}
	tensor = rows->tensors++;
	*tensor = row->tensor;
	tensor->key = key;
	tensor->shape = numbers_keep(codec->arena, row->shape, tensor->ndim);
	tensor->strides = numbers_keep(codec->arena, row->strides, tensor->ndim);
	return tensor->shape && tensor->strides ? 0 : tdp_codec_no_memory(codec);
}

int tdp_manifest_unpack(struct tdp_arena *arena, const void *bytes, size_t size_bytes,
			struct tdp_manifest *ret_manifest, struct tdp_fault *fault)
{
	struct tdp_codec codec = {.arena = arena, .fault = fault};
	struct tdp_manifest_reader reader;
	struct tdp_manifest_row row;
	struct tdp_manifest manifest;
	struct rows rows;
	int result = manifest_plan(&codec, bytes, size_bytes, &manifest);

	if (result < 0)
		return result;
	rows.segments = tdp_arena_zalloc(arena, manifest.segment_count, sizeof(*rows.segments));
	rows.tensors = tdp_arena_zalloc(arena, manifest.tensor_count, sizeof(*rows.tensors));
	rows.empty_mappings =
		tdp_arena_zalloc(arena, manifest.empty_mapping_count, sizeof(*rows.empty_mappings));
	if (!rows.segments || !rows.tensors || !rows.empty_mappings)
		return tdp_codec_no_memory(&codec);
	manifest.segments = rows.segments;
	manifest.tensors = rows.tensors;
	manifest.empty_mappings = rows.empty_mappings;
	tdp_manifest_reader_init(&reader, bytes, size_bytes);
	while ((result = tdp_manifest_next(&reader, &row, fault)) == 0 &&
	       row.kind != TDP_MANIFEST_END) {
		result = row_keep(&codec, &row, &rows);
		if (result < 0)
			return result;
	}
	if (result < 0)
		return result;
	*ret_manifest = manifest;
	return 0;
}
