/* SPDX-License-Identifier: Apache-2.0 */
/* A framework's tensor on its way in: everything in it is checked before any of it is used. */
#include "client/lib/import.h"

#include <stddef.h>

#include <dlpack/dlpack.h>

#include "proto/tensor/dtype.h"

enum { DLPACK_MAJOR_UNDERSTOOD = 1 };

static bool device_is_host(int32_t device_type)
{
	return device_type == kDLCPU || device_type == kDLCUDAHost || device_type == kDLROCMHost;
}

/* Turn the range relative to the first element into addresses. */
static int import_locate(struct tdc_import *import, uintptr_t first, int64_t begin_bytes,
			 int64_t end_bytes, struct tdp_fault *fault)
{
	if (__builtin_add_overflow(first, begin_bytes, &import->begin) ||
	    __builtin_add_overflow(first, end_bytes, &import->end) || import->begin > import->end)
		return tdp_fault_set(fault, TIDL_ERR_LAYOUT,
				     "the tensor reaches beyond the address space: check its "
				     "shape and strides");
	return 0;
}

static int import_check_fields(const DLTensor *dl, struct tdp_fault *fault)
{
	if (!device_is_host((int32_t)dl->device.device_type))
		return tdp_fault_set(fault, TIDL_ERR_DEVICE,
				     "the tensor lies on DLPack device type %d, but only host "
				     "memory can be shared: copy it to the CPU first",
				     (int)dl->device.device_type);
	if (dl->ndim < 0 || dl->ndim > TIDL_MAX_NDIM)
		return tdp_fault_set(fault, TIDL_ERR_LAYOUT,
				     "the tensor has rank %d, but 0 to %d are possible: reshape "
				     "it",
				     (int)dl->ndim, TIDL_MAX_NDIM);
	if (dl->ndim > 0 && dl->shape == NULL)
		return tdp_fault_set(fault, TIDL_ERR_LAYOUT,
				     "the tensor has a rank but no shape: its producer is broken");
	return 0;
}

static int import_tensor(const DLTensor *dl, uint64_t flags, struct tdc_import *ret_import,
			 struct tdp_fault *fault)
{
	struct tdc_import import = {
		.data = dl->data,
		.is_readonly = (flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0,
		.is_pinned = dl->device.device_type != kDLCPU,
	};
	int64_t begin_bytes;
	int64_t end_bytes;
	uintptr_t first;
	int r = import_check_fields(dl, fault);

	if (r < 0)
		return r;
	import.layout = (struct tdp_layout){
		.dtype = {.code = dl->dtype.code, .bits = dl->dtype.bits, .lanes = dl->dtype.lanes},
		.ndim = (uint32_t)dl->ndim,
		.shape = dl->shape,
		.strides = dl->strides,
		.flags = (uint32_t)(flags & TDP_LAYOUT_SUBBYTE_PADDED),
	};
	r = tdp_layout_measure(&import.layout, &begin_bytes, &end_bytes, &import.extent, fault);
	if (r < 0)
		return r;
	if (!import.extent.is_empty) {
		if (dl->data == NULL ||
		    __builtin_add_overflow((uintptr_t)dl->data, dl->byte_offset, &first))
			return tdp_fault_set(fault, TIDL_ERR_LAYOUT,
					     "the tensor has elements but no valid address: its "
					     "producer is broken");
		r = import_locate(&import, first, begin_bytes, end_bytes, fault);
		if (r < 0)
			return r;
		import.first = (const unsigned char *)first;
	}
	*ret_import = import;
	return 0;
}

int tdc_import(const struct DLManagedTensorVersioned *managed, struct tdc_import *ret_import,
	       struct tdp_fault *fault)
{
	if (managed->version.major > DLPACK_MAJOR_UNDERSTOOD)
		return tdp_fault_set(fault, TIDL_ERR_UNSUPPORTED,
				     "the tensor is of DLPack version %u, but only version %d is "
				     "understood: ask its producer for that one",
				     managed->version.major, DLPACK_MAJOR_UNDERSTOOD);
	return import_tensor(&managed->dl_tensor, managed->flags, ret_import, fault);
}

int tdc_import_legacy(const struct DLManagedTensor *managed, struct tdc_import *ret_import,
		      struct tdp_fault *fault)
{
	return import_tensor(&managed->dl_tensor, 0, ret_import, fault);
}
