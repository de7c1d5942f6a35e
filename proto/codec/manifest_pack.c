/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests out: a pass that measures and a pass that writes, both over the same rows. */
#include <string.h>

#include "proto/codec/varint.h"
#include "proto/tensor/layout.h"
#include "proto/wire/manifest.h"

/* Counts when `at` is NULL, else writes; so that size and content cannot differ. */
struct out {
	uint8_t *at;
	size_t size_bytes;
};

static void out_varint(struct out *out, uint64_t value)
{
	out->size_bytes += tdp_varint_bytes(value);
	if (out->at != NULL)
		out->at = tdp_varint_write(out->at, value);
}

static void out_tag(struct out *out, unsigned int field, enum tdp_wire_type type)
{
	out_varint(out, field << 3 | type);
}

static void out_number(struct out *out, unsigned int field, uint64_t value)
{
	out_tag(out, field, TDP_WIRE_VARINT);
	out_varint(out, value);
}

static void out_bytes(struct out *out, unsigned int field, const void *bytes, size_t size_bytes)
{
	out_tag(out, field, TDP_WIRE_BYTES);
	out_varint(out, size_bytes);
	out->size_bytes += size_bytes;
	if (out->at == NULL)
		return;
	memcpy(out->at, bytes, size_bytes);
	out->at += size_bytes;
}

static void out_numbers(struct out *out, unsigned int field, uint32_t count, const int64_t *numbers)
{
	size_t size_bytes = 0;

	if (count == 0)
		return;
	for (uint32_t i = 0; i < count; i++)
		size_bytes += tdp_varint_bytes((uint64_t)numbers[i]);
	out_tag(out, field, TDP_WIRE_BYTES);
	out_varint(out, size_bytes);
	for (uint32_t i = 0; i < count; i++)
		out_varint(out, (uint64_t)numbers[i]);
}

static void out_dtype(struct out *out, struct tidl_dtype dtype)
{
	struct out inner = {0};

	out_number(&inner, 1, dtype.code);
	out_number(&inner, 2, dtype.bits);
	out_number(&inner, 3, dtype.lanes);
	out_tag(out, 4, TDP_WIRE_BYTES);
	out_varint(out, inner.size_bytes);
	out_number(out, 1, dtype.code);
	out_number(out, 2, dtype.bits);
	out_number(out, 3, dtype.lanes);
}

static void out_tensor(struct out *out, const struct tdp_tensor *tensor)
{
	int64_t compact[TDP_NDIM_MAX];
	const int64_t *strides = tensor->strides;

	if (strides == NULL) {
		tdp_layout_compact_strides(tensor->ndim, tensor->shape, compact);
		strides = compact;
	}
	if (tensor->key != NULL && tensor->key[0] != '\0')
		out_bytes(out, 1, tensor->key, strlen(tensor->key));
	if (tensor->segment_index >= 0)
		out_number(out, 2, (uint64_t)tensor->segment_index);
	out_number(out, 3, tensor->byte_offset);
	out_dtype(out, tensor->dtype);
	out_numbers(out, 5, tensor->ndim, tensor->shape);
	out_numbers(out, 6, tensor->ndim, strides);
	if (tensor->flags != 0)
		out_number(out, 7, tensor->flags);
}

static void out_segment(struct out *out, const struct tdp_segment *segment)
{
	out_number(out, 1, segment->kind);
	if (segment->id != 0)
		out_number(out, 2, segment->id);
}

static void out_empty_mapping(struct out *out, const struct tdp_empty_mapping *mapping)
{
	out_bytes(out, 1, mapping->key, strlen(mapping->key));
	out_number(out, 2, mapping->position);
}

/* A row is measured before its length can be written. */
#define OUT_ROWS(field, count, rows, out_row)                                                      \
	for (size_t i = 0; i < (count); i++) {                                                     \
		struct out inner = {0};                                                            \
                                                                                                   \
		out_row(&inner, &(rows)[i]);                                                       \
		out_tag(out, (field), TDP_WIRE_BYTES);                                             \
		out_varint(out, inner.size_bytes);                                                 \
		if (out->at == NULL)                                                               \
			out->size_bytes += inner.size_bytes;                                       \
		else                                                                               \
			out_row(out, &(rows)[i]);                                                  \
	}

static void out_manifest(struct out *out, const struct tdp_manifest *manifest)
{
	OUT_ROWS(1, manifest->segment_count, manifest->segments, out_segment);
	OUT_ROWS(2, manifest->tensor_count, manifest->tensors, out_tensor);
	OUT_ROWS(3, manifest->empty_mapping_count, manifest->empty_mappings, out_empty_mapping);
}

size_t tdp_manifest_packed_bytes(const struct tdp_manifest *manifest)
{
	struct out out = {0};

	out_manifest(&out, manifest);
	return out.size_bytes;
}

void tdp_manifest_pack(const struct tdp_manifest *manifest, void *buffer)
{
	struct out out = {.at = buffer};

	out_manifest(&out, manifest);
}
