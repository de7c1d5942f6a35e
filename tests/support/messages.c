/* SPDX-License-Identifier: Apache-2.0 */
/* Messages to test with: each kind once in full. The largest ones: messages_largest.c. */
#include "tests/support/messages.h"

static const int64_t sample_shape[] = {3, 1, 5};
static const int64_t sample_strides[] = {-10, 7, 2};
static const uint64_t sample_lease_ids[] = {1, 300, UINT64_MAX};
static const uint64_t sample_segment_ids[] = {70000};
static const uint64_t sample_generations[] = {42, 41, 7};

static const struct tdp_segment sample_segments[] = {
	{
		.kind = TDP_SEGMENT_MEMFD,
		.id = 11,
		.size_bytes = 12288,
		.data_offset_bytes = 4096,
		.data_size_bytes = 4095,
		.control_offset_bytes = 8192,
		.seals = 0x2e,
		.inode = 1u << 20,
		.huge_bytes = 2u << 20,
		.step_word = (7u << 1) | 1,
	},
	{.kind = TDP_SEGMENT_DEVICE_CHUNKS, .id = 12, .size_bytes = 1u << 21},
};

static const struct tdp_tensor sample_tensors[] = {
	{
		.key = "layers/0/weight",
		.segment_index = 1,
		.byte_offset = 80,
		.dtype = {.code = 2, .bits = 32, .lanes = 1},
		.ndim = 3,
		.shape = sample_shape,
		.strides = sample_strides,
		.flags = 4,
	},
	{.key = "", .segment_index = -1, .dtype = {.code = 17, .bits = 4, .lanes = 2}},
};

#define SAMPLE_PROCESS                                                                             \
	{                                                                                          \
		.uid = 1000, .gid = 1001, .pid = 4711, .name = "trainer",                          \
		.command = "python3 train.py --epochs 3", .cgroup = "/user.slice",                 \
		.is_connected = true,                                                              \
	}

static const struct tdp_list_entry sample_entries[] = {
	{
		.owner_uid = 1000,
		.name = "sim/state",
		.generation = 42,
		.access = TIDL_ACCESS_LIVE,
		.retention = TIDL_RETENTION_OWNER,
		.mode = 0640,
		.is_bundle = true,
		.tensor_count = 2,
		.dtype = {.code = 5, .bits = 128, .lanes = 3},
		.ndim = 3,
		.shape = sample_shape,
		.tensor_bytes = 60,
		.segment_bytes = 8192,
		.holder_count = 5,
		.age_ms = 1500,
		.publisher_pid = 4711,
	},
	{
		.name = "x",
		.access = TIDL_ACCESS_SHARED,
		.retention = TIDL_RETENTION_PERSIST,
		.dtype = {.code = 6, .bits = 8, .lanes = 1},
	},
};

static const struct tdp_holder sample_holders[] = {
	{
		.kind = TIDL_HOLDER_ALLOCATION,
		.attach = TIDL_ATTACH_WRITE,
		.age_ms = 77,
		.process = SAMPLE_PROCESS,
	},
	{
		.kind = TIDL_HOLDER_LEASE,
		.attach = TIDL_ATTACH_COPY_ON_WRITE,
		.process = {.name = "", .command = "", .cgroup = ""},
	},
	{
		.kind = TIDL_HOLDER_PIN,
		.attach = TIDL_ATTACH_READ,
		.left_ms = 60000,
		.process = SAMPLE_PROCESS,
	},
};

static const struct tdp_empty_mapping sample_empty_mappings[] = {
	{.key = "optimizer", .position = 1},
	{.key = "a~1b/\xc3\xa4", .position = 2},
};
static const uint32_t sample_numbers[] = {7, TDP_SEGMENTS_PER_PUBLICATION - 1};
static const char *const sample_keys[] = {"layers/0/weight", "optimizer"};

static struct tdp_granted sample_granted(void)
{
	return (struct tdp_granted){
		.lease_id = 9,
		.owner_uid = 1000,
		.segment_owner_uid = 1002,
		.generation = 43,
		.access = TIDL_ACCESS_LIVE,
		.attach = TIDL_ATTACH_COPY_ON_WRITE,
		.retention = TIDL_RETENTION_OWNER,
		.segment_count = TDP_ARRAY_LENGTH(sample_segments),
		.segments = sample_segments,
		.tensor_count = TDP_ARRAY_LENGTH(sample_tensors),
		.tensors = sample_tensors,
		.empty_mapping_count = TDP_ARRAY_LENGTH(sample_empty_mappings),
		.empty_mappings = sample_empty_mappings,
		.is_bundle = true,
		.segment_number_count = TDP_ARRAY_LENGTH(sample_numbers),
		.segment_numbers = sample_numbers,
		.next_cursor = 1ull << 40,
		.metadata = "{}",
	};
}

