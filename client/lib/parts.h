/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_PARTS_H
#define TDC_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/lib/origin.h"
#include "client/lib/reply.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"
#include "proto/wire/message.h"

/* How far the segments of a grant have come; `cursor` 0: that was the last packet. */
struct tdc_parts {
	struct tdc_origin *origin; /* borrowed */
	uint64_t era;
	uint64_t cursor;
	uint32_t owner_uid;
	size_t next_number;
	bool is_selection; /* not all segments are to come */
};

/*
 * Map the segments of a grant into its origin, packet by packet: those that came with GRANTED, and
 * while there is a cursor those of the MORE that answers tdc_parts_request(). Descriptors are
 * closed. Neither sends nor waits. Returns 0 or TIDL_ERR_PROTOCOL, _SEGMENT_BAD, _BROKER_GONE (the
 * connection was replaced in between), _NO_MEMORY.
 */
int tdc_parts_begin(struct tdc_parts *parts, struct tdc_origin *origin, struct tdc_reply *granted,
		    struct tdp_fault *fault) TDP_MUST_CHECK;
struct tdp_message tdc_parts_request(const struct tdc_parts *parts);
int tdc_parts_more(struct tdc_parts *parts, struct tdc_reply *more,
		   struct tdp_fault *fault) TDP_MUST_CHECK;

/* After the last: are they all there? */
int tdc_parts_finish(const struct tdc_parts *parts, struct tdp_fault *fault) TDP_MUST_CHECK;

#endif
