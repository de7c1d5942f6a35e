/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The words that several messages share: texts, enumerations, data types, segments, tensors and
 * processes.
 */
#include "proto/codec/codec.h"

#include <string.h>

#include "proto/base/utf8.h"
#include "proto/names.h"
#include "proto/tensor/layout.h"

_Static_assert((int)TIDL__WIRE__ACCESS__ACCESS_IMMUTABLE == TIDL_ACCESS_IMMUTABLE, "same numbers");
_Static_assert((int)TIDL__WIRE__ATTACH__ATTACH_COPY_ON_WRITE == TIDL_ATTACH_COPY_ON_WRITE,
	       "same numbers");
_Static_assert((int)TIDL__WIRE__RETENTION__RETENTION_UNTIL_IDLE == TIDL_RETENTION_UNTIL_IDLE,
	       "same numbers");
_Static_assert((int)TIDL__WIRE__PATH__PATH_EMPTY == TIDL_PATH_EMPTY, "same numbers");
_Static_assert((int)TIDL__WIRE__SEGMENT_KIND__SEGMENT_DEVICE_CHUNKS == TDP_SEGMENT_DEVICE_CHUNKS,
	       "same numbers");
_Static_assert((int)TIDL__WIRE__HOLDER_KIND__HOLDER_ALLOCATION == TIDL_HOLDER_ALLOCATION,
	       "same numbers");

/* ---- checks ---- */

int tdp_codec_check_range(struct tdp_codec *codec, const char *field, int64_t value, int64_t low,
			  int64_t high)
{
	if (value >= low && value <= high)
		return 0;
	return tdp_fault_set(codec->fault, TIDL_ERR_PROTOCOL,
			     "field %s is %lld, outside %lld to %lld: check that both sides are "
			     "tidl of the same version",
			     field, (long long)value, (long long)low, (long long)high);
}

int tdp_codec_check_access(struct tdp_codec *codec, int value)
{
	return tdp_codec_check_range(codec, "access", value, TIDL_ACCESS_SHARED,
				     TIDL_ACCESS_IMMUTABLE);
}

int tdp_codec_check_attach(struct tdp_codec *codec, int value)
{
	return tdp_codec_check_range(codec, "attach", value, TIDL_ATTACH_READ,
				     TIDL_ATTACH_COPY_ON_WRITE);
}

int tdp_codec_check_retention(struct tdp_codec *codec, int value)
{
	return tdp_codec_check_range(codec, "retention", value, TIDL_RETENTION_PERSIST,
				     TIDL_RETENTION_UNTIL_IDLE);
}

int tdp_codec_check_path(struct tdp_codec *codec, int value)
{
	return tdp_codec_check_range(codec, "path", value, TIDL_PATH_ALLOCATED, TIDL_PATH_EMPTY);
}

int tdp_codec_check_text(struct tdp_codec *codec, const char *field, const char *text,
			 size_t max_bytes)
{
	size_t length = strlen(text);
	int result = tdp_codec_check_range(codec, field, (int64_t)length, 0, (int64_t)max_bytes);

	if (result < 0 || tdp_text_is_clean(text, length))
		return result;
	return tdp_fault_set(codec->fault, TIDL_ERR_PROTOCOL,
			     "field %s is not printable UTF-8: check that both sides are tidl of "
			     "the same version",
			     field);
}

int tdp_codec_check_metadata(struct tdp_codec *codec, const char *metadata)
{
	size_t left = metadata ? strlen(metadata) : 0;
	int result =
		tdp_codec_check_range(codec, "metadata", (int64_t)left, 0, TDP_METADATA_MAX_BYTES);

	while (result == 0 && left > 0) {
		size_t length = tdp_utf8_length(metadata, left);

		if (length == 0)
			return tdp_fault_set(codec->fault, TIDL_ERR_PROTOCOL,
					     "the metadata are not UTF-8: encode them as UTF-8");
		metadata += length;
		left -= length;
	}
	return result;
}

int tdp_codec_unpack_report(struct tdp_codec *codec, const char *field, char *text,
			    size_t max_bytes, const char **ret_text)
{
	int result;

	if (text == NULL) {
		*ret_text = "";
		return 0;
	}
	result = tdp_codec_check_range(codec, field, (int64_t)strlen(text), 0, (int64_t)max_bytes);
	if (result < 0)
		return result;
	tdp_utf8_clean(text);
	*ret_text = text;
	return 0;
}

