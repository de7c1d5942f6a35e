/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_PACKING_H
#define TDC_PACKING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/lib/import.h"
#include "proto/base/arena.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

/* One tensor that has to be copied, and where it will lie. */
struct tdc_pack_item {
	const struct tdc_import *import;
	size_t member; /* the caller's number for it */
	/* Filled in by the plan. */
	uint64_t offset_bytes; /* of the first logical element from the start of the pack */
	bool keeps_strides;    /* false: row-major */
	bool is_dense;
};

/* One copy to make. */
struct tdc_pack_part {
	const unsigned char *source;
	uint64_t size_bytes;
	uint64_t offset_bytes;		   /* from the start of the pack */
	const struct tdp_layout *gathered; /* NULL: the bytes as they are */
	size_t member;			   /* one that lies in it */
};

struct tdc_pack {
	size_t part_count;
	struct tdc_pack_part *parts;
	uint64_t size_bytes;
};

/*
 * Plan how tensors come to lie in one block, each on a multiple of TDP_BUNDLE_ALIGN_BYTES or
 * inside a piece that does. Tensors that share memory go on sharing it, if they are the same or if
 * those among them without gaps cover all that they touch; such a piece is copied once, as it is.
 * Bytes that no tensor touches are never copied.
 *
 * Sorts @items. Nothing in them may be empty. Everything lives in @arena. Returns 0 or
 * TIDL_ERR_NO_MEMORY, TIDL_ERR_LIMIT.
 */
int tdc_pack_plan(struct tdp_arena *arena, size_t item_count, struct tdc_pack_item *items,
		  struct tdc_pack *ret_pack, struct tdp_fault *fault) TDP_MUST_CHECK;

#endif
