/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_UNIT_PROTO_CODEC_EXPECT_H
#define TT_UNIT_PROTO_CODEC_EXPECT_H

/* What the tests of the codec share. Each of them uses a part of it. */
#include <stdlib.h>
#include <string.h>

#include "proto/base/arena.h"
#include "proto/names.h"
#include "proto/wire/message.h"
#include "tests/support/leak.h"
#include "tests/support/messages.h"

static unsigned char packet[TDP_PACKET_MAX_BYTES];

/* A sample's trip over the wire. */
static inline void travel(const struct tdp_message *sample, struct tdp_arena *arena,
			  struct tdp_message *ret_message)
{
	struct tdp_fault fault = {0};
	size_t size = 0;

	cr_assert_eq(tdp_message_pack(sample, packet, sizeof(packet), &size, &fault), 0, "%s: %s",
		     tdp_message_name(sample->kind), fault.text);
	memset(ret_message, 0xa5, sizeof(*ret_message));
	tdp_arena_init(arena, TDP_UNPACK_MAX_BYTES);
	cr_assert_eq(tdp_message_unpack(arena, packet, size, ret_message, &fault), 0, "%s: %s",
		     tdp_message_name(sample->kind), fault.text);
	cr_assert_eq(ret_message->kind, sample->kind);
	cr_assert_eq(ret_message->request_id, sample->request_id);
	cr_assert_eq(ret_message->fd_count, sample->fd_count);
}

#define EXPECT(field)	   cr_assert_eq(got->field, sent->field, "%s", #field)
#define EXPECT_TEXT(field) cr_assert_str_eq(got->field, sent->field, "%s", #field)

static inline void expect_dtype(struct tidl_dtype got, struct tidl_dtype sent)
{
	cr_assert_eq(memcmp(&got, &sent, sizeof(got)), 0);
}

static inline void expect_segments(size_t got_count, const struct tdp_segment *got,
				   size_t sent_count, const struct tdp_segment *sent)
{
	cr_assert_eq(got_count, sent_count);
	for (size_t i = 0; i < sent_count; i++, got++, sent++) {
		EXPECT(kind);
		EXPECT(id);
		EXPECT(size_bytes);
		EXPECT(data_offset_bytes);
		EXPECT(data_size_bytes);
		EXPECT(control_offset_bytes);
		EXPECT(seals);
		EXPECT(inode);
		EXPECT(huge_bytes);
		EXPECT(step_word);
	}
}

static inline void expect_tensors(size_t got_count, const struct tdp_tensor *got, size_t sent_count,
				  const struct tdp_tensor *sent)
{
	cr_assert_eq(got_count, sent_count);
	for (size_t i = 0; i < sent_count; i++, got++, sent++) {
		EXPECT_TEXT(key);
		EXPECT(segment_index);
		EXPECT(byte_offset);
		expect_dtype(got->dtype, sent->dtype);
		EXPECT(ndim);
		EXPECT(flags);
		for (uint32_t k = 0; k < sent->ndim; k++) {
			EXPECT(shape[k]);
			EXPECT(strides[k]);
		}
	}
}

static inline void expect_empty_mappings(size_t got_count, const struct tdp_empty_mapping *got,
					 size_t sent_count, const struct tdp_empty_mapping *sent)
{
	cr_assert_eq(got_count, sent_count);
	for (size_t i = 0; i < sent_count; i++, got++, sent++) {
		EXPECT_TEXT(key);
		EXPECT(position);
	}
}

static inline void expect_numbers(size_t got_count, const uint32_t *got, size_t sent_count,
				  const uint32_t *sent)
{
	cr_assert_eq(got_count, sent_count);
	for (size_t i = 0; i < sent_count; i++)
		cr_assert_eq(got[i], sent[i]);
}

static inline size_t pack(const struct tdp_message *message)
{
	struct tdp_fault fault = {0};
	size_t size = 0;

	cr_assert_eq(tdp_message_pack(message, packet, sizeof(packet), &size, &fault), 0, "%s",
		     fault.text);
	return size;
}

/* Unpack from memory of exactly that size, so that reading beyond the end is seen. */
static inline int unpack(const void *bytes, size_t size, struct tdp_message *ret_message)
{
	unsigned char *exact = malloc(size ? size : 1);
	struct tdp_fault fault = {0};
	tdp_auto_arena arena;
	int result;

	memcpy(exact, bytes, size);
	tdp_arena_init(&arena, TDP_UNPACK_MAX_BYTES);
	result = tdp_message_unpack(&arena, exact, size, ret_message, &fault);
	cr_assert_eq(fault.code, result);
	if (result != 0) {
		cr_assert(tdp_text_is_clean(fault.text, strlen(fault.text)));
		cr_assert_not_null(strchr(fault.text, ':'), "%s", fault.text);
	}
	free(exact);
	return result;
}

#endif
