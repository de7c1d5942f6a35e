/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests: what goes in comes out, the form is protobuf's, and nothing malformed gets through. */
#include "proto/wire/manifest.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/bytes.h"
#include "tests/unit/proto/codec_expect.h"

static struct tt_bytes rows, row, inner;

static struct tdp_manifest sample_manifest(void)
{
	struct tdp_message publish = tt_message_sample(TDP_MESSAGE_PUBLISH);

	return (struct tdp_manifest){
		.segment_count = publish.publish.segment_count,
		.segments = publish.publish.segments,
		.tensor_count = publish.publish.tensor_count,
		.tensors = publish.publish.tensors,
		.empty_mapping_count = publish.publish.empty_mapping_count,
		.empty_mappings = publish.publish.empty_mappings,
	};
}

/* Unpack from memory of exactly that size. */
static int manifest_unpack(const void *bytes, size_t size, struct tdp_arena *arena,
			   struct tdp_manifest *ret_manifest)
{
	unsigned char *exact = malloc(size ? size : 1);
	struct tdp_fault fault = {0};
	int result;

	memcpy(exact, bytes, size);
	tdp_arena_init(arena, TDP_MANIFEST_UNPACK_MAX_BYTES);
	result = tdp_manifest_unpack(arena, exact, size, ret_manifest, &fault);
	cr_assert_eq(fault.code, result);
	if (result != 0)
		cr_assert(tdp_text_is_clean(fault.text, strlen(fault.text)));
	free(exact);
	return result;
}

static int check(const void *bytes, size_t size)
{
	struct tdp_manifest manifest;
	tdp_auto_arena arena;

	return manifest_unpack(bytes, size, &arena, &manifest);
}

static unsigned char *pack_manifest(const struct tdp_manifest *manifest, size_t *ret_size)
{
	size_t size = tdp_manifest_packed_bytes(manifest);
	unsigned char *bytes = malloc(size ? size : 1);

	tdp_manifest_pack(manifest, bytes);
	*ret_size = size;
	return bytes;
}

TT_TEST(manifest, comes_back_as_it_went)
{
	struct tdp_manifest sent = sample_manifest(), got;
	tdp_auto_arena arena;
	size_t size;
	unsigned char *bytes = pack_manifest(&sent, &size);

	cr_assert_eq(manifest_unpack(bytes, size, &arena, &got), 0);
	free(bytes);
	cr_assert_eq(got.segment_count, sent.segment_count);
	for (size_t i = 0; i < sent.segment_count; i++) {
		cr_assert_eq(got.segments[i].kind, sent.segments[i].kind);
		cr_assert_eq(got.segments[i].id, sent.segments[i].id);
		cr_assert_eq(got.segments[i].size_bytes, 0);
	}
	expect_tensors(got.tensor_count, got.tensors, sent.tensor_count, sent.tensors);
	expect_empty_mappings(got.empty_mapping_count, got.empty_mappings, sent.empty_mapping_count,
			      sent.empty_mappings);
}

/* The rows are those of a Publish: put into one, protobuf-c reads the same out of them. */
TT_TEST(manifest, has_the_form_of_protobuf)
{
	static struct tt_bytes body, envelope;
	struct tdp_manifest sent = sample_manifest();
	struct tdp_message message;
	struct tdp_fault fault;
	tdp_auto_arena arena;
	size_t size, position = 0;
	unsigned char *bytes = pack_manifest(&sent, &size);

	body.size = 0;
	tt_bytes_text(&body, 1, "x");
	while (position < size) {
		/* Short rows: one byte of tag and one of length. */
		unsigned int field = bytes[position] >> 3;
		unsigned int length = bytes[position + 1];

		cr_assert_lt(length, 128);
		tt_bytes_block(&body, field == 3 ? 18 : field + 1, bytes + position + 2, length);
		position += 2 + length;
	}
	tt_bytes_number(&body, 4, 1);
	tt_bytes_envelope(&envelope, 1, 34, &body);
	tdp_arena_init(&arena, TDP_UNPACK_MAX_BYTES);
	cr_assert_eq(tdp_message_unpack(&arena, envelope.bytes, envelope.size, &message, &fault), 0,
		     "%s", fault.text);
	cr_assert_eq(message.publish.segment_count, sent.segment_count);
	cr_assert_eq(message.publish.segments[1].id, sent.segments[1].id);
	expect_tensors(message.publish.tensor_count, message.publish.tensors, sent.tensor_count,
		       sent.tensors);
	expect_empty_mappings(message.publish.empty_mapping_count, message.publish.empty_mappings,
			      sent.empty_mapping_count, sent.empty_mappings);
	free(bytes);
}

