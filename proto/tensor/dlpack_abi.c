/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compile-time proof that DLPack's header, whichever was found, has the binary layout and the
 * numbers that this project relies on. Makes no code.
 */
#include <stddef.h>
#include <stdint.h>

#include <dlpack/dlpack.h>

#include "proto/tensor/layout.h"

#define ABI_SIZE(type, size) _Static_assert(sizeof(type) == (size), "size of " #type)
#define ABI_FIELD(type, field, offset)                                                             \
	_Static_assert(offsetof(type, field) == (offset), "offset of " #field " in " #type)
#define ABI_VALUE(name, value) _Static_assert((name) == (value), "value of " #name)

_Static_assert(sizeof(void *) == 8, "64-bit only");
_Static_assert(DLPACK_MAJOR_VERSION == 1 && DLPACK_MINOR_VERSION >= 1, "DLPack 1.1 or newer");

ABI_SIZE(DLDevice, 8);
ABI_FIELD(DLDevice, device_type, 0);
ABI_FIELD(DLDevice, device_id, 4);

ABI_SIZE(DLDataType, 4);
ABI_FIELD(DLDataType, code, 0);
ABI_FIELD(DLDataType, bits, 1);
ABI_FIELD(DLDataType, lanes, 2);

ABI_SIZE(DLTensor, 48);
ABI_FIELD(DLTensor, data, 0);
ABI_FIELD(DLTensor, device, 8);
ABI_FIELD(DLTensor, ndim, 16);
ABI_FIELD(DLTensor, dtype, 20);
ABI_FIELD(DLTensor, shape, 24);
ABI_FIELD(DLTensor, strides, 32);
ABI_FIELD(DLTensor, byte_offset, 40);

ABI_SIZE(DLManagedTensor, 64);
ABI_FIELD(DLManagedTensor, dl_tensor, 0);
ABI_FIELD(DLManagedTensor, manager_ctx, 48);
ABI_FIELD(DLManagedTensor, deleter, 56);

ABI_SIZE(DLPackVersion, 8);
ABI_FIELD(DLPackVersion, major, 0);
ABI_FIELD(DLPackVersion, minor, 4);

ABI_SIZE(DLManagedTensorVersioned, 80);
ABI_FIELD(DLManagedTensorVersioned, version, 0);
ABI_FIELD(DLManagedTensorVersioned, manager_ctx, 8);
ABI_FIELD(DLManagedTensorVersioned, deleter, 16);
ABI_FIELD(DLManagedTensorVersioned, flags, 24);
ABI_FIELD(DLManagedTensorVersioned, dl_tensor, 32);

ABI_SIZE(struct tidl_dtype, sizeof(DLDataType));
ABI_FIELD(struct tidl_dtype, code, offsetof(DLDataType, code));
ABI_FIELD(struct tidl_dtype, bits, offsetof(DLDataType, bits));
ABI_FIELD(struct tidl_dtype, lanes, offsetof(DLDataType, lanes));

ABI_VALUE(DLPACK_FLAG_BITMASK_READ_ONLY, 1UL << 0);
ABI_VALUE(DLPACK_FLAG_BITMASK_IS_COPIED, 1UL << 1);
ABI_VALUE(DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED, TDP_LAYOUT_SUBBYTE_PADDED);

ABI_VALUE(kDLCPU, 1);
ABI_VALUE(kDLCUDA, 2);
ABI_VALUE(kDLCUDAHost, 3);
ABI_VALUE(kDLROCMHost, 11);

/* The codes of dtype.c. */
ABI_VALUE(kDLInt, 0);
ABI_VALUE(kDLUInt, 1);
ABI_VALUE(kDLFloat, 2);
ABI_VALUE(kDLOpaqueHandle, 3);
ABI_VALUE(kDLBfloat, 4);
ABI_VALUE(kDLComplex, 5);
ABI_VALUE(kDLBool, 6);
ABI_VALUE(kDLFloat8_e3m4, 7);
ABI_VALUE(kDLFloat8_e4m3, 8);
ABI_VALUE(kDLFloat8_e4m3b11fnuz, 9);
ABI_VALUE(kDLFloat8_e4m3fn, 10);
ABI_VALUE(kDLFloat8_e4m3fnuz, 11);
ABI_VALUE(kDLFloat8_e5m2, 12);
ABI_VALUE(kDLFloat8_e5m2fnuz, 13);
ABI_VALUE(kDLFloat8_e8m0fnu, 14);
ABI_VALUE(kDLFloat6_e2m3fn, 15);
ABI_VALUE(kDLFloat6_e3m2fn, 16);
ABI_VALUE(kDLFloat4_e2m1fn, 17);
