/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_IMPORT_H
#define TDC_IMPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "include/tidl/tensor.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"
#include "proto/tensor/layout.h"

/* A framework's tensor, checked. Borrows shape and strides from the DLPack structure. */
struct tdc_import {
	const unsigned char *first; /* first logical element; NULL when empty */
	void *data;		    /* the structure's pointer, which may be its owner's block */
	struct tdp_layout layout;   /* byte_offset 0: from `first` */
	struct tdp_extent extent;
	uintptr_t begin; /* addresses touched: [begin, end) */
	uintptr_t end;
	bool is_readonly;
	bool is_pinned; /* memory that a device knows by its pages */
};

/*
 * Read and check a DLPack structure; never dereferences its data. Takes no ownership. Returns 0 or
 * TIDL_ERR_UNSUPPORTED (a major version above 1, of which nothing but the deleter may be touched),
 * _DEVICE, _DTYPE, _LAYOUT.
 */
int tdc_import(const struct DLManagedTensorVersioned *managed, struct tdc_import *ret_import,
	       struct tdp_fault *fault) TDP_MUST_CHECK;
int tdc_import_legacy(const struct DLManagedTensor *managed, struct tdc_import *ret_import,
		      struct tdp_fault *fault) TDP_MUST_CHECK;

#endif
