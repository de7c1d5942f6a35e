/* SPDX-License-Identifier: Apache-2.0 */
/*
 * __dlpack__(copy=True): a private, row-major, writable copy in ordinary memory of this process.
 * The copy belongs to its consumer and holds nothing of the shared tensor.
 */
#include "client/python/src/_core/core.h"

#include <stdlib.h>
#include <string.h>

/* What the strictest consumer on the host (XLA, Eigen) wants. */
#define COPY_ALIGNMENT_BYTES 256

/* One allocation for the structure and its arrays, another for the data. */
struct private_copy {
	DLManagedTensorVersioned versioned;
	DLManagedTensor legacy;
	void *data;
	int64_t dimensions[2 * TIDL_MAX_NDIM]; /* shape, then strides */
};

static void private_copy_free(struct private_copy *copy)
{
	free(copy->data);
	free(copy);
}

static void delete_versioned(DLManagedTensorVersioned *managed)
{
	private_copy_free(managed->manager_ctx);
}

static void delete_legacy(DLManagedTensor *managed)
{
	private_copy_free(managed->manager_ctx);
}

static void *data_alloc(size_t size_bytes)
{
	size_t rounded = (size_bytes + COPY_ALIGNMENT_BYTES - 1) / COPY_ALIGNMENT_BYTES;
	return aligned_alloc(COPY_ALIGNMENT_BYTES, rounded * COPY_ALIGNMENT_BYTES);
}

/*
 * Fills `copy->data` when the tensor is not empty. The GIL is given up meanwhile; the caller's
 * reference (TPY_HELD) keeps the tensor.
 */
static int copy_data(const struct tpy_state *state, struct tidl_tensor *tensor,
		     struct private_copy *copy)
{
	int64_t element_bits = tpy_dtype_element_bits(tidl_tensor_dtype(tensor));
	int is_row_major = tpy_is_compact(tidl_tensor_ndim(tensor), tidl_tensor_shape(tensor),
					  tidl_tensor_strides(tensor));
	size_t size = tidl_tensor_nbytes(tensor);

	if (size == 0)
		return 0;
	if (element_bits % 8 && !is_row_major) {
		tpy_raise(state, TIDL_ERR_LAYOUT,
			  "a strided view of packed elements cannot be copied; copy the whole "
			  "tensor");
		return -1;
	}
	copy->data = data_alloc(size);
	if (!copy->data) {
		tpy_raise(state, TIDL_ERR_NO_MEMORY, "no memory for a private copy of the tensor");
		return -1;
	}
	PyThreadState *thread = PyEval_SaveThread();
	if (is_row_major)
		memcpy(copy->data, tidl_tensor_data(tensor), size);
	else
		tpy_gather(tensor, (size_t)element_bits / 8, copy->data);
	PyEval_RestoreThread(thread);
	return 0;
}

static void describe(const struct tidl_tensor *tensor, struct private_copy *copy,
		     DLTensor *ret_description)
{
	struct tidl_dtype dtype = tidl_tensor_dtype(tensor);
	uint32_t ndim = tidl_tensor_ndim(tensor);
	int64_t *shape = copy->dimensions;
	int64_t *strides = copy->dimensions + TIDL_MAX_NDIM;

	if (ndim)
		memcpy(shape, tidl_tensor_shape(tensor), ndim * sizeof(*shape));
	tpy_compact_strides(ndim, shape, strides);
	*ret_description = (DLTensor){
		.data = copy->data,
		.device = {kDLCPU, 0},
		.ndim = (int32_t)ndim,
		.dtype = {dtype.code, dtype.bits, dtype.lanes},
		.shape = shape,
		.strides = strides,
	};
}

static struct private_copy *private_copy_new(const struct tpy_state *state,
					     struct tidl_tensor *tensor)
{
	struct private_copy *copy = calloc(1, sizeof(*copy));
	if (!copy) {
		PyErr_NoMemory();
		return NULL;
	}
	if (copy_data(state, tensor, copy)) {
		private_copy_free(copy);
		return NULL;
	}
	return copy;
}

int tpy_copy_versioned(const struct tpy_state *state, struct tidl_tensor *tensor,
		       struct DLManagedTensorVersioned **ret_managed)
{
	struct private_copy *copy = private_copy_new(state, tensor);
	if (!copy)
		return -1;
	describe(tensor, copy, &copy->versioned.dl_tensor);
	copy->versioned.version = (DLPackVersion){1, 1};
	copy->versioned.flags = DLPACK_FLAG_BITMASK_IS_COPIED;
	copy->versioned.manager_ctx = copy;
	copy->versioned.deleter = delete_versioned;
	*ret_managed = &copy->versioned;
	return 0;
}

int tpy_copy_legacy(const struct tpy_state *state, struct tidl_tensor *tensor,
		    struct DLManagedTensor **ret_managed)
{
	struct private_copy *copy = private_copy_new(state, tensor);
	if (!copy)
		return -1;
	describe(tensor, copy, &copy->legacy.dl_tensor);
	copy->legacy.manager_ctx = copy;
	copy->legacy.deleter = delete_legacy;
	*ret_managed = &copy->legacy;
	return 0;
}
