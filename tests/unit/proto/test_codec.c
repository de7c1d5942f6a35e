/* SPDX-License-Identifier: Apache-2.0 */
/* What goes in comes out: every field of the messages of connections and tensors. */
#include "tests/support/bytes.h"
#include "tests/unit/proto/codec_expect.h"

TT_TEST(codec, hello)
{
	struct tdp_message sample = tt_message_sample(TDP_MESSAGE_HELLO), message;
	const struct tdp_hello *sent = &sample.hello, *got = &message.hello;
	tdp_auto_arena arena;

	travel(&sample, &arena, &message);
	EXPECT(min_version);
	EXPECT(max_version);
	EXPECT(features);
	EXPECT_TEXT(client_name);
	EXPECT_TEXT(command);
	EXPECT_TEXT(cgroup);
	EXPECT(pid_namespace);
	EXPECT(ipc_namespace);
	EXPECT(dev_shm_device);
}

TT_TEST(codec, welcome)
{
	struct tdp_message sample = tt_message_sample(TDP_MESSAGE_WELCOME), message;
	const struct tdp_welcome *sent = &sample.welcome, *got = &message.welcome;
	tdp_auto_arena arena;

	travel(&sample, &arena, &message);
	EXPECT(version);
	EXPECT(features);
	cr_assert_eq(memcmp(got->broker_id, sent->broker_id, TDP_BROKER_ID_BYTES), 0);
	EXPECT(epoch);
	EXPECT_TEXT(server_version);
	EXPECT(uid);
	EXPECT(is_private);
	EXPECT(max_packet_bytes);
	EXPECT(max_fds);
	EXPECT(max_segment_bytes);
}

TT_TEST(codec, failure_of_every_code)
{
	for (int code = -300; code < 0; code++) {
		struct tdp_message sample = tt_message_sample(TDP_MESSAGE_FAILURE), message;
		tdp_auto_arena arena;

		sample.failure.code = code;
		travel(&sample, &arena, &message);
		cr_assert_eq(message.failure.code, code);
		cr_assert_str_eq(message.failure.message, sample.failure.message);
	}
}

TT_TEST(codec, failure_without_sentence_gets_the_general_one)
{
	struct tdp_message sample = tt_message_sample(TDP_MESSAGE_FAILURE), message;
	tdp_auto_arena arena;

	sample.failure.message = NULL;
	travel(&sample, &arena, &message);
	cr_assert_str_eq(message.failure.message, tdp_error_text(TIDL_ERR_QUOTA));
}

TT_TEST(codec, messages_without_content)
{
	static const enum tdp_message_kind kinds[] = {TDP_MESSAGE_NONE, TDP_MESSAGE_DONE,
						      TDP_MESSAGE_SHUTDOWN};

	for (size_t i = 0; i < TDP_ARRAY_LENGTH(kinds); i++) {
		struct tdp_message sample = tt_message_sample(kinds[i]), message;
		tdp_auto_arena arena;

		travel(&sample, &arena, &message);
	}
}

TT_TEST(codec, cancel_and_allocate)
{
	struct tdp_message sample = tt_message_sample(TDP_MESSAGE_CANCEL), message;
	tdp_auto_arena arena;
	tdp_auto_arena second;

	travel(&sample, &arena, &message);
	cr_assert_eq(message.cancel.request_id, sample.cancel.request_id);
	sample = tt_message_sample(TDP_MESSAGE_ALLOCATE);
	travel(&sample, &second, &message);
	cr_assert_eq(message.allocate.data_size_bytes, sample.allocate.data_size_bytes);
}

TT_TEST(codec, allocated)
{
	struct tdp_message sample = tt_message_sample(TDP_MESSAGE_ALLOCATED), message;
	tdp_auto_arena arena;

	travel(&sample, &arena, &message);
	expect_segments(1, &message.allocated.segment, 1, &sample.allocated.segment);
}

TT_TEST(codec, watch_writer)
{
	struct tdp_message sample = tt_message_sample(TDP_MESSAGE_WATCH_WRITER), message;
	tdp_auto_arena arena;
	tdp_auto_arena second;

	travel(&sample, &arena, &message);
	cr_assert_eq(message.watch_writer.segment_id, sample.watch_writer.segment_id);
	cr_assert(message.watch_writer.wait);
	sample.watch_writer.wait = false;
	travel(&sample, &second, &message);
	cr_assert_not(message.watch_writer.wait);
}

