/* SPDX-License-Identifier: Apache-2.0 */
/* What must not come in: values out of their ranges. */
#include "tests/support/bytes.h"
#include "tests/unit/proto/codec_expect.h"

static struct tt_bytes body, envelope, inner;

static void expect_refused(const struct tdp_message *message, const char *what)
{
	size_t size = pack(message);
	struct tdp_message unpacked;

	cr_assert_eq(unpack(packet, size, &unpacked), TIDL_ERR_PROTOCOL, "%s", what);
	cr_assert_eq(unpacked.kind, TDP_MESSAGE_NONE, "%s", what);
	cr_assert_eq(unpacked.request_id, message->request_id, "%s", what);
}

static void expect_body(uint32_t field, int code, const char *what)
{
	struct tdp_message message;

	tt_bytes_envelope(&envelope, 77, field, &body);
	cr_assert_eq(unpack(envelope.bytes, envelope.size, &message), code, "%s", what);
	cr_assert_eq(message.request_id, 77, "%s", what);
}

/* ---- enumerations ---- */

static const int bad_numbers[] = {-1, 0, 99, INT32_MIN, INT32_MAX};

#define EXPECT_ENUMERATION(KIND, object, field, last)                                              \
	do {                                                                                       \
		struct tdp_message sample = tt_message_sample(TDP_MESSAGE_##KIND);                 \
                                                                                                   \
		for (size_t i = 0; i < TDP_ARRAY_LENGTH(bad_numbers); i++) {                       \
			sample.object.field = bad_numbers[i];                                      \
			expect_refused(&sample, #KIND "." #field);                                 \
		}                                                                                  \
		sample.object.field = (last) + 1;                                                  \
		expect_refused(&sample, #KIND "." #field);                                         \
	} while (0)

TT_TEST(codec_refusal, enumerations_out_of_range)
{
	EXPECT_ENUMERATION(PUBLISH, publish, access, TIDL_ACCESS_IMMUTABLE);
	EXPECT_ENUMERATION(PUBLISHED, published, retention, TIDL_RETENTION_UNTIL_IDLE);
	EXPECT_ENUMERATION(GET, get, attach, TIDL_ATTACH_COPY_ON_WRITE);
	EXPECT_ENUMERATION(GRANTED, granted, access, TIDL_ACCESS_IMMUTABLE);
	EXPECT_ENUMERATION(GRANTED, granted, attach, TIDL_ATTACH_COPY_ON_WRITE);
	EXPECT_ENUMERATION(GRANTED, granted, retention, TIDL_RETENTION_UNTIL_IDLE);
	EXPECT_ENUMERATION(INSPECTION, inspection, access, TIDL_ACCESS_IMMUTABLE);
	EXPECT_ENUMERATION(INSPECTION, inspection, retention, TIDL_RETENTION_UNTIL_IDLE);
	EXPECT_ENUMERATION(ALLOCATED, allocated.segment, kind, TDP_SEGMENT_DEVICE_CHUNKS);
}

/* 0 means absent to the packer of these. */
TT_TEST(codec_refusal, optional_enumerations_out_of_range)
{
	static const int numbers[] = {-1, 5, 6, 99, INT32_MIN, INT32_MAX};

	for (size_t i = 0; i < TDP_ARRAY_LENGTH(numbers); i++) {
		struct tdp_message sample = tt_message_sample(TDP_MESSAGE_PUBLISH);

		sample.publish.retention = numbers[i];
		expect_refused(&sample, "publish.retention");
		if (numbers[i] == 5)
			continue;
		sample = tt_message_sample(TDP_MESSAGE_PUBLISH);
		sample.publish.path = numbers[i];
		expect_refused(&sample, "publish.path");
		sample = tt_message_sample(TDP_MESSAGE_INSPECTION);
		sample.inspection.path = numbers[i];
		expect_refused(&sample, "inspection.path");
	}
}

TT_TEST(codec_refusal, enumerations_in_rows_out_of_range)
{
	static const int numbers[] = {-1, 0, 5, 99};

	for (size_t i = 0; i < TDP_ARRAY_LENGTH(numbers); i++) {
		struct tdp_message sample = tt_message_sample(TDP_MESSAGE_LISTING);
		struct tdp_list_entry entry = sample.listing.entries[0];
		struct tdp_holder holder;

		sample.listing.entries = &entry;
		sample.listing.entry_count = 1;
		entry.access = numbers[i];
		expect_refused(&sample, "entry.access");
		entry.access = TIDL_ACCESS_SHARED;
		entry.retention = numbers[i];
		expect_refused(&sample, "entry.retention");

		sample = tt_message_sample(TDP_MESSAGE_INSPECTION);
		holder = sample.inspection.holders[0];
		sample.inspection.holders = &holder;
		sample.inspection.holder_count = 1;
		holder.kind = numbers[i];
		expect_refused(&sample, "holder.kind");
		holder.kind = TIDL_HOLDER_LEASE;
		holder.attach = numbers[i];
		expect_refused(&sample, "holder.attach");
	}
}

/* ---- numbers and lengths ---- */

TT_TEST(codec_refusal, more_descriptors_than_a_packet_can_carry)
{
	struct tdp_message sample = tt_message_sample(TDP_MESSAGE_DONE);

	sample.fd_count = TDP_PACKET_MAX_FDS + 1;
	expect_refused(&sample, "fd_count");
	sample.fd_count = UINT32_MAX;
	expect_refused(&sample, "fd_count");
}

TT_TEST(codec_refusal, failure_codes_that_are_no_failures)
{
	static const uint64_t codes[] = {0, 1ull << 31, UINT32_MAX};

	for (size_t i = 0; i < TDP_ARRAY_LENGTH(codes); i++) {
		body.size = 0;
		tt_bytes_number(&body, 1, codes[i]);
		tt_bytes_text(&body, 2, "why");
		expect_body(18, TIDL_ERR_PROTOCOL, "failure.code");
	}
}

TT_TEST(codec_refusal, failure_texts_never_hide_the_code)
{
	char text[2000];
	struct tdp_message message;
	struct tdp_fault fault;
	tdp_auto_arena arena;

	memset(text, '\x1b', sizeof(text));
	body.size = 0;
	tt_bytes_number(&body, 1, 3);
	tt_bytes_block(&body, 2, text, sizeof(text));
	tt_bytes_envelope(&envelope, 1, 18, &body);
	tdp_arena_init(&arena, TDP_UNPACK_MAX_BYTES);
	cr_assert_eq(tdp_message_unpack(&arena, envelope.bytes, envelope.size, &message, &fault),
		     0);
	cr_assert_eq(message.failure.code, TIDL_ERR_NOT_FOUND);
	cr_assert_eq(strlen(message.failure.message), TDP_FAILURE_TEXT_MAX_BYTES);
	cr_assert_eq(message.failure.message[0], '?');
}

static void welcome_write(size_t id_size, const char *version)
{
	char id[64] = {0};

	body.size = 0;
	tt_bytes_number(&body, 1, 1);
	tt_bytes_block(&body, 3, id, id_size);
	tt_bytes_number(&body, 4, 1);
	tt_bytes_text(&body, 5, version);
	tt_bytes_number(&body, 6, 1000);
}

TT_TEST(codec_refusal, welcome)
{
	char version[TDP_VERSION_TEXT_MAX_BYTES + 2];

	welcome_write(16, "0.1.0");
	expect_body(17, 0, "a good one");
	for (size_t size = 0; size < 33; size++) {
		welcome_write(size, "0.1.0");
		expect_body(17, size == 16 ? 0 : TIDL_ERR_PROTOCOL, "broker_id");
	}
	memset(version, '1', sizeof(version));
	version[TDP_VERSION_TEXT_MAX_BYTES + 1] = '\0';
	welcome_write(16, version);
	expect_body(17, TIDL_ERR_PROTOCOL, "long version");
	version[TDP_VERSION_TEXT_MAX_BYTES] = '\0';
	welcome_write(16, version);
	expect_body(17, 0, "longest version");
	welcome_write(16, "0.1\n");
	expect_body(17, TIDL_ERR_PROTOCOL, "version with a control character");
}

TT_TEST(codec_refusal, self_reported_texts_longer_than_their_limits)
{
	static const struct {
		uint32_t field;
		size_t limit;
	} fields[] = {{4, TDP_CLIENT_NAME_MAX_BYTES},
		      {5, TDP_COMMAND_MAX_BYTES},
		      {6, TDP_CGROUP_MAX_BYTES}};
	char text[300];

	memset(text, 't', sizeof(text));
	for (size_t i = 0; i < TDP_ARRAY_LENGTH(fields); i++) {
		for (size_t over = 0; over < 2; over++) {
			body.size = 0;
			tt_bytes_number(&body, 1, 1);
			tt_bytes_number(&body, 2, 1);
			tt_bytes_block(&body, fields[i].field, text, fields[i].limit + over);
			expect_body(16, over ? TIDL_ERR_PROTOCOL : 0, "hello");
		}
	}
}

TT_TEST(codec_refusal, metadata_that_are_too_long_or_not_utf8)
{
	char metadata[TDP_METADATA_MAX_BYTES + 2];
	struct tdp_message sample = tt_message_sample(TDP_MESSAGE_GRANTED), message;

	memset(metadata, ' ', sizeof(metadata));
	sample.granted.metadata = metadata;
	metadata[TDP_METADATA_MAX_BYTES + 1] = '\0';
	expect_refused(&sample, "granted.metadata");
	metadata[TDP_METADATA_MAX_BYTES] = '\0';
	cr_assert_eq(unpack(packet, pack(&sample), &message), 0);
	metadata[7] = '\xff';
	expect_refused(&sample, "granted.metadata");
	sample = tt_message_sample(TDP_MESSAGE_INSPECTION);
	sample.inspection.metadata = metadata;
	expect_refused(&sample, "inspection.metadata");
}

/* What has a code of its own is left to the handler, so that the connection goes on. */
TT_TEST(codec_refusal, leaves_to_the_handler_of_publish_what_it_refuses_by_code)
{
	static char metadata[2 * TDP_METADATA_MAX_BYTES];
	struct tdp_message sample = tt_message_sample(TDP_MESSAGE_PUBLISH), message;
	struct tdp_tensor tensor = sample.publish.tensors[0];

	memset(metadata, '\xff', sizeof(metadata) - 1);
	tensor.segment_index = UINT32_MAX - 1;
	sample.publish.name = "/not/a:name";
	sample.publish.metadata = metadata;
	sample.publish.tensors = &tensor;
	sample.publish.tensor_count = 1;
	cr_assert_eq(unpack(packet, pack(&sample), &message), 0);
}

/* A tensor by hand: @ndim extents, @stride_count strides. */
static void tensor_write(size_t ndim, size_t stride_count, uint64_t bits, uint64_t lanes)
{
	static const char ones[200] = {1};
	static struct tt_bytes dtype;

	dtype.size = 0;
	tt_bytes_number(&dtype, 1, 2);
	tt_bytes_number(&dtype, 2, bits);
	tt_bytes_number(&dtype, 3, lanes);
	inner.size = 0;
	tt_bytes_number(&inner, 3, 0);
	tt_bytes_block(&inner, 4, dtype.bytes, dtype.size);
	tt_bytes_block(&inner, 5, ones, ndim);
	tt_bytes_block(&inner, 6, ones, stride_count);
	body.size = 0;
	tt_bytes_text(&body, 1, "x");
	tt_bytes_number(&body, 4, 1);
	tt_bytes_block(&body, 3, inner.bytes, inner.size);
}

TT_TEST(codec_refusal, tensors)
{
	tensor_write(TDP_NDIM_MAX, TDP_NDIM_MAX, 32, 1);
	expect_body(34, 0, "the largest rank");
	tensor_write(TDP_NDIM_MAX + 1, TDP_NDIM_MAX + 1, 32, 1);
	expect_body(34, TIDL_ERR_PROTOCOL, "rank");
	tensor_write(3, 2, 32, 1);
	expect_body(34, TIDL_ERR_PROTOCOL, "fewer strides");
	tensor_write(3, 4, 32, 1);
	expect_body(34, TIDL_ERR_PROTOCOL, "more strides");
	tensor_write(3, 0, 32, 1);
	expect_body(34, TIDL_ERR_PROTOCOL, "no strides");
	tensor_write(1, 1, 256, 1);
	expect_body(34, TIDL_ERR_PROTOCOL, "bits");
	tensor_write(1, 1, 32, 65536);
	expect_body(34, TIDL_ERR_PROTOCOL, "lanes");
	tensor_write(1, 1, 33, 0);
	expect_body(34, 0, "what only the layout check refuses");
}

TT_TEST(codec_refusal, segment_indexes_beyond_the_list)
{
	struct tdp_message sample = tt_message_sample(TDP_MESSAGE_GRANTED);
	struct tdp_tensor tensor = sample.granted.tensors[0];

	sample.granted.tensors = &tensor;
	sample.granted.tensor_count = 1;
	sample.granted.next_cursor = 0;
	tensor.segment_index = 2;
	expect_refused(&sample, "granted");
	tensor.segment_index = UINT32_MAX;
	expect_refused(&sample, "granted");
	tensor.segment_index = 0;
	sample.granted.segment_count = 0;
	sample.granted.segment_number_count = 0;
	expect_refused(&sample, "granted");
}

TT_TEST(codec_refusal, keys_and_names_that_are_no_texts)
{
	char name[TDP_NAME_MAX_BYTES + 2];
	struct tdp_message sample = tt_message_sample(TDP_MESSAGE_GRANTED);
	struct tdp_tensor tensor = sample.granted.tensors[0];
	struct tdp_list_entry entry;

	memset(name, 'n', sizeof(name));
	name[TDP_NAME_MAX_BYTES + 1] = '\0';
	sample.granted.tensors = &tensor;
	sample.granted.tensor_count = 1;
	tensor.key = name;
	expect_refused(&sample, "tensor.key");
	tensor.key = "a\nb";
	expect_refused(&sample, "tensor.key");

	sample = tt_message_sample(TDP_MESSAGE_LISTING);
	entry = sample.listing.entries[0];
	sample.listing.entries = &entry;
	sample.listing.entry_count = 1;
	entry.name = name;
	expect_refused(&sample, "entry.name");
	entry.name = "\x1b]0;title";
	expect_refused(&sample, "entry.name");

	sample = tt_message_sample(TDP_MESSAGE_INSPECTION);
	sample.inspection.name = "\xc0";
	expect_refused(&sample, "inspection.name");
}

/* In C they would end there, and one name be taken for another. */
TT_TEST(codec_refusal, texts_with_a_nul_inside)
{
	static const char text[] = "a\0b";

	body.size = 0;
	tt_bytes_block(&body, 1, text, 3);
	expect_body(39, TIDL_ERR_PROTOCOL, "remove.name");
	body.size = 0;
	tt_bytes_block(&body, 1, text, 2);
	expect_body(39, TIDL_ERR_PROTOCOL, "remove.name");
	body.size = 0;
	tt_bytes_block(&body, 1, text, 1);
	expect_body(39, 0, "remove.name");
	/* What is unknown is not looked into. */
	tt_bytes_block(&body, 99, text, 3);
	expect_body(39, 0, "remove");
}

TT_TEST(codec_refusal, text_with_a_nul_in_an_inner_message)
{
	static const char text[] = "a\0b";

	inner.size = 0;
	tt_bytes_number(&inner, 1, 2);
	tt_bytes_number(&inner, 2, 32);
	tt_bytes_number(&inner, 3, 1);
	body.size = 0;
	tt_bytes_block(&body, 1, text, 3);
	tt_bytes_number(&body, 3, 0);
	tt_bytes_block(&body, 4, inner.bytes, inner.size);
	inner = body;
	body.size = 0;
	tt_bytes_text(&body, 1, "name");
	tt_bytes_block(&body, 3, inner.bytes, inner.size);
	tt_bytes_number(&body, 4, 1);
	expect_body(34, TIDL_ERR_PROTOCOL, "tensor.key");
}

TT_TEST(codec_refusal, device_fields_of_the_wrong_length)
{
	static const struct {
		uint32_t field;
		size_t size;
	} fields[] = {{7, TDP_DEVICE_HANDLE_BYTES}, {9, TDP_DEVICE_UUID_BYTES}};
	char bytes[100] = {0};

	for (size_t i = 0; i < TDP_ARRAY_LENGTH(fields); i++) {
		for (size_t size = fields[i].size - 1; size <= fields[i].size + 1; size++) {
			inner.size = 0;
			tt_bytes_number(&inner, 1, TDP_SEGMENT_DEVICE_HANDLE);
			tt_bytes_block(&inner, fields[i].field, bytes, size);
			body.size = 0;
			tt_bytes_block(&body, 1, inner.bytes, inner.size);
			expect_body(33, size == fields[i].size ? 0 : TIDL_ERR_PROTOCOL, "segment");
		}
	}
}
