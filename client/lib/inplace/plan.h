/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_INPLACE_PLAN_H
#define TDC_INPLACE_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "client/lib/import.h"
#include "client/lib/inplace/moved.h"
#include "client/lib/source.h"
#include "include/tidl/publish.h"
#include "proto/base/arena.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

/* A tensor whose memory is to be shared where it lies. */
struct tdc_move_item {
	const struct tdc_import *import;
	struct tdc_source *source; /* borrowed */
	size_t member;		   /* the caller's number for it */

	/* Filled in. */
	size_t part;		     /* of the moved memory */
	struct tdc_segment *segment; /* that part's; borrowed */
};

struct tdc_move_result {
	struct tdc_moved *moved; /* busy */
	uint64_t moved_bytes;
	uint64_t neighbour_bytes;
};

/* The tensors of one publish whose memory is to be moved. */
struct tdc_move_request {
	const struct tidl_publish_options *options;
	struct tdp_arena *arena;
	size_t item_count;
	struct tdc_move_item *items;
	size_t culprit; /* the member that was refused, if it was one; for the caller to set before
			 */
};

/* Find the memory of each, and move it: all of it into one segment, or nothing. Tensors may lie in
 * the same memory. */
int tdc_move_all(struct tidl_client *client, struct tdc_move_request *request,
		 struct tdc_move_result *ret_result, struct tdp_fault *fault) TDP_MUST_CHECK;

#endif