TT_TEST(codec, open)
{
	struct tdp_message sample = tt_message_sample(TDP_MESSAGE_OPEN), message;
	tdp_auto_arena arena;
	tdp_auto_arena second;
	tdp_auto_arena third;

	travel(&sample, &arena, &message);
	cr_assert_eq(message.open.segment_id, sample.open.segment_id);
	cr_assert_eq(message.open.lease_id, sample.open.lease_id);
	sample.open.lease_id = 0;
	travel(&sample, &second, &message);
	cr_assert_eq(message.open.lease_id, 0);
	sample = tt_message_sample(TDP_MESSAGE_OPENED);
	travel(&sample, &third, &message);
	expect_segments(1, &message.opened.segment, 1, &sample.opened.segment);
}

static void expect_publish(const struct tdp_publish *got, const struct tdp_publish *sent)
{
	EXPECT_TEXT(name);
	expect_segments(got->segment_count, got->segments, sent->segment_count, sent->segments);
	expect_tensors(got->tensor_count, got->tensors, sent->tensor_count, sent->tensors);
	EXPECT(access);
	EXPECT(retention);
	EXPECT(ttl_ms);
	EXPECT(mode);
	EXPECT(has_gid);
	EXPECT(gid);
	EXPECT(replace);
	EXPECT(keep);
	if (sent->metadata != NULL)
		EXPECT_TEXT(metadata);
	else
		cr_assert_null(got->metadata);
	EXPECT(path);
	EXPECT(expose);
	EXPECT(hands_over);
	EXPECT(is_bundle);
	EXPECT(has_manifest);
	expect_empty_mappings(got->empty_mapping_count, got->empty_mappings,
			      sent->empty_mapping_count, sent->empty_mappings);
	EXPECT(check_only);
	EXPECT(keeps_pooled);
	EXPECT(has_unbuilt);
}

TT_TEST(codec, publish)
{
	struct tdp_message sample = tt_message_sample(TDP_MESSAGE_PUBLISH), message;
	tdp_auto_arena arena;

	travel(&sample, &arena, &message);
	expect_publish(&message.publish, &sample.publish);
}

TT_TEST(codec, publish_with_nothing_but_what_is_required)
{
	struct tdp_message sample = {.kind = TDP_MESSAGE_PUBLISH}, message;
	tdp_auto_arena arena;

	sample.publish = (struct tdp_publish){.name = "x",
					      .access = TIDL_ACCESS_SHARED,
					      .path = TIDL_PATH_ALLOCATED,
					      .mode = 0,
					      .keep = 0};
	travel(&sample, &arena, &message);
	expect_publish(&message.publish, &sample.publish);
}

/* Other implementations leave optional fields out. */
TT_TEST(codec, publish_has_defaults_for_what_is_absent)
{
	static struct tt_bytes body, envelope;
	struct tdp_message message;
	struct tdp_fault fault;
	tdp_auto_arena arena;

	body.size = 0;
	tt_bytes_text(&body, 1, "x");
	tt_bytes_number(&body, 4, 1);
	tt_bytes_envelope(&envelope, 5, 34, &body);
	tdp_arena_init(&arena, TDP_UNPACK_MAX_BYTES);
	cr_assert_eq(tdp_message_unpack(&arena, envelope.bytes, envelope.size, &message, &fault),
		     0);
	expect_publish(&message.publish, &(struct tdp_publish){.name = "x",
							       .access = TIDL_ACCESS_SHARED,
							       .retention = TIDL_RETENTION_DEFAULT,
							       .mode = 0600,
							       .keep = 1,
							       .path = TIDL_PATH_ALLOCATED});
}