TT_TEST(manifest, rows_tell_where_they_lie)
{
	struct tdp_manifest sent = sample_manifest();
	struct tdp_manifest_reader reader;
	struct tdp_manifest_row found;
	struct tdp_fault fault;
	size_t size, last_end = 0;
	unsigned char *bytes = pack_manifest(&sent, &size);

	tdp_manifest_reader_init(&reader, bytes, size);
	while (tdp_manifest_next(&reader, &found, &fault) == 0 && found.kind != TDP_MANIFEST_END) {
		struct tdp_manifest_reader piece;
		struct tdp_manifest_row again;

		cr_assert_eq(found.offset_bytes, last_end);
		last_end = found.end_bytes;
		cr_assert_eq(found.key_bytes, strlen(found.key));
		if (found.key_bytes > 0)
			cr_assert_eq(memcmp(found.raw_key, found.key, found.key_bytes), 0);
		tdp_manifest_reader_init(&piece, bytes + found.offset_bytes,
					 found.end_bytes - found.offset_bytes);
		cr_assert_eq(tdp_manifest_next(&piece, &again, &fault), 0);
		cr_assert_eq(again.kind, found.kind);
		cr_assert_str_eq(again.key, found.key);
		cr_assert_eq(tdp_manifest_next(&piece, &again, &fault), 0);
		cr_assert_eq(again.kind, TDP_MANIFEST_END);
	}
	cr_assert_eq(last_end, size);
	free(bytes);
}

TT_TEST(manifest, the_largest)
{
	struct tdp_tensor *tensors = calloc(TDP_TENSORS_PER_PUBLICATION + 1, sizeof(*tensors));
	struct tdp_manifest sent = {.tensors = tensors,
				    .tensor_count = TDP_TENSORS_PER_PUBLICATION},
			    got;
	tdp_auto_arena arena;
	unsigned char *bytes;
	size_t size;

	for (size_t i = 0; i <= TDP_TENSORS_PER_PUBLICATION; i++)
		tensors[i] =
			(struct tdp_tensor){.key = "k", .segment_index = 4095, .dtype = {2, 32, 1}};
	bytes = pack_manifest(&sent, &size);
	cr_assert_eq(manifest_unpack(bytes, size, &arena, &got), 0);
	expect_tensors(got.tensor_count, got.tensors, sent.tensor_count, sent.tensors);
	free(bytes);
	sent.tensor_count++;
	bytes = pack_manifest(&sent, &size);
	cr_assert_eq(check(bytes, size), TIDL_ERR_PROTOCOL);
	free(bytes);
	free(tensors);
}

TT_TEST(manifest, of_the_greatest_rank)
{
	int64_t shape[TDP_NDIM_MAX], strides[TDP_NDIM_MAX];
	const struct tdp_tensor tensor = {.key = "k",
					  .segment_index = UINT32_MAX,
					  .byte_offset = UINT64_MAX,
					  .dtype = {255, 255, 65535},
					  .ndim = TDP_NDIM_MAX,
					  .shape = shape,
					  .strides = strides};
	struct tdp_manifest sent = {.tensors = &tensor, .tensor_count = 1}, got;
	tdp_auto_arena arena;
	unsigned char *bytes;
	size_t size;

	for (int i = 0; i < TDP_NDIM_MAX; i++) {
		shape[i] = INT64_MAX;
		strides[i] = INT64_MIN;
	}
	bytes = pack_manifest(&sent, &size);
	cr_assert_eq(manifest_unpack(bytes, size, &arena, &got), 0);
	expect_tensors(1, got.tensors, 1, &tensor);
	free(bytes);
}

/* ---- what others may write ---- */

static void tensor_begin(void)
{
	row.size = inner.size = 0;
	tt_bytes_number(&inner, 1, 2);
	tt_bytes_number(&inner, 2, 32);
	tt_bytes_number(&inner, 3, 1);
}

static void tensor_end(void)
{
	tt_bytes_block(&rows, 2, row.bytes, row.size);
}

