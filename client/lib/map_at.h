/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_MAP_AT_H
#define TDC_MAP_AT_H

#include <stddef.h>

#include "client/lib/tensor.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

/* What tidl_tensor_map_at() does; no argument is NULL. One round trip. */
int tdc_tensor_map_at(const struct tidl_tensor *tensor, void *address, size_t size_bytes,
		      struct tdp_fault *fault) TDP_MUST_CHECK;

#endif
