/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_SOURCE_H
#define TDC_SOURCE_H

#include <stdatomic.h>

#include "include/tidl/tensor.h"
#include "proto/base/attr.h"

/* A framework's tensor that was handed over: counted, so that it can outlive the call or draft that
 * it came with. Exactly one of the two is set. */
struct tdc_source {
	atomic_size_t refs;
	struct DLManagedTensorVersioned *versioned;
	struct DLManagedTensor *legacy;
};

/* One reference; NULL when there is no memory. The tensor still belongs to the caller. */
struct tdc_source *tdc_source_new(struct DLManagedTensorVersioned *versioned,
				  struct DLManagedTensor *legacy);

struct tdc_source *tdc_source_ref(struct tdc_source *source);

/* Calls the tensor's deleter with the last reference. NULL is allowed. Returns NULL. */
struct tdc_source *tdc_source_unref(struct tdc_source *source);

/* Free what nobody else has a reference to, and leave the tensor to the caller. Returns NULL. */
struct tdc_source *tdc_source_forget(struct tdc_source *source);

#endif