TT_TEST(manifest, numbers_one_by_one_and_fields_of_newer_versions)
{
	struct tdp_manifest got;
	tdp_auto_arena arena;

	rows.size = 0;
	tt_bytes_text(&rows, 900, "news");
	tensor_begin();
	tt_bytes_number(&inner, 77, 1);
	tt_bytes_number(&row, 6, 4);
	tt_bytes_number(&row, 5, 2);
	tt_bytes_block(&row, 6, "\x01", 1);
	tt_bytes_block(&row, 5, "\x03", 1);
	tt_bytes_text(&row, 99, "news");
	tt_bytes_block(&row, 4, inner.bytes, inner.size);
	tt_bytes_text(&row, 1, "key");
	tt_bytes_number(&row, 3, 5);
	tensor_end();
	tt_bytes_number(&rows, 901, 5);
	cr_assert_eq(manifest_unpack(rows.bytes, rows.size, &arena, &got), 0);
	cr_assert_eq(got.tensor_count, 1);
	cr_assert_str_eq(got.tensors[0].key, "key");
	cr_assert_eq(got.tensors[0].byte_offset, 5);
	cr_assert_eq(got.tensors[0].segment_index, -1);
	cr_assert_eq(got.tensors[0].ndim, 2);
	cr_assert_eq(got.tensors[0].shape[1], 3);
	cr_assert_eq(got.tensors[0].strides[0], 4);
}

/* One thing wrong in an otherwise good tensor. */
struct damage {
	const char *what;
	void (*write)(void);
};

static void finish(void)
{
	tt_bytes_number(&row, 3, 0);
	tt_bytes_block(&row, 4, inner.bytes, inner.size);
}
static void write_nothing_wrong(void)
{
	finish();
}
static void write_no_offset(void)
{
	tt_bytes_block(&row, 4, inner.bytes, inner.size);
}
static void write_no_dtype(void)
{
	tt_bytes_number(&row, 3, 0);
}
static void write_half_a_dtype(void)
{
	inner.size = 0;
	tt_bytes_number(&inner, 1, 2);
	finish();
}
static void write_wide_dtype(void)
{
	tt_bytes_number(&inner, 2, 256);
	finish();
}
static void write_dtype_as_number(void)
{
	finish();
	tt_bytes_number(&row, 4, 5);
}
static void write_key_as_number(void)
{
	finish();
	tt_bytes_number(&row, 1, 5);
}
static void write_long_key(void)
{
	char key[TDP_KEY_MAX_BYTES + 1];

	finish();
	memset(key, 'k', sizeof(key));
	tt_bytes_block(&row, 1, key, sizeof(key));
}
static void write_key_with_nul(void)
{
	finish();
	tt_bytes_block(&row, 1, "a\0b", 3);
}
static void write_key_that_is_no_text(void)
{
	finish();
	tt_bytes_text(&row, 1, "\xff");
}
static void write_fewer_strides(void)
{
	finish();
	tt_bytes_block(&row, 5, "\x01\x01", 2);
	tt_bytes_block(&row, 6, "\x01", 1);
}
static void write_too_many_dimensions(void)
{
	static const char ones[TDP_NDIM_MAX + 1];

	finish();
	tt_bytes_block(&row, 5, ones, sizeof(ones));
	tt_bytes_block(&row, 6, ones, sizeof(ones));
}
static void write_half_a_number(void)
{
	finish();
	tt_bytes_block(&row, 5, "\x80", 1);
	tt_bytes_block(&row, 6, "\x01", 1);
}
static void write_wide_segment_index(void)
{
	finish();
	tt_bytes_number(&row, 2, 1ull << 32);
}
static void write_wide_flags(void)
{
	finish();
	tt_bytes_number(&row, 7, 1ull << 32);
}
static void write_offset_as_bytes(void)
{
	finish();
	tt_bytes_text(&row, 3, "x");
}
static void write_length_beyond_the_end(void)
{
	finish();
	memcpy(row.bytes + row.size,
	       "\x0a\x05"
	       "abc",
	       5);
	row.size += 5;
}
static void write_field_zero(void)
{
	finish();
	memcpy(row.bytes + row.size, "\x00\x05", 2);
	row.size += 2;
}
static void write_a_group(void)
{
	finish();
	memcpy(row.bytes + row.size, "\x0b\x0c", 2);
	row.size += 2;
}

