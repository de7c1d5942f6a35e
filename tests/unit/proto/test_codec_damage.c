/* SPDX-License-Identifier: Apache-2.0 */
/* Packets of newer versions, cut and damaged ones, and those that unpack into too much. */
#include "tests/support/bytes.h"
#include "tests/unit/proto/codec_expect.h"

static struct tt_bytes body, envelope, inner;

static void expect_body(uint32_t field, int code, const char *what)
{
	struct tdp_message message;

	tt_bytes_envelope(&envelope, 77, field, &body);
	cr_assert_eq(unpack(envelope.bytes, envelope.size, &message), code, "%s", what);
	cr_assert_eq(message.request_id, 77, "%s", what);
}

/* ---- what is in the schema, but not built ---- */

TT_TEST(codec_damage, unbuilt_messages_are_recognised)
{
	/* Claim, Recall, ListClients, Clients, GetStats, Stats: with what each requires. */
	static const uint32_t fields[] = {41, 43, 52, 53, 54, 55};

	for (size_t i = 0; i < TDP_ARRAY_LENGTH(fields); i++) {
		struct tdp_message message;

		body.size = 0;
		if (fields[i] == 43)
			tt_bytes_text(&body, 1, "x");
		else if (fields[i] == 41)
			tt_bytes_number(&body, 1, 5);
		tt_bytes_envelope(&envelope, 8, fields[i], &body);
		cr_assert_eq(unpack(envelope.bytes, envelope.size, &message), 0, "%u", fields[i]);
		cr_assert_eq(message.kind, TDP_MESSAGE_UNBUILT, "%u", fields[i]);
	}
}

TT_TEST(codec_damage, unbuilt_fields_are_recognised)
{
	struct tdp_message message;

	body.size = 0;
	tt_bytes_text(&body, 1, "x");
	tt_bytes_number(&body, 4, 1);
	tt_bytes_block(&body, 15, "token", 5);
	tt_bytes_envelope(&envelope, 1, 34, &body);
	cr_assert_eq(unpack(envelope.bytes, envelope.size, &message), 0);
	cr_assert(message.publish.has_unbuilt, "claim_token");
}

TT_TEST(codec_damage, grants_in_parts)
{
	body.size = 0;
	for (uint32_t field = 1; field <= 6; field++)
		tt_bytes_number(&body, field, 1);
	expect_body(37, 0, "granted");
	tt_bytes_number(&body, 10, 5);
	expect_body(37, 0, "granted.next_cursor");
	tt_bytes_number(&body, 14, 0);
	expect_body(37, TIDL_ERR_PROTOCOL, "a number, and no segment");
}

TT_TEST(codec_damage, segment_numbers_out_of_range)
{
	body.size = inner.size = 0;
	tt_bytes_number(&inner, 1, 1);
	tt_bytes_block(&body, 2, inner.bytes, inner.size);
	tt_bytes_number(&body, 3, TDP_SEGMENTS_PER_PUBLICATION - 1);
	expect_body(22, 0, "the last number");
	body.size = 0;
	tt_bytes_block(&body, 2, inner.bytes, inner.size);
	tt_bytes_number(&body, 3, TDP_SEGMENTS_PER_PUBLICATION);
	expect_body(22, TIDL_ERR_PROTOCOL, "a number too high");
	body.size = 0;
	tt_bytes_block(&body, 2, inner.bytes, inner.size);
	tt_bytes_block(&body, 2, inner.bytes, inner.size);
	tt_bytes_number(&body, 3, 1);
	expect_body(22, TIDL_ERR_PROTOCOL, "fewer numbers than segments");
}

