/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_INPLACE_THRESHOLD_H
#define TDC_INPLACE_THRESHOLD_H

#include <stddef.h>

#include "proto/base/attr.h"
#include "proto/base/fault.h"

/* What tidl_prefer_shareable() does; @min_bytes is not 0. */
int tdc_prefer_shareable(size_t min_bytes, size_t *ret_from_bytes,
			 struct tdp_fault *fault) TDP_MUST_CHECK;

#endif