static void sample_tensor_kinds(struct tdp_message *message)
{
	switch (message->kind) {
	case TDP_MESSAGE_PUBLISH:
		message->publish = (struct tdp_publish){
			.name = "sim/state",
			.segment_count = TDP_ARRAY_LENGTH(sample_segments),
			.segments = sample_segments,
			.tensor_count = TDP_ARRAY_LENGTH(sample_tensors),
			.tensors = sample_tensors,
			.access = TIDL_ACCESS_IMMUTABLE,
			.retention = TIDL_RETENTION_SECONDS,
			.ttl_ms = 60000,
			.mode = 0664,
			.has_gid = true,
			.gid = 100,
			.replace = true,
			.keep = 3,
			.metadata = "{\"step\":\t7}",
			.path = TIDL_PATH_COPIED,
			.expose = true,
			.hands_over = true,
			.is_bundle = true,
			.has_manifest = true,
			.empty_mapping_count = TDP_ARRAY_LENGTH(sample_empty_mappings),
			.empty_mappings = sample_empty_mappings,
			.check_only = true,
			.keeps_pooled = true,
		};
		break;
	case TDP_MESSAGE_PUBLISHED:
		message->published = (struct tdp_published){
			.generation = 43,
			.retention = TIDL_RETENTION_UNTIL_IDLE,
			.exposed_bytes = 4096,
			.survives_restart = true,
			.aliases_previous = true,
			.replaced_generation = 42,
			.returned_count = TDP_ARRAY_LENGTH(sample_segment_ids),
			.returned_ids = sample_segment_ids,
			.dropped_count = TDP_ARRAY_LENGTH(sample_lease_ids),
			.dropped_ids = sample_lease_ids,
		};
		break;
	case TDP_MESSAGE_GRANTED:
		message->granted = sample_granted();
		break;
	case TDP_MESSAGE_RELEASE:
		message->release = (struct tdp_release){
			.lease_count = TDP_ARRAY_LENGTH(sample_lease_ids),
			.lease_ids = sample_lease_ids,
			.segment_count = TDP_ARRAY_LENGTH(sample_segment_ids),
			.segment_ids = sample_segment_ids,
			.inherited_count = TDP_ARRAY_LENGTH(sample_lease_ids),
			.inherited_lease_ids = sample_lease_ids,
		};
		break;
	default:
		break;
	}
}

static void sample_event_kinds(struct tdp_message *message)
{
	switch (message->kind) {
	case TDP_MESSAGE_PIN:
		message->pin = (struct tdp_pin){.name = "sim/state",
						.has_owner = true,
						.owner_uid = 1000,
						.generation = 43};
		break;
	case TDP_MESSAGE_WAIT:
		message->wait = (struct tdp_wait){.name = "sim/state",
						  .has_owner = true,
						  .owner_uid = 1000,
						  .newer_than = 41,
						  .released = true,
						  .generation = 43};
		break;
	case TDP_MESSAGE_WAITED:
		message->waited = (struct tdp_waited){.generation = 43, .owner_uid = 1000};
		break;
	case TDP_MESSAGE_WATCH:
		message->watch = (struct tdp_watch){.pattern = "sim/**",
						    .any_owner = true,
						    .has_owner = true,
						    .owner_uid = 1000,
						    .kinds = 1u << TDP_EVENT_REMOVED};
		break;
	case TDP_MESSAGE_WATCHING:
		message->watching.watch_id = 6;
		break;
	case TDP_MESSAGE_UNWATCH:
		message->unwatch.watch_id = 6;
		break;
	case TDP_MESSAGE_EVENT:
		message->event = (struct tdp_event){.watch_id = 6,
						    .kind = TDP_EVENT_LEASED,
						    .owner_uid = 1000,
						    .name = "sim/state",
						    .generation = 43,
						    .has_holder = true,
						    .holder_uid = 1001,
						    .holder_pid = 4711,
						    .attach = TIDL_ATTACH_WRITE};
		break;
	default:
		break;
	}
}

static void sample_inspection(struct tdp_message *message)
{
	message->inspection = (struct tdp_inspection){
		.owner_uid = 1000,
		.name = "sim/state",
		.generation = 43,
		.access = TIDL_ACCESS_IMMUTABLE,
		.retention = TIDL_RETENTION_OWNER,
		.path = TIDL_PATH_IN_PLACE,
		.mode = 0644,
		.gid = 100,
		.age_ms = 2500,
		.exposed_bytes = 4096,
		.metadata = "{\"a\": 1}",
		.publisher = SAMPLE_PROCESS,
		.segment_count = TDP_ARRAY_LENGTH(sample_segments),
		.segments = sample_segments,
		.tensor_count = TDP_ARRAY_LENGTH(sample_tensors),
		.tensors = sample_tensors,
		.holder_count = TDP_ARRAY_LENGTH(sample_holders),
		.holders = sample_holders,
		.next_tensor_cursor = 32,
		.next_holder_cursor = 96,
		.next_segment_cursor = 128,
		.is_bundle = true,
		.all_tensor_count = 16384,
		.all_segment_count = 4096,
		.survives_restart = true,
		.is_write_protected = true,
		.is_same_uid_write_protected = true,
		.kept_count = TDP_ARRAY_LENGTH(sample_generations),
		.kept_generations = sample_generations,
		.has_left = true,
		.left_ms = 1999,
	};
}