TT_TEST(codec_damage, rows_beside_a_manifest)
{
	body.size = inner.size = 0;
	for (uint32_t field = 1; field <= 6; field++)
		tt_bytes_number(&body, field, 1);
	tt_bytes_number(&body, 13, 1);
	expect_body(37, 0, "a manifest");
	tt_bytes_text(&inner, 1, "a");
	tt_bytes_number(&inner, 2, 0);
	tt_bytes_block(&body, 12, inner.bytes, inner.size);
	expect_body(37, TIDL_ERR_PROTOCOL, "a manifest and a row");
}

TT_TEST(codec_damage, keys_that_are_no_texts)
{
	static const char *const keys[] = {"\xff", "a\nb", "\x7f"};

	for (size_t i = 0; i < TDP_ARRAY_LENGTH(keys); i++) {
		body.size = 0;
		tt_bytes_text(&body, 1, "x");
		tt_bytes_number(&body, 3, 1);
		tt_bytes_text(&body, 7, keys[i]);
		expect_body(36, TIDL_ERR_PROTOCOL, keys[i]);
		body.size = inner.size = 0;
		tt_bytes_text(&body, 1, "x");
		tt_bytes_number(&body, 4, 1);
		tt_bytes_text(&inner, 1, keys[i]);
		tt_bytes_number(&inner, 2, 0);
		tt_bytes_block(&body, 18, inner.bytes, inner.size);
		expect_body(34, TIDL_ERR_PROTOCOL, keys[i]);
	}
}

TT_TEST(codec_damage, fields_and_messages_of_newer_versions_are_skipped)
{
	struct tdp_message message;

	body.size = 0;
	tt_bytes_number(&body, 1, 5);
	tt_bytes_number(&body, 1000, 7);
	tt_bytes_text(&body, 1001, "news");
	tt_bytes_envelope(&envelope, 1, 20, &body);
	tt_bytes_number(&envelope, 2000, 7);
	cr_assert_eq(unpack(envelope.bytes, envelope.size, &message), 0);
	cr_assert_eq(message.kind, TDP_MESSAGE_CANCEL);
	cr_assert_eq(message.cancel.request_id, 5);

	tt_bytes_envelope(&envelope, 1, 99, &body);
	cr_assert_eq(unpack(envelope.bytes, envelope.size, &message), 0);
	cr_assert_eq(message.kind, TDP_MESSAGE_NONE);
	cr_assert_eq(message.request_id, 1);
}

/* ---- damage ---- */

TT_TEST(codec_damage, packets_cut_at_every_byte, .timeout = 60)
{
	for (int kind = TDP_MESSAGE_HELLO; kind < TDP_MESSAGE_UNBUILT; kind++) {
		struct tdp_message sample = tt_message_sample(kind), message;
		size_t size = pack(&sample);

		for (size_t cut = 0; cut < size; cut++) {
			int result = unpack(packet, cut, &message);

			/* A cut between two fields of the envelope can leave one whose body is
			 * gone: that is an envelope without body. */
			cr_assert(result == TIDL_ERR_PROTOCOL ||
					  (result == 0 && message.kind == TDP_MESSAGE_NONE),
				  "%s cut at %zu of %zu", tdp_message_name(kind), cut, size);
			cr_assert(message.request_id == sample.request_id ||
				  message.request_id == 0);
			/* Tag and five bytes of a number above 2^28. */
			if (cut >= 6)
				cr_assert_eq(message.request_id, sample.request_id);
		}
	}
}

TT_TEST(codec_damage, packets_with_every_bit_flipped, .timeout = 60)
{
	for (int kind = TDP_MESSAGE_HELLO; kind < TDP_MESSAGE_UNBUILT; kind++) {
		struct tdp_message sample = tt_message_sample(kind), message;
		size_t size = pack(&sample);

		for (size_t bit = 0; bit < size * 8; bit++) {
			packet[bit / 8] ^= (unsigned char)(1u << bit % 8);
			(void)unpack(packet, size, &message);
			packet[bit / 8] ^= (unsigned char)(1u << bit % 8);
		}
	}
}

