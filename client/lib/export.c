/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors on their way into a framework. Each export is one allocation of its own, with its own
 * shape and strides, and belongs to whoever holds the DLPack structure inside it.
 *
 *   LIVE --deleter--> DEAD --many deletions later--> freed
 *
 * Old frameworks call a deleter twice (torch 1.13 after a refused import). So a dead export stays
 * in memory for a while, where the second call finds that it is dead. The deleter allocates
 * nothing, calls into no framework and waits for nothing but short critical sections.
 */
#include "client/lib/export.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <dlpack/dlpack.h>

#include "client/lib/tensor.h"
#include "proto/tensor/dtype.h"

/* Dead exports kept, of some 200 bytes each. A second deleter call follows the first at once; this
 * many other exports may die in between. */
enum { QUARANTINE_COUNT = 1024 };

enum export_state { EXPORT_LIVE, EXPORT_DEAD };

struct export
{
	atomic_int state;
	struct tidl_tensor *tensor;
	union {
		DLManagedTensorVersioned versioned;
		DLManagedTensor legacy;
	} managed;
	int64_t extents[]; /* shape, then strides */
};

static _Atomic(struct export *) quarantine[QUARANTINE_COUNT];
static atomic_uint quarantine_next;

static void export_bury(struct export *export)
{
	unsigned int slot = atomic_fetch_add(&quarantine_next, 1) % QUARANTINE_COUNT;

	free(atomic_exchange(&quarantine[slot], export));
}

static void export_delete(struct export *export)
{
	if (atomic_exchange(&export->state, EXPORT_DEAD) == EXPORT_DEAD)
		return;
	export->tensor = tidl_tensor_unref(export->tensor);
	export_bury(export);
}

static void export_deleter(DLManagedTensorVersioned *managed)
{
	if (managed != NULL)
		export_delete(managed->manager_ctx);
}

static void export_deleter_legacy(DLManagedTensor *managed)
{
	if (managed != NULL)
		export_delete(managed->manager_ctx);
}

static void export_fill(struct export *export, DLTensor *dl)
{
	const struct tidl_tensor *tensor = export->tensor;

	memcpy(export->extents, tensor->extents, 2 * (size_t)tensor->ndim * sizeof(int64_t));
	*dl = (DLTensor){
		.data = tensor->data,
		.device = {.device_type = kDLCPU, .device_id = 0},
		.ndim = (int32_t)tensor->ndim,
		.dtype = {.code = tensor->dtype.code,
			  .bits = tensor->dtype.bits,
			  .lanes = tensor->dtype.lanes},
		.shape = export->extents,
		.strides = export->extents + tensor->ndim,
		.byte_offset = 0,
	};
}

static int export_new(struct tidl_tensor *tensor, struct export **ret_export,
		      struct tdp_fault *fault)
{
	/* Never without extents: consumers of before DLPack 1.3 read them at rank 0 too. */
	size_t extent_count = tensor->ndim > 0 ? 2 * (size_t)tensor->ndim : 1;
	struct export *export = calloc(1, sizeof(*export) + extent_count * sizeof(int64_t));

	if (export == NULL)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	atomic_init(&export->state, EXPORT_LIVE);
	export->tensor = tidl_tensor_ref(tensor);
	*ret_export = export;
	return 0;
}

int tdc_export(struct tidl_tensor *tensor, struct DLManagedTensorVersioned **ret_managed,
	       struct tdp_fault *fault)
{
	DLManagedTensorVersioned *managed;
	struct export *export;
	int r = export_new(tensor, &export, fault);

	if (r < 0)
		return r;
	managed = &export->managed.versioned;
	export_fill(export, &managed->dl_tensor);
	if (tensor->ndim == 0) {
		managed->dl_tensor.shape = NULL;
		managed->dl_tensor.strides = NULL;
	}
	/* What is used here is all in 1.1; a higher number would only make old consumers refuse. */
	managed->version = (DLPackVersion){.major = 1, .minor = 1};
	managed->manager_ctx = export;
	managed->deleter = export_deleter;
	managed->flags = tensor->flags & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED;
	if (tidl_tensor_is_readonly(tensor))
		managed->flags |= DLPACK_FLAG_BITMASK_READ_ONLY;
	*ret_managed = managed;
	return 0;
}

int tdc_export_legacy(struct tidl_tensor *tensor, uint32_t flags,
		      struct DLManagedTensor **ret_managed, struct tdp_fault *fault)
{
	DLManagedTensor *managed;
	struct export *export;
	int r;

	if (tidl_tensor_is_readonly(tensor) && (flags & TIDL_EXPORT_ALLOW_READONLY) == 0)
		return tdp_fault_set(fault, TIDL_ERR_READ_ONLY,
				     "an unversioned DLPack tensor cannot say that it is "
				     "read-only: attach with write or copy-on-write, or allow it");
	if ((tensor->flags & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED) != 0 &&
	    tdp_dtype_is_subbyte(tensor->dtype))
		return tdp_fault_set(fault, TIDL_ERR_DTYPE,
				     "an unversioned DLPack tensor cannot say that its elements of "
				     "less than a byte have a byte each: ask for a versioned one");
	r = export_new(tensor, &export, fault);
	if (r < 0)
		return r;
	managed = &export->managed.legacy;
	export_fill(export, &managed->dl_tensor);
	managed->manager_ctx = export;
	managed->deleter = export_deleter_legacy;
	*ret_managed = managed;
	return 0;
}
