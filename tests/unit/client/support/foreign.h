/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CLIENT_FOREIGN_H
#define TT_CLIENT_FOREIGN_H

#include <stdint.h>

#include <dlpack/dlpack.h>

/* A framework's tensor: a DLPack structure over the test's own memory that counts its deleter's
 * calls. Lives in the test. */
struct tt_foreign {
	DLManagedTensorVersioned managed;
	DLManagedTensor legacy;
	int deleted;
	int64_t shape[64];
	int64_t strides[64];
};

/* float32; @strides may be NULL. */
void tt_foreign_init(struct tt_foreign *foreign, void *data, int32_t ndim, const int64_t *shape,
		     const int64_t *strides);

#endif
