/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_COPYING_H
#define TDC_COPYING_H

#include "client/lib/allocation.h"
#include "client/lib/packing.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

struct tidl_client;

/*
 * Copy what a pack planned into a new segment, large enough for it. Reads every tensor once.
 * @ret_member: whose fault it was when it fails. Returns 0 or TIDL_ERR_LAYOUT (memory that cannot
 * be read), _NO_MEMORY, _INTERRUPTED, _SYSTEM.
 */
int tdc_copy(struct tidl_client *client, const struct tdc_allocation *allocation,
	     const struct tdc_pack *pack, size_t *ret_member,
	     struct tdp_fault *fault) TDP_MUST_CHECK;

#endif