TT_TEST(manifest, damaged_tensors)
{
	static const struct damage damages[] = {
		{"no offset", write_no_offset},
		{"no dtype", write_no_dtype},
		{"half a dtype", write_half_a_dtype},
		{"a wide dtype", write_wide_dtype},
		{"a dtype that is a number", write_dtype_as_number},
		{"a key that is a number", write_key_as_number},
		{"a long key", write_long_key},
		{"a key with NUL", write_key_with_nul},
		{"a key that is no text", write_key_that_is_no_text},
		{"fewer strides than extents", write_fewer_strides},
		{"too many dimensions", write_too_many_dimensions},
		{"half a number", write_half_a_number},
		{"a wide segment index", write_wide_segment_index},
		{"wide flags", write_wide_flags},
		{"an offset that is bytes", write_offset_as_bytes},
		{"a length beyond the end", write_length_beyond_the_end},
		{"field 0", write_field_zero},
		{"a group", write_a_group},
	};

	rows.size = 0;
	tensor_begin();
	write_nothing_wrong();
	tensor_end();
	cr_assert_eq(check(rows.bytes, rows.size), 0);
	for (size_t i = 0; i < TDP_ARRAY_LENGTH(damages); i++) {
		rows.size = 0;
		tensor_begin();
		damages[i].write();
		tensor_end();
		cr_expect_eq(check(rows.bytes, rows.size), TIDL_ERR_PROTOCOL, "%s",
			     damages[i].what);
	}
}

TT_TEST(manifest, damaged_segments_and_mappings)
{
	static const struct {
		unsigned int field;
		const char *content;
		size_t size;
	} damages[] = {
		{1, "", 0},			/* no kind */
		{1, "\x08\x00", 2},		/* kind 0 */
		{1, "\x08\x04", 2},		/* kind 4 */
		{1, "\x0a\x01\x01", 3},		/* a kind that is bytes */
		{1, "\x08\x01\x12\x01\x01", 5}, /* an id that is bytes */
		{3,
		 "\x0a\x01"
		 "a",
		 3},		    /* no position */
		{3, "\x10\x00", 2}, /* no key */
		{3,
		 "\x0a\x01"
		 "a\x12\x01\x00",
		 6}, /* a position that is bytes */
		{3,
		 "\x0a\x01"
		 "a\x10\x80\x80\x80\x80\x10",
		 9}, /* a wide position */
		{3,
		 "\x0a\x01"
		 "\xff\x10\x00",
		 5}, /* a key that is no text */
	};

	for (size_t i = 0; i < TDP_ARRAY_LENGTH(damages); i++) {
		rows.size = 0;
		tt_bytes_block(&rows, damages[i].field, damages[i].content, damages[i].size);
		cr_expect_eq(check(rows.bytes, rows.size), TIDL_ERR_PROTOCOL, "row %zu", i);
	}
}

TT_TEST(manifest, rows_out_of_order)
{
	rows.size = 0;
	tensor_begin();
	finish();
	tensor_end();
	tt_bytes_block(&rows, 1, "\x08\x01", 2);
	cr_assert_eq(check(rows.bytes, rows.size), TIDL_ERR_PROTOCOL);
	rows.size = 0;
	tt_bytes_block(&rows, 3,
		       "\x0a\x01"
		       "a\x10\x00",
		       5);
	tensor_end();
	cr_assert_eq(check(rows.bytes, rows.size), TIDL_ERR_PROTOCOL);
	rows.size = 0;
	tt_bytes_number(&rows, 2, 5);
	cr_assert_eq(check(rows.bytes, rows.size), TIDL_ERR_PROTOCOL);
}

TT_TEST(manifest, cut_at_every_byte_and_damaged_at_every_bit)
{
	struct tdp_manifest sent = sample_manifest();
	size_t size;
	unsigned char *bytes = pack_manifest(&sent, &size);

	for (size_t cut = 0; cut < size; cut++) {
		int result = check(bytes, cut);

		cr_assert(result == 0 || result == TIDL_ERR_PROTOCOL);
	}
	for (size_t bit = 0; bit < 8 * size; bit++) {
		int result;

		bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
		result = check(bytes, size);
		cr_assert(result == 0 || result == TIDL_ERR_PROTOCOL);
		bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
	}
	free(bytes);
}

TT_TEST(manifest, that_needs_too_much_memory)
{
	struct tdp_manifest sent = sample_manifest(), got;
	struct tdp_fault fault = {0};
	tdp_auto_arena arena;
	size_t size;
	unsigned char *bytes = pack_manifest(&sent, &size);

	tdp_arena_init(&arena, 64);
	cr_assert_eq(tdp_manifest_unpack(&arena, bytes, size, &got, &fault), TIDL_ERR_NO_MEMORY);
	free(bytes);
}
