/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_EMPTY_H
#define TDC_EMPTY_H

#include <stdint.h>

#include "include/tidl/tensor.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

/* Allocate a new row-major tensor; shape and type are checked before anything is sent. One
 * reference. */
int tdc_empty(struct tidl_client *client, uint32_t ndim, const int64_t *shape,
	      struct tidl_dtype dtype, struct tidl_tensor **ret_tensor,
	      struct tdp_fault *fault) TDP_MUST_CHECK;

#endif
