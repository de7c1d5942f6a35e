/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_INPLACE_RANGE_H
#define TDC_INPLACE_RANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/lib/inplace/maps.h"
#include "include/tidl/inplace.h"
#include "include/tidl/publish.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

enum {
	/* What glibc writes in front of a block, and reads when it is freed. */
	TDC_HEADER_BYTES = 16,

	/* Pages that are exchanged at once. Writers wait for that long, and that much memory is
	 * there twice. */
	TDC_PIECE_BYTES = 2 << 20,
};

/* Whole pages that belong to one block of memory, whose owner keeps its pointer. */
struct tdc_range {
	unsigned char *begin;
	size_t size_bytes;
	uintptr_t content_begin; /* what the owner asked for; around it is padding */
	uintptr_t content_end;
	size_t shared_bytes;   /* of them, from `begin` on, are pages of a segment by now */
	bool is_apart;	       /* those are mapped privately by now, but not copied yet */
	bool is_marked;	       /* the first of them can be told from other maps of the segment */
	unsigned char *header; /* of malloc, if it lies in here; NULL: none */
	unsigned char saved_header[TDC_HEADER_BYTES];
};

/*
 * The pages of a block. They are private anonymous memory that can be written and hold nothing
 * else, as far as can be known: of malloc's blocks that are maps of their own, its header tells; of
 * PAGES, the caller. Otherwise TIDL_ERR_COPY_NEEDED with its reason.
 */
int tdc_range_find(const struct tdc_maps *maps, const struct tidl_block *block,
		   struct tdc_range *ret_range, struct tdp_fault *fault) TDP_MUST_CHECK;

/* Look at the pages once more: has anything about them changed since? */
int tdc_range_check(const struct tdc_maps *maps, const struct tdc_range *range,
		    struct tdp_fault *fault) TDP_MUST_CHECK;

/* TIDL_ERR_COPY_NEEDED with @reason and its sentence. */
int tdc_range_refuse(enum tidl_copy_reason reason, struct tdp_fault *fault);

/* Is this a block that malloc has made a map of its own for? @address must be readable from
 * TDC_HEADER_BYTES before on. */
bool tdc_block_is_mapped_alone(const void *address, uintptr_t *ret_begin, uintptr_t *ret_end);

#endif
