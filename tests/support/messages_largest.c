/* SPDX-License-Identifier: Apache-2.0 */
/* The largest pages of answers that the limits allow. */
#include "tests/support/messages.h"

#include <string.h>

static struct largest {
	char name[TDP_NAME_MAX_BYTES + 1];
	char client_name[TDP_CLIENT_NAME_MAX_BYTES + 1];
	char command[TDP_COMMAND_MAX_BYTES + 1];
	char cgroup[TDP_CGROUP_MAX_BYTES + 1];
	char metadata[TDP_METADATA_MAX_BYTES + 1];
	int64_t shape[TDP_NDIM_MAX];
	int64_t strides[TDP_NDIM_MAX];
	struct tdp_segment segments[TDP_SEGMENT_PAGE_ROWS];
	struct tdp_tensor tensors[TDP_TENSOR_PAGE_ROWS];
	struct tdp_holder holders[TDP_HOLDER_PAGE_ROWS];
	struct tdp_list_entry entries[TDP_LIST_PAGE_ROWS];
	uint64_t generations[TDP_KEEP_MAX];
} largest;

static void text_fill(char *text, size_t size)
{
	memset(text, 'm', size - 1);
	text[size - 1] = '\0';
}

static struct tdp_process largest_process(void)
{
	return (struct tdp_process){.uid = UINT32_MAX,
				    .gid = UINT32_MAX,
				    .pid = -1, /* the longest varint */
				    .name = largest.client_name,
				    .command = largest.command,
				    .cgroup = largest.cgroup,
				    .is_connected = true};
}

static void largest_fill_rows(void)
{
	const struct tidl_dtype dtype = {.code = 255, .bits = 255, .lanes = 65535};

	for (size_t i = 0; i < TDP_SEGMENT_PAGE_ROWS; i++)
		largest.segments[i] = (struct tdp_segment){
			.kind = TDP_SEGMENT_DEVICE_CHUNKS,
			.id = UINT64_MAX,
			.size_bytes = UINT64_MAX,
			.data_offset_bytes = UINT64_MAX,
			.data_size_bytes = UINT64_MAX,
			.control_offset_bytes = UINT64_MAX,
			.seals = UINT32_MAX,
			.inode = UINT64_MAX,
		};
	for (size_t i = 0; i < TDP_TENSOR_PAGE_ROWS; i++)
		largest.tensors[i] = (struct tdp_tensor){
			.key = largest.name,
			.segment_index = 0,
			.byte_offset = UINT64_MAX,
			.dtype = dtype,
			.ndim = TDP_NDIM_MAX,
			.shape = largest.shape,
			.strides = largest.strides,
			.flags = UINT32_MAX,
		};
	for (size_t i = 0; i < TDP_HOLDER_PAGE_ROWS; i++)
		largest.holders[i] = (struct tdp_holder){.kind = TIDL_HOLDER_PIN,
							 .attach = TIDL_ATTACH_WRITE,
							 .age_ms = UINT64_MAX,
							 .left_ms = UINT64_MAX,
							 .process = largest_process()};
	for (size_t i = 0; i < TDP_LIST_PAGE_ROWS; i++)
		largest.entries[i] = (struct tdp_list_entry){
			.owner_uid = UINT32_MAX,
			.name = largest.name,
			.generation = UINT64_MAX,
			.access = TIDL_ACCESS_IMMUTABLE,
			.retention = TIDL_RETENTION_UNTIL_IDLE,
			.mode = UINT32_MAX,
			.tensor_count = UINT32_MAX,
			.dtype = dtype,
			.ndim = TDP_NDIM_MAX,
			.shape = largest.shape,
			.tensor_bytes = UINT64_MAX,
			.segment_bytes = UINT64_MAX,
			.holder_count = UINT32_MAX,
			.age_ms = UINT64_MAX,
			.publisher_pid = -1,
		};
}

static void largest_fill(void)
{
	text_fill(largest.name, sizeof(largest.name));
	text_fill(largest.client_name, sizeof(largest.client_name));
	text_fill(largest.command, sizeof(largest.command));
	text_fill(largest.cgroup, sizeof(largest.cgroup));
	text_fill(largest.metadata, sizeof(largest.metadata));
	for (size_t i = 0; i < TDP_NDIM_MAX; i++) {
		largest.shape[i] = INT64_MAX;
		largest.strides[i] = INT64_MIN;
	}
	for (size_t i = 0; i < TDP_KEEP_MAX; i++)
		largest.generations[i] = UINT64_MAX;
	largest_fill_rows();
}

static struct tdp_inspection largest_inspection(void)
{
	return (struct tdp_inspection){
		.owner_uid = UINT32_MAX,
		.name = largest.name,
		.generation = UINT64_MAX,
		.access = TIDL_ACCESS_IMMUTABLE,
		.retention = TIDL_RETENTION_UNTIL_IDLE,
		.path = TIDL_PATH_EMPTY,
		.mode = UINT32_MAX,
		.gid = UINT32_MAX,
		.age_ms = UINT64_MAX,
		.exposed_bytes = UINT64_MAX,
		.metadata = largest.metadata,
		.publisher = largest_process(),
		.segment_count = TDP_ARRAY_LENGTH(largest.segments),
		.segments = largest.segments,
		.tensor_count = TDP_TENSOR_PAGE_ROWS,
		.tensors = largest.tensors,
		.holder_count = TDP_HOLDER_PAGE_ROWS,
		.holders = largest.holders,
		.next_tensor_cursor = UINT64_MAX,
		.next_holder_cursor = UINT64_MAX,
		.survives_restart = true,
		.is_write_protected = true,
		.is_same_uid_write_protected = true,
		.kept_count = TDP_KEEP_MAX - 1,
		.kept_generations = largest.generations,
		.has_left = true,
		.left_ms = UINT64_MAX,
	};
}

struct tdp_message tt_message_largest(enum tdp_message_kind kind)
{
	struct tdp_message message = {
		.kind = kind, .request_id = UINT64_MAX, .fd_count = TDP_PACKET_MAX_FDS};

	largest_fill();
	if (kind == TDP_MESSAGE_LISTING)
		message.listing = (struct tdp_listing){.entry_count = TDP_LIST_PAGE_ROWS,
						       .entries = largest.entries,
						       .next_cursor = UINT64_MAX};
	else if (kind == TDP_MESSAGE_INSPECTION)
		message.inspection = largest_inspection();
	else
		message.granted = (struct tdp_granted){
			.lease_id = UINT64_MAX,
			.owner_uid = UINT32_MAX,
			.segment_owner_uid = UINT32_MAX - 1,
			.generation = UINT64_MAX,
			.access = TIDL_ACCESS_IMMUTABLE,
			.attach = TIDL_ATTACH_WRITE,
			.retention = TIDL_RETENTION_UNTIL_IDLE,
			.segment_count = TDP_ARRAY_LENGTH(largest.segments),
			.segments = largest.segments,
			.tensor_count = TDP_TENSOR_PAGE_ROWS,
			.tensors = largest.tensors,
			.metadata = largest.metadata,
		};
	return message;
}
