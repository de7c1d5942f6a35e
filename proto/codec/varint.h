/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDP_CODEC_VARINT_H
#define TDP_CODEC_VARINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Protobuf's own encoding, for what is read or written without protobuf-c. */

enum tdp_wire_type {
	TDP_WIRE_VARINT = 0,
	TDP_WIRE_64 = 1,
	TDP_WIRE_BYTES = 2,
	TDP_WIRE_32 = 5,
};

/* True and the number behind *position, which moves on. */
static inline bool tdp_varint_read(const uint8_t *bytes, size_t size_bytes, size_t *position,
				   uint64_t *ret)
{
	uint64_t value = 0;

	for (unsigned int shift = 0; shift < 64 && *position < size_bytes; shift += 7) {
		uint8_t byte = bytes[(*position)++];

		value |= (uint64_t)(byte & 0x7f) << shift;
		if ((byte & 0x80) == 0) {
			*ret = value;
			return true;
		}
	}
	return false;
}

/* Move behind a field's value; false where the packet ends or the type is none of ours. */
static inline bool tdp_field_skip(const uint8_t *bytes, size_t size_bytes, size_t *position,
				  unsigned int type)
{
	uint64_t length;

	switch (type) {
	case TDP_WIRE_VARINT:
		return tdp_varint_read(bytes, size_bytes, position, &length);
	case TDP_WIRE_64:
		length = 8;
		break;
	case TDP_WIRE_BYTES:
		if (!tdp_varint_read(bytes, size_bytes, position, &length))
			return false;
		break;
	case TDP_WIRE_32:
		length = 4;
		break;
	default:
		return false;
	}
	if (length > size_bytes - *position)
		return false;
	*position += length;
	return true;
}

static inline size_t tdp_varint_bytes(uint64_t value)
{
	/* Seven bits a byte; zero takes one, too. */
	return (size_t)(64 - __builtin_clzll(value | 1) + 6) / 7;
}

static inline uint8_t *tdp_varint_write(uint8_t *at, uint64_t value)
{
	for (; value > 0x7f; value >>= 7)
		*at++ = (uint8_t)(value | 0x80);
	*at++ = (uint8_t)value;
	return at;
}

#endif