TT_TEST(codec_damage, garbage)
{
	struct tdp_message message;

	srandom(7);
	for (int round = 0; round < 20000; round++) {
		size_t size = (size_t)random() % 200;

		for (size_t i = 0; i < size; i++)
			packet[i] = (unsigned char)random();
		(void)unpack(packet, size, &message);
	}
	cr_assert_eq(unpack(packet, 0, &message), TIDL_ERR_PROTOCOL, "nothing at all");
}

TT_TEST(codec_damage, request_id_is_read_from_what_cannot_be_read)
{
	struct tdp_message message;

	/* Behind other fields, before a length that runs out of the packet. */
	envelope.size = 0;
	tt_bytes_text(&envelope, 500, "unknown");
	tt_bytes_number(&envelope, 2, 0);
	tt_bytes_number(&envelope, 1, UINT64_MAX);
	tt_bytes_varint(&envelope, 34 << 3 | 2);
	tt_bytes_varint(&envelope, 1000);
	cr_assert_eq(unpack(envelope.bytes, envelope.size, &message), TIDL_ERR_PROTOCOL);
	cr_assert_eq(message.request_id, UINT64_MAX);

	/* A body that lacks what it requires. */
	body.size = 0;
	expect_body(34, TIDL_ERR_PROTOCOL, "publish without name");

	/* Not readable: a group, a number without end, a length beyond the end. */
	cr_assert_eq(unpack("\x0b\x08\x05", 3, &message), TIDL_ERR_PROTOCOL);
	cr_assert_eq(message.request_id, 0);
	cr_assert_eq(unpack("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12, &message),
		     TIDL_ERR_PROTOCOL);
	cr_assert_eq(message.request_id, 0);
	cr_assert_eq(unpack("\x12\xff\x08\x05", 4, &message), TIDL_ERR_PROTOCOL);
	cr_assert_eq(message.request_id, 0);
}

TT_TEST(codec_damage, packets_larger_than_allowed)
{
	static unsigned char large[TDP_PACKET_MAX_BYTES + 1];
	struct tdp_message message;

	cr_assert_eq(unpack(large, sizeof(large), &message), TIDL_ERR_PROTOCOL);
}

TT_TEST(codec_damage, packets_that_unpack_into_too_much)
{
	struct tdp_message message;

	/* Two bytes each, and each becomes a segment of more than a hundred. */
	body.size = 0;
	tt_bytes_text(&body, 1, "x");
	tt_bytes_number(&body, 4, 1);
	inner.size = 0;
	tt_bytes_number(&inner, 1, 1);
	while (body.size < 60000)
		tt_bytes_block(&body, 2, inner.bytes, inner.size);
	expect_body(34, TIDL_ERR_NO_MEMORY, "many segments");

	/* Unknown fields are kept by protobuf, one allocation each. */
	envelope.size = 0;
	tt_bytes_number(&envelope, 1, 77);
	tt_bytes_number(&envelope, 2, 0);
	while (envelope.size < 60000)
		tt_bytes_number(&envelope, 3, 1);
	cr_assert_eq(unpack(envelope.bytes, envelope.size, &message), TIDL_ERR_NO_MEMORY);
	cr_assert_eq(message.request_id, 77);
}

TT_TEST(codec_damage, the_caller_sets_the_cap)
{
	struct tdp_message sample = tt_message_sample(TDP_MESSAGE_PUBLISH), message;
	size_t size = pack(&sample);
	bool is_refused = false;

	for (size_t cap = 0; cap < 8192; cap += 64) {
		struct tdp_fault fault;
		tdp_auto_arena arena;
		int result;

		tdp_arena_init(&arena, cap);
		result = tdp_message_unpack(&arena, packet, size, &message, &fault);
		cr_assert(result == TIDL_ERR_NO_MEMORY || (result == 0 && cap > 0));
		is_refused = is_refused || result != 0;
		cr_assert_eq(message.request_id, sample.request_id);
	}
	cr_assert(is_refused);
}
