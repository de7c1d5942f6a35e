/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_FUZZ_FUZZ_LAYOUT_H
#define TT_FUZZ_FUZZ_LAYOUT_H

#include <stdint.h>

/* The beginning of an input; @ndim extents and, if it has them, as many strides follow. */
struct tt_fuzz_layout {
	uint8_t code;
	uint8_t bits;
	uint16_t lanes;
	uint8_t ndim;
	uint8_t flags;
	uint8_t has_strides;
	uint8_t unused;
	uint64_t byte_offset;
	uint64_t window_begin;
	uint64_t window_end;
};

#endif
