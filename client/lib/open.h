/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_OPEN_H
#define TDC_OPEN_H

#include <stdint.h>

#include "client/lib/lease.h"
#include "client/lib/segment.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"
#include "proto/wire/message.h"

struct tidl_client;

/*
 * The descriptors of a mapped segment, once more: a map needs none to stay, so none is kept. Both
 * verified. Which there are depends on the hold: an allocation opens both (read-only alone where
 * the segment is immutable by now), a lease the one of its attach. -1: none.
 */
struct tdc_opened {
	struct tdp_segment wire;
	int write_fd;
	int read_fd;
};

/*
 * One round trip. @lease holds @segment. Returns 0 or TIDL_ERR_RELEASED when the lease went with an
 * older connection (before a fork, say), TIDL_ERR_SEGMENT_BAD when it is not that segment, or as
 * tdc_call().
 */
int tdc_open(struct tidl_client *client, const struct tdc_lease *lease,
	     const struct tdc_segment *segment, struct tdc_opened *ret_opened,
	     struct tdp_fault *fault) TDP_MUST_CHECK;

/* Closes both; idempotent. */
void tdc_opened_deinit(struct tdc_opened *opened);

#define tdc_auto_opened TDP_CLEANUP(tdc_opened_deinit) struct tdc_opened

#define TDC_OPENED_NONE ((struct tdc_opened){.write_fd = -1, .read_fd = -1})

#endif
