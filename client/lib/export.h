/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_EXPORT_H
#define TDC_EXPORT_H

#include "include/tidl/tensor.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

/* A DLPack tensor over the same memory, with a reference to @tensor until its deleter is called. */
int tdc_export(struct tidl_tensor *tensor, struct DLManagedTensorVersioned **ret_managed,
	       struct tdp_fault *fault) TDP_MUST_CHECK;

/* The same, unversioned. Read-only memory only with TIDL_EXPORT_ALLOW_READONLY in @flags. */
int tdc_export_legacy(struct tidl_tensor *tensor, uint32_t flags,
		      struct DLManagedTensor **ret_managed, struct tdp_fault *fault) TDP_MUST_CHECK;

#endif