int tdp_codec_pack_report(struct tdp_codec *codec, const char *text, size_t max_bytes,
			  char **ret_text)
{
	size_t length = text ? strnlen(text, max_bytes) : 0;
	char *copy;

	if (length == 0) {
		*ret_text = NULL;
		return 0;
	}
	copy = tdp_arena_alloc(codec->arena, length + 1);
	if (copy == NULL)
		return tdp_codec_no_memory(codec);
	memcpy(copy, text, length);
	copy[length] = '\0';
	tdp_utf8_clean(copy);
	*ret_text = copy;
	return 0;
}

/* ---- data types ---- */

int tdp_codec_unpack_dtype(struct tdp_codec *codec, const Tidl__Wire__DataType *wire,
			   struct tidl_dtype *ret_dtype)
{
	int result = tdp_codec_check_range(codec, "dtype.code", wire->code, 0, UINT8_MAX);

	if (result == 0)
		result = tdp_codec_check_range(codec, "dtype.bits", wire->bits, 0, UINT8_MAX);
	if (result == 0)
		result = tdp_codec_check_range(codec, "dtype.lanes", wire->lanes, 0, UINT16_MAX);
	if (result < 0)
		return result;
	ret_dtype->code = (uint8_t)wire->code;
	ret_dtype->bits = (uint8_t)wire->bits;
	ret_dtype->lanes = (uint16_t)wire->lanes;
	return 0;
}

int tdp_codec_pack_dtype(struct tdp_codec *codec, struct tidl_dtype dtype,
			 Tidl__Wire__DataType **ret_wire)
{
	Tidl__Wire__DataType *wire = tdp_codec_new(codec, &tidl__wire__data_type__descriptor);

	if (wire == NULL)
		return tdp_codec_no_memory(codec);
	wire->code = dtype.code;
	wire->bits = dtype.bits;
	wire->lanes = dtype.lanes;
	*ret_wire = wire;
	return 0;
}

/* ---- segments ---- */

int tdp_codec_unpack_segment(struct tdp_codec *codec, const Tidl__Wire__Segment *wire,
			     struct tdp_segment *ret_segment)
{
	int result = tdp_codec_check_range(codec, "segment.kind", wire->kind, TDP_SEGMENT_MEMFD,
					   TDP_SEGMENT_DEVICE_CHUNKS);

	if (result == 0 && wire->has_handle)
		result = tdp_codec_check_range(codec, "segment.handle", (int64_t)wire->handle.len,
					       TDP_DEVICE_HANDLE_BYTES, TDP_DEVICE_HANDLE_BYTES);
	if (result == 0 && wire->has_device_uuid)
		result = tdp_codec_check_range(codec, "segment.device_uuid",
					       (int64_t)wire->device_uuid.len,
					       TDP_DEVICE_UUID_BYTES, TDP_DEVICE_UUID_BYTES);
	if (result < 0)
		return result;
	ret_segment->kind = (enum tdp_segment_kind)wire->kind;
	ret_segment->id = wire->id;
	ret_segment->size_bytes = wire->size_bytes;
	ret_segment->data_offset_bytes = wire->data_offset_bytes;
	ret_segment->data_size_bytes = wire->data_size_bytes;
	ret_segment->control_offset_bytes = wire->control_offset_bytes;
	ret_segment->seals = wire->seals;
	ret_segment->inode = wire->inode;
	ret_segment->huge_bytes = wire->huge_bytes;
	ret_segment->step_word = wire->step_word;
	return 0;
}

static void segment_pack(const struct tdp_segment *segment, Tidl__Wire__Segment *wire)
{
	wire->kind = (Tidl__Wire__SegmentKind)segment->kind;
	wire->has_id = segment->id != 0;
	wire->id = segment->id;
	wire->has_size_bytes = segment->size_bytes != 0;
	wire->size_bytes = segment->size_bytes;
	wire->has_data_offset_bytes = segment->data_offset_bytes != 0;
	wire->data_offset_bytes = segment->data_offset_bytes;
	wire->has_data_size_bytes = segment->data_size_bytes != 0;
	wire->data_size_bytes = segment->data_size_bytes;
	wire->has_control_offset_bytes = segment->control_offset_bytes != 0;
	wire->control_offset_bytes = segment->control_offset_bytes;
	wire->has_seals = segment->seals != 0;
	wire->seals = segment->seals;
	wire->has_inode = segment->inode != 0;
	wire->inode = segment->inode;
	wire->has_huge_bytes = segment->huge_bytes != 0;
	wire->huge_bytes = segment->huge_bytes;
	wire->has_step_word = segment->step_word != 0;
	wire->step_word = segment->step_word;
}

