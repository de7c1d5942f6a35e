/* SPDX-License-Identifier: Apache-2.0 */
/* Fake producers of DLPack tensors. */
#include "tests/unit/client/support/foreign.h"

#include <string.h>

static void foreign_delete(DLManagedTensorVersioned *managed)
{
	struct tt_foreign *foreign = managed->manager_ctx;

	foreign->deleted++;
}

static void foreign_delete_legacy(DLManagedTensor *managed)
{
	struct tt_foreign *foreign = managed->manager_ctx;

	foreign->deleted++;
}

void tt_foreign_init(struct tt_foreign *foreign, void *data, int32_t ndim, const int64_t *shape,
		     const int64_t *strides)
{
	memset(foreign, 0, sizeof(*foreign));
	for (int32_t i = 0; i < ndim; i++) {
		foreign->shape[i] = shape[i];
		foreign->strides[i] = strides ? strides[i] : 0;
	}
	foreign->managed = (DLManagedTensorVersioned){
		.version = {.major = 1, .minor = 1},
		.manager_ctx = foreign,
		.deleter = foreign_delete,
		.dl_tensor = {.data = data,
			      .device = {.device_type = kDLCPU},
			      .ndim = ndim,
			      .dtype = {.code = kDLFloat, .bits = 32, .lanes = 1},
			      .shape = foreign->shape,
			      .strides = strides ? foreign->strides : NULL},
	};
	foreign->legacy = (DLManagedTensor){
		.dl_tensor = foreign->managed.dl_tensor,
		.manager_ctx = foreign,
		.deleter = foreign_delete_legacy,
	};
}
