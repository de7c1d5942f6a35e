/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_STEP_WAIT_H
#define TDC_STEP_WAIT_H

#include <stdint.h>

#include "proto/base/attr.h"
#include "proto/base/fault.h"

struct tidl_tensor;

/* What the public functions of the same names do; arguments are checked. */
int tdc_wait_step(const struct tidl_tensor *tensor, uint64_t step, int64_t timeout_ms,
		  uint64_t *ret_step, struct tdp_fault *fault) TDP_MUST_CHECK;
int tdc_snapshot(const struct tidl_tensor *tensor, void *buffer, int64_t timeout_ms,
		 uint64_t *ret_step, struct tdp_fault *fault) TDP_MUST_CHECK;

#endif
