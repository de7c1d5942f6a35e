/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_PARTS_H
#define TDC_PARTS_H

#include "client/lib/origin.h"
#include "client/lib/reply.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

/*
 * Map all segments of a grant into its origin, whose lease must be set: those in @reply, then those
 * that the broker gives on request, one round trip for every 253. Their descriptors are closed.
 * Returns 0 or TIDL_ERR_PROTOCOL, _SEGMENT_BAD, or as tdc_call().
 */
int tdc_parts_collect(struct tdc_origin *origin, struct tdc_reply *reply,
		      struct tdp_fault *fault) TDP_MUST_CHECK;

#endif
