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
	uint64_t padding_flag; /* DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED or 0 */
	atomic_int is_dead;
	int64_t dimensions[2 * TIDL_MAX_NDIM]; /* shape, then strides */
};

static void private_copy_free(struct private_copy *copy)
{
	free(copy->data);
	free(copy);
}

static void private_copy_delete(struct private_copy *copy)
{
	if (!tpy_is_first_deletion(&copy->is_dead))
		return;
	free(copy->data);
	tpy_bury(copy);
}

static void delete_versioned(DLManagedTensorVersioned *managed)
{
	private_copy_delete(managed->manager_ctx);
}

static void delete_legacy(DLManagedTensor *managed)
{
	private_copy_delete(managed->manager_ctx);
}

static void *data_alloc(size_t size_bytes)
{
	size_t rounded = (size_bytes + COPY_ALIGNMENT_BYTES - 1) / COPY_ALIGNMENT_BYTES;
	return aligned_alloc(COPY_ALIGNMENT_BYTES, rounded * COPY_ALIGNMENT_BYTES);
}

/* Only an export tells whether elements of less than a byte have a byte each. */
static int read_padding(const struct tpy_state *state, struct tidl_tensor *tensor,
			uint64_t *ret_flag)
{
	struct DLManagedTensorVersioned *managed = NULL;

	if (tpy_dtype_element_bits(tidl_tensor_dtype(tensor)) % 8 == 0)
		return 0;
	if (tpy_check(state, tidl_tensor_export(tensor, &managed)))
		return -1;
	*ret_flag = managed->flags & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED;
	managed->deleter(managed);
	return 0;
}

/* From one element to the next; 0 where elements end within a byte. With padding each lane has a
 * byte of its own. */
static size_t element_bytes(struct tidl_dtype dtype, int is_padded)
{
	int64_t bits = tpy_dtype_element_bits(dtype);

	if (is_padded)
		return dtype.lanes;
	return bits % 8 ? 0 : (size_t)bits / 8;
}

/*
 * Fills `copy->data` when the tensor is not empty. The GIL is given up meanwhile; the caller's
 * reference (TPY_HELD) keeps the tensor.
 */
static int copy_data(const struct tpy_state *state, struct tidl_tensor *tensor,
		     struct private_copy *copy)
{
	size_t step = element_bytes(tidl_tensor_dtype(tensor), copy->padding_flag != 0);
	int is_row_major = tpy_is_compact(tidl_tensor_ndim(tensor), tidl_tensor_shape(tensor),
					  tidl_tensor_strides(tensor));
	size_t size = tidl_tensor_nbytes(tensor);

	if (size == 0)
		return 0;
	if (!step && !is_row_major) {
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
		tpy_gather(tensor, step, copy->data);
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
	atomic_init(&copy->is_dead, 0);
	if (read_padding(state, tensor, &copy->padding_flag) || copy_data(state, tensor, copy)) {
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
	copy->versioned.flags = DLPACK_FLAG_BITMASK_IS_COPIED | copy->padding_flag;
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
	if (copy->padding_flag) {
		private_copy_free(copy);
		tpy_raise(state, TIDL_ERR_DTYPE,
			  "an unversioned DLPack tensor cannot say that its elements of less than "
			  "a byte have a byte each: ask for max_version=(1, 0)");
		return -1;
	}
	describe(tensor, copy, &copy->legacy.dl_tensor);
	copy->legacy.manager_ctx = copy;
	copy->legacy.deleter = delete_legacy;
	*ret_managed = &copy->legacy;
	return 0;
}