int tdp_codec_pack_segment(struct tdp_codec *codec, const struct tdp_segment *segment,
			   Tidl__Wire__Segment **ret_wire)
{
	Tidl__Wire__Segment *wire = tdp_codec_new(codec, &tidl__wire__segment__descriptor);

	if (wire == NULL)
		return tdp_codec_no_memory(codec);
	segment_pack(segment, wire);
	*ret_wire = wire;
	return 0;
}

int tdp_codec_unpack_segments(struct tdp_codec *codec, size_t count,
			      Tidl__Wire__Segment *const *wires,
			      const struct tdp_segment **ret_segments)
{
	struct tdp_segment *segments =
		tdp_arena_zalloc(codec->arena, count, sizeof(struct tdp_segment));

	if (segments == NULL)
		return tdp_codec_no_memory(codec);
	for (size_t i = 0; i < count; i++) {
		int result = tdp_codec_unpack_segment(codec, wires[i], &segments[i]);

		if (result < 0)
			return result;
	}
	*ret_segments = segments;
	return 0;
}

int tdp_codec_pack_segments(struct tdp_codec *codec, size_t count,
			    const struct tdp_segment *segments, size_t *ret_count,
			    Tidl__Wire__Segment ***ret_wires)
{
	Tidl__Wire__Segment **wires =
		tdp_arena_zalloc(codec->arena, count, sizeof(Tidl__Wire__Segment *));

	if (wires == NULL)
		return tdp_codec_no_memory(codec);
	for (size_t i = 0; i < count; i++) {
		int result = tdp_codec_pack_segment(codec, &segments[i], &wires[i]);

		if (result < 0)
			return result;
	}
	*ret_count = count;
	*ret_wires = wires;
	return 0;
}

/* ---- tensors ---- */

static int tensor_check(struct tdp_codec *codec, const Tidl__Wire__Tensor *wire,
			uint64_t segment_count)
{
	int result = tdp_codec_check_range(codec, "tensor.shape", (int64_t)wire->n_shape, 0,
					   TDP_NDIM_MAX);

	if (result == 0)
		result = tdp_codec_check_range(codec, "tensor.strides", (int64_t)wire->n_strides,
					       (int64_t)wire->n_shape, (int64_t)wire->n_shape);
	if (result == 0 && wire->key != NULL)
		result = tdp_codec_check_text(codec, "tensor.key", wire->key, TDP_KEY_MAX_BYTES);
	if (result == 0 && wire->has_segment_index && wire->segment_index >= segment_count)
		result = tdp_fault_set(codec->fault, TIDL_ERR_PROTOCOL,
				       "field tensor.segment_index is %u, but there are %llu "
				       "segments: check that both sides are tidl of the same "
				       "version",
				       wire->segment_index, (unsigned long long)segment_count);
	return result;
}

static int tensor_unpack(struct tdp_codec *codec, const Tidl__Wire__Tensor *wire,
			 uint64_t segment_count, struct tdp_tensor *ret_tensor)
{
	int result = tensor_check(codec, wire, segment_count);

	if (result == 0)
		result = tdp_codec_unpack_dtype(codec, wire->dtype, &ret_tensor->dtype);
	if (result < 0)
		return result;
	ret_tensor->key = wire->key ? wire->key : "";
	ret_tensor->segment_index = wire->has_segment_index ? (int64_t)wire->segment_index : -1;
	ret_tensor->byte_offset = wire->byte_offset;
	ret_tensor->ndim = (uint32_t)wire->n_shape;
	ret_tensor->shape = wire->shape;
	ret_tensor->strides = wire->strides;
	ret_tensor->flags = wire->flags;
	return 0;
}

int tdp_codec_unpack_tensors(struct tdp_codec *codec, size_t count,
			     Tidl__Wire__Tensor *const *wires, uint64_t segment_count,
			     const struct tdp_tensor **ret_tensors)
{
	struct tdp_tensor *tensors =
		tdp_arena_zalloc(codec->arena, count, sizeof(struct tdp_tensor));

	if (tensors == NULL)
		return tdp_codec_no_memory(codec);
	for (size_t i = 0; i < count; i++) {
		int result = tensor_unpack(codec, wires[i], segment_count, &tensors[i]);

		if (result < 0)
			return result;
	}
	*ret_tensors = tensors;
	return 0;
}