static void sample_admin_kinds(struct tdp_message *message)
{
	switch (message->kind) {
	case TDP_MESSAGE_LIST:
		message->list = (struct tdp_list){.any_owner = true,
						  .has_owner = true,
						  .owner_uid = 1000,
						  .pattern = "sim/**",
						  .cursor = 6};
		break;
	case TDP_MESSAGE_LISTING:
		message->listing = (struct tdp_listing){
			.entry_count = TDP_ARRAY_LENGTH(sample_entries),
			.entries = sample_entries,
			.next_cursor = 7,
		};
		break;
	case TDP_MESSAGE_INSPECT:
		message->inspect = (struct tdp_inspect){.name = "sim/state",
							.has_owner = true,
							.owner_uid = 1000,
							.generation = 43,
							.tensor_cursor = 16,
							.holder_cursor = 48,
							.segment_cursor = 64};
		break;
	case TDP_MESSAGE_INSPECTION:
		sample_inspection(message);
		break;
	default:
		break;
	}
}

static void sample_session_kinds(struct tdp_message *message)
{
	switch (message->kind) {
	case TDP_MESSAGE_HELLO:
		message->hello = (struct tdp_hello){
			.min_version = 1,
			.max_version = 2,
			.features = 4,
			.client_name = "trainer",
			.command = "python3 train.py",
			.cgroup = "/user.slice",
			.pid_namespace = 4026531836,
			.ipc_namespace = 4026531839,
			.dev_shm_device = 25,
		};
		break;
	case TDP_MESSAGE_WELCOME:
		message->welcome = (struct tdp_welcome){
			.version = 1,
			.features = 2,
			.broker_id = {1, 2, 3, 0, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 255},
			.epoch = 17,
			.server_version = "0.1.0",
			.uid = 1000,
			.is_private = true,
			.max_packet_bytes = 30000,
			.max_fds = 100,
			.max_segment_bytes = 1ull << 40,
		};
		break;
	case TDP_MESSAGE_FAILURE:
		message->failure =
			(struct tdp_failure){.code = TIDL_ERR_QUOTA, .message = "do less"};
		break;
	case TDP_MESSAGE_CANCEL:
		message->cancel.request_id = 5;
		break;
	case TDP_MESSAGE_GET_MORE:
		message->get_more.cursor = 1ull << 40;
		break;
	default:
		break;
	}
}

struct tdp_message tt_message_sample(enum tdp_message_kind kind)
{
	struct tdp_message message = {.kind = kind, .request_id = 1u << 30, .fd_count = 3};

	switch (kind) {
	case TDP_MESSAGE_ALLOCATE:
		message.allocate.data_size_bytes = 1ull << 33;
		break;
	case TDP_MESSAGE_ALLOCATED:
		message.allocated.segment = sample_segments[0];
		break;
	case TDP_MESSAGE_OPEN:
		message.open = (struct tdp_open){.segment_id = 11, .lease_id = 300};
		break;
	case TDP_MESSAGE_OPENED:
		message.opened.segment = sample_segments[0];
		break;
	case TDP_MESSAGE_WATCH_WRITER:
		message.watch_writer = (struct tdp_watch_writer){.segment_id = 11, .wait = true};
		break;
	case TDP_MESSAGE_GET:
		message.get = (struct tdp_get){.name = "sim/state",
					       .has_owner = true,
					       .owner_uid = 1000,
					       .attach = TIDL_ATTACH_WRITE,
					       .wait = true,
					       .generation = 43,
					       .newer_than = 42,
					       .key_count = TDP_ARRAY_LENGTH(sample_keys),
					       .keys = sample_keys};
		break;
	case TDP_MESSAGE_MORE:
		message.more = (struct tdp_more){
			.next_cursor = 1ull << 41,
			.segment_count = TDP_ARRAY_LENGTH(sample_segments),
			.segments = sample_segments,
			.segment_number_count = TDP_ARRAY_LENGTH(sample_numbers),
			.segment_numbers = sample_numbers,
		};
		break;
	case TDP_MESSAGE_REMOVE:
		message.remove = (struct tdp_remove){
			.name = "sim/state", .has_owner = true, .owner_uid = 1000};
		break;
	default:
		sample_session_kinds(&message);
		sample_tensor_kinds(&message);
		sample_admin_kinds(&message);
		sample_event_kinds(&message);
		break;
	}
	return message;
}
