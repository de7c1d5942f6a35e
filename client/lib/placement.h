/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_PLACEMENT_H
#define TDC_PLACEMENT_H

#include "client/lib/import.h"
#include "client/lib/lease.h"
#include "client/lib/segment.h"
#include "include/tidl/publish.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"
#include "proto/wire/message.h"

/*
 * Where the bytes of a tensor that is being published lie: in a segment already, or copied into a
 * new one. Keeps that segment alive until the broker does.
 */
struct tdc_placement {
	enum tidl_path path;
	enum tidl_copy_reason reason;
	struct tdc_segment *segment; /* aliased; NULL otherwise */
	struct tdc_lease *lease;     /* of a copy; NULL otherwise */
	struct tdp_segment wire;     /* not with TIDL_PATH_EMPTY */
	struct tdp_tensor tensor;    /* its shape is borrowed from the import */
	int64_t strides[TIDL_MAX_NDIM];
};

/* Find the memory, or copy it if @copy allows. TIDL_ERR_COPY_NEEDED if it does not. */
int tdc_placement_init(struct tidl_client *client, const struct tdc_import *import,
		       enum tidl_copy copy, struct tdc_placement *ret_placement,
		       struct tdp_fault *fault) TDP_MUST_CHECK;

/* The broker has taken the copy's allocation over: nothing is left to give back. */
void tdc_placement_handed_over(struct tdc_placement *placement);

void tdc_placement_deinit(struct tidl_client *client, struct tdc_placement *placement);

#endif
