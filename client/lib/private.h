/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_PRIVATE_H
#define TDC_PRIVATE_H

#include "client/lib/tensor.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

/*
 * The same tensor over a copy-on-write map, for whoever cannot do without writing. All that is made
 * so from tensors of one origin shares one map of each segment, and keeps it as long as the origin
 * is there. TIDL_ERR_ACCESS where others may still write, since written pages do not follow them.
 */
int tdc_tensor_copy_on_write(struct tidl_tensor *tensor, struct tidl_tensor **ret_tensor,
			     struct tdp_fault *fault) TDP_MUST_CHECK;

#endif