TT_TEST(codec, tensors_get_compact_strides_when_they_have_none)
{
	static const int64_t shape[] = {2, 3};
	const struct tdp_tensor tensor = {
		.segment_index = -1, .dtype = {2, 32, 1}, .ndim = 2, .shape = shape};
	struct tdp_message sample = tt_message_sample(TDP_MESSAGE_PUBLISH), message;
	tdp_auto_arena arena;

	sample.publish.tensors = &tensor;
	sample.publish.tensor_count = 1;
	travel(&sample, &arena, &message);
	cr_assert_eq(message.publish.tensors[0].strides[0], 3);
	cr_assert_eq(message.publish.tensors[0].strides[1], 1);
	cr_assert_str_eq(message.publish.tensors[0].key, "");
}

TT_TEST(codec, published)
{
	struct tdp_message sample = tt_message_sample(TDP_MESSAGE_PUBLISHED), message;
	const struct tdp_published *sent = &sample.published, *got = &message.published;
	tdp_auto_arena arena;

	travel(&sample, &arena, &message);
	EXPECT(generation);
	EXPECT(retention);
	EXPECT(exposed_bytes);
	EXPECT(survives_restart);
	EXPECT(aliases_previous);
	cr_assert_eq(got->returned_count, sent->returned_count);
	EXPECT(returned_ids[0]);
	cr_assert_eq(got->dropped_count, sent->dropped_count);
	EXPECT(dropped_ids[2]);
	EXPECT(replaced_generation);
}

TT_TEST(codec, get)
{
	struct tdp_message sample = tt_message_sample(TDP_MESSAGE_GET), message;
	const struct tdp_get *sent = &sample.get, *got = &message.get;
	tdp_auto_arena arena;

	travel(&sample, &arena, &message);
	EXPECT_TEXT(name);
	EXPECT(has_owner);
	EXPECT(owner_uid);
	EXPECT(attach);
	EXPECT(wait);
	EXPECT(generation);
	EXPECT(newer_than);
	EXPECT(key_count);
	for (size_t i = 0; i < sent->key_count; i++)
		EXPECT_TEXT(keys[i]);
}

TT_TEST(codec, owner_zero_is_not_no_owner)
{
	struct tdp_message sample = tt_message_sample(TDP_MESSAGE_GET), message;
	tdp_auto_arena arena;
	tdp_auto_arena second;

	sample.get.owner_uid = 0;
	travel(&sample, &arena, &message);
	cr_assert(message.get.has_owner && message.get.owner_uid == 0);
	sample.get.has_owner = false;
	travel(&sample, &second, &message);
	cr_assert_not(message.get.has_owner);
}

TT_TEST(codec, granted)
{
	struct tdp_message sample = tt_message_sample(TDP_MESSAGE_GRANTED), message;
	const struct tdp_granted *sent = &sample.granted, *got = &message.granted;
	tdp_auto_arena arena;

	travel(&sample, &arena, &message);
	EXPECT(lease_id);
	EXPECT(owner_uid);
	EXPECT(segment_owner_uid);
	EXPECT(generation);
	EXPECT(access);
	EXPECT(attach);
	EXPECT(retention);
	expect_segments(got->segment_count, got->segments, sent->segment_count, sent->segments);
	expect_tensors(got->tensor_count, got->tensors, sent->tensor_count, sent->tensors);
	expect_empty_mappings(got->empty_mapping_count, got->empty_mappings,
			      sent->empty_mapping_count, sent->empty_mappings);
	EXPECT(is_bundle);
	EXPECT(has_manifest);
	expect_numbers(got->segment_number_count, got->segment_numbers, sent->segment_number_count,
		       sent->segment_numbers);
	EXPECT(next_cursor);
	EXPECT_TEXT(metadata);
}