/* Strides always travel, so that no reader has to know what their absence means. */
static int tensor_pack_strides(struct tdp_codec *codec, const struct tdp_tensor *tensor,
			       Tidl__Wire__Tensor *wire)
{
	int64_t *strides = tdp_codec_unconst(tensor->strides);

	if (strides == NULL) {
		strides = tdp_arena_zalloc(codec->arena, tensor->ndim, sizeof(int64_t));
		if (strides == NULL)
			return tdp_codec_no_memory(codec);
		tdp_layout_compact_strides(tensor->ndim, tensor->shape, strides);
	}
	wire->n_strides = tensor->ndim;
	wire->strides = strides;
	return 0;
}

static int tensor_pack(struct tdp_codec *codec, const struct tdp_tensor *tensor,
		       Tidl__Wire__Tensor **ret_wire)
{
	Tidl__Wire__Tensor *wire = tdp_codec_new(codec, &tidl__wire__tensor__descriptor);
	int result;

	if (wire == NULL)
		return tdp_codec_no_memory(codec);
	if (tensor->key != NULL && tensor->key[0] != '\0')
		wire->key = tdp_codec_unconst(tensor->key);
	wire->has_segment_index = tensor->segment_index >= 0;
	if (wire->has_segment_index)
		wire->segment_index = (uint32_t)tensor->segment_index;
	wire->byte_offset = tensor->byte_offset;
	wire->n_shape = tensor->ndim;
	wire->shape = tdp_codec_unconst(tensor->shape);
	wire->has_flags = tensor->flags != 0;
	wire->flags = tensor->flags;
	result = tdp_codec_pack_dtype(codec, tensor->dtype, &wire->dtype);
	if (result == 0)
		result = tensor_pack_strides(codec, tensor, wire);
	if (result == 0)
		*ret_wire = wire;
	return result;
}

int tdp_codec_pack_tensors(struct tdp_codec *codec, size_t count, const struct tdp_tensor *tensors,
			   size_t *ret_count, Tidl__Wire__Tensor ***ret_wires)
{
	Tidl__Wire__Tensor **wires =
		tdp_arena_zalloc(codec->arena, count, sizeof(Tidl__Wire__Tensor *));

	if (wires == NULL)
		return tdp_codec_no_memory(codec);
	for (size_t i = 0; i < count; i++) {
		int result = tensor_pack(codec, &tensors[i], &wires[i]);

		if (result < 0)
			return result;
	}
	*ret_count = count;
	*ret_wires = wires;
	return 0;
}

/* ---- processes ---- */

int tdp_codec_unpack_process(struct tdp_codec *codec, const Tidl__Wire__Process *wire,
			     struct tdp_process *ret_process)
{
	int result = tdp_codec_unpack_report(codec, "process.name", wire->name,
					     TDP_CLIENT_NAME_MAX_BYTES, &ret_process->name);

	if (result == 0)
		result = tdp_codec_unpack_report(codec, "process.command", wire->command,
						 TDP_COMMAND_MAX_BYTES, &ret_process->command);
	if (result == 0)
		result = tdp_codec_unpack_report(codec, "process.cgroup", wire->cgroup,
						 TDP_CGROUP_MAX_BYTES, &ret_process->cgroup);
	if (result < 0)
		return result;
	ret_process->uid = wire->uid;
	ret_process->gid = wire->gid;
	ret_process->pid = wire->pid;
	ret_process->is_connected = wire->connected;
	return 0;
}

int tdp_codec_pack_process(struct tdp_codec *codec, const struct tdp_process *process,
			   Tidl__Wire__Process **ret_wire)
{
	Tidl__Wire__Process *wire = tdp_codec_new(codec, &tidl__wire__process__descriptor);
	int result;

	if (wire == NULL)
		return tdp_codec_no_memory(codec);
	wire->uid = process->uid;
	wire->gid = process->gid;
	wire->pid = process->pid;
	wire->has_connected = process->is_connected;
	wire->connected = process->is_connected;
	result =
		tdp_codec_pack_report(codec, process->name, TDP_CLIENT_NAME_MAX_BYTES, &wire->name);
	if (result == 0)
		result = tdp_codec_pack_report(codec, process->command, TDP_COMMAND_MAX_BYTES,
					       &wire->command);
	if (result == 0)
		result = tdp_codec_pack_report(codec, process->cgroup, TDP_CGROUP_MAX_BYTES,
					       &wire->cgroup);
	if (result == 0)
		*ret_wire = wire;
	return result;
}
