/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SUPPORT_BYTES_H
#define TT_SUPPORT_BYTES_H

#include <stdint.h>
#include <string.h>

/*
 * Packets written by hand, in protobuf's own terms: what the codec would never produce. A field's
 * content that is a message is written into another one first.
 */
struct tt_bytes {
	size_t size;
	uint8_t bytes[65536 + 4096];
};

static inline void tt_bytes_varint(struct tt_bytes *out, uint64_t value)
{
	while (value >= 0x80) {
		out->bytes[out->size++] = (uint8_t)(value | 0x80);
		value >>= 7;
	}
	out->bytes[out->size++] = (uint8_t)value;
}

/* A number: integers, enumerations, booleans. */
static inline void tt_bytes_number(struct tt_bytes *out, uint32_t field, uint64_t value)
{
	tt_bytes_varint(out, (uint64_t)field << 3);
	tt_bytes_varint(out, value);
}

/* Bytes, texts, messages, packed lists. */
static inline void tt_bytes_block(struct tt_bytes *out, uint32_t field, const void *bytes,
				  size_t size)
{
	tt_bytes_varint(out, (uint64_t)field << 3 | 2);
	tt_bytes_varint(out, size);
	memcpy(out->bytes + out->size, bytes, size);
	out->size += size;
}

static inline void tt_bytes_text(struct tt_bytes *out, uint32_t field, const char *text)
{
	tt_bytes_block(out, field, text, strlen(text));
}

/* An envelope around a body that was written before. */
static inline void tt_bytes_envelope(struct tt_bytes *out, uint64_t request_id, uint32_t field,
				     const struct tt_bytes *body)
{
	out->size = 0;
	tt_bytes_number(out, 1, request_id);
	tt_bytes_number(out, 2, 0);
	tt_bytes_block(out, field, body->bytes, body->size);
}

#endif