/* Nobody says what is granted: it is told from what is there. */
TT_TEST(codec, granted_knows_a_bundle_from_a_tensor)
{
	static const struct tdp_tensor alone = {
		.key = "", .segment_index = -1, .dtype = {2, 32, 1}};
	static const struct tdp_tensor member = {
		.key = "a", .segment_index = -1, .dtype = {2, 32, 1}};
	const struct {
		const struct tdp_tensor *tensors;
		size_t count;
		bool has_manifest;
		bool is_bundle;
	} rows[] = {{&alone, 1, false, false},
		    {&member, 1, false, true},
		    {NULL, 0, false, true},
		    {NULL, 0, true, true}};

	for (size_t i = 0; i < TDP_ARRAY_LENGTH(rows); i++) {
		struct tdp_message sample = {.kind = TDP_MESSAGE_GRANTED, .request_id = 1}, message;
		tdp_auto_arena arena;

		sample.granted = (struct tdp_granted){.access = TIDL_ACCESS_SHARED,
						      .attach = TIDL_ATTACH_READ,
						      .retention = TIDL_RETENTION_PERSIST,
						      .tensors = rows[i].tensors,
						      .tensor_count = rows[i].count,
						      .has_manifest = rows[i].has_manifest};
		travel(&sample, &arena, &message);
		cr_assert_eq(message.granted.is_bundle, rows[i].is_bundle);
		cr_assert_eq(message.granted.has_manifest, rows[i].has_manifest);
		cr_assert_eq(message.granted.tensor_count, rows[i].count);
	}
}

TT_TEST(codec, get_more_and_more)
{
	struct tdp_message sample = tt_message_sample(TDP_MESSAGE_GET_MORE), message;
	const struct tdp_more *sent = &sample.more, *got = &message.more;
	tdp_auto_arena arena;
	tdp_auto_arena second;

	travel(&sample, &arena, &message);
	cr_assert_eq(message.get_more.cursor, sample.get_more.cursor);
	sample = tt_message_sample(TDP_MESSAGE_MORE);
	travel(&sample, &second, &message);
	EXPECT(next_cursor);
	expect_segments(got->segment_count, got->segments, sent->segment_count, sent->segments);
	expect_numbers(got->segment_number_count, got->segment_numbers, sent->segment_number_count,
		       sent->segment_numbers);
}

TT_TEST(codec, release)
{
	struct tdp_message sample = tt_message_sample(TDP_MESSAGE_RELEASE), message;
	const struct tdp_release *sent = &sample.release, *got = &message.release;
	tdp_auto_arena arena;

	travel(&sample, &arena, &message);
	EXPECT(lease_count);
	for (size_t i = 0; i < sent->lease_count; i++)
		EXPECT(lease_ids[i]);
	EXPECT(segment_count);
	EXPECT(segment_ids[0]);
}

TT_TEST(codec, absent_texts_of_others_come_out_empty)
{
	struct tdp_message sample = {.kind = TDP_MESSAGE_HELLO, .request_id = 1}, message;
	tdp_auto_arena arena;

	travel(&sample, &arena, &message);
	cr_assert_str_eq(message.hello.client_name, "");
	cr_assert_str_eq(message.hello.command, "");
	cr_assert_str_eq(message.hello.cgroup, "");
}

TT_TEST(codec, self_reported_texts_are_cut_and_made_printable_by_the_sender)
{
	struct tdp_message sample = tt_message_sample(TDP_MESSAGE_HELLO), message;
	char command[1000];
	tdp_auto_arena arena;

	memset(command, 'c', sizeof(command) - 1);
	command[sizeof(command) - 1] = '\0';
	command[TDP_COMMAND_MAX_BYTES - 1] = '\xc3'; /* the first half of what is cut there */
	command[1] = '\n';
	sample.hello.command = command;
	sample.hello.client_name = "\xff";
	travel(&sample, &arena, &message);
	cr_assert_eq(strlen(message.hello.command), TDP_COMMAND_MAX_BYTES);
	cr_assert_eq(message.hello.command[1], '?');
	cr_assert_eq(message.hello.command[TDP_COMMAND_MAX_BYTES - 1], '?');
	cr_assert_str_eq(message.hello.client_name, "?");
}

TT_TEST(codec, every_kind_has_a_name)
{
	for (int a = 0; a < TDP_MESSAGE_KIND_COUNT; a++) {
		for (int b = a + 1; b < TDP_MESSAGE_KIND_COUNT; b++)
			cr_assert_str_neq(tdp_message_name(a), tdp_message_name(b));
	}
	cr_assert_str_eq(tdp_message_name(TDP_MESSAGE_PUBLISH), "PUBLISH");
	cr_assert_str_eq(tdp_message_name(TDP_MESSAGE_KIND_COUNT), "UNKNOWN");
	cr_assert_str_eq(tdp_message_name((enum tdp_message_kind) - 1), "UNKNOWN");
}
