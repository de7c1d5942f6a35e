/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_ALLOCATION_H
#define TDC_ALLOCATION_H

#include <stdint.h>

#include "client/lib/lease.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"
#include "proto/wire/message.h"

struct tidl_client;

/* A new segment, verified but not mapped, and this client's hold on it. */
struct tdc_allocation {
	struct tdp_segment wire;
	int fd; /* read-write */
	struct tdc_lease *lease;
};

/* One round trip. TIDL_ERR_SEGMENT_BAD when the broker gave less than was asked for. */
int tdc_allocate(struct tidl_client *client, uint64_t data_bytes,
		 struct tdc_allocation *ret_allocation, struct tdp_fault *fault) TDP_MUST_CHECK;

/* Give back what was not taken out. */
void tdc_allocation_deinit(struct tidl_client *client, struct tdc_allocation *allocation);

/*
 * Reserve the pages of the data part, so that this process's cgroup pays for them and no later
 * write can fail. TIDL_ERR_NO_MEMORY when there are none, TIDL_ERR_INTERRUPTED.
 */
int tdc_allocation_reserve(struct tidl_client *client, const struct tdc_allocation *allocation,
			   struct tdp_fault *fault) TDP_MUST_CHECK;

#endif
