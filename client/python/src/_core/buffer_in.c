/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A Python buffer (array.array, memoryview, bytes, a NumPy array of an old release) dressed as a
 * DLPack structure. It holds the buffer until the deleter runs, on whatever thread that is.
 */
#include "client/python/src/_core/core.h"

#include <stdlib.h>

struct buffer_source {
	DLManagedTensorVersioned managed;
	Py_buffer view;
	int64_t shape[TIDL_MAX_NDIM];
	int64_t strides[TIDL_MAX_NDIM]; /* elements */
};

static void buffer_source_delete(DLManagedTensorVersioned *managed)
{
	struct buffer_source *source = managed->manager_ctx;
	if (Py_IsInitialized()) {
		PyGILState_STATE gil = PyGILState_Ensure();
		PyBuffer_Release(&source->view);
		PyGILState_Release(gil);
	}
	free(source);
}

static int refuse(const struct tpy_state *state, int code, const char *sentence)
{
	tpy_raise(state, code, sentence);
	return -1;
}

/* Some exporters (ctypes) leave the strides out although they were asked for: row-major, then. */
static int convert_layout(const struct tpy_state *state, struct buffer_source *source)
{
	const Py_buffer *view = &source->view;

	if (view->suboffsets || view->ndim > TIDL_MAX_NDIM || (view->ndim > 0 && !view->shape))
		return refuse(state, TIDL_ERR_LAYOUT,
			      "the buffer has indirect rows, no shape or too many dimensions; pass "
			      "numpy.ascontiguousarray(obj)");
	for (int i = 0; i < view->ndim; i++)
		source->shape[i] = view->shape[i];
	if (!view->strides) {
		tpy_compact_strides((uint32_t)view->ndim, source->shape, source->strides);
		return 0;
	}
	for (int i = 0; i < view->ndim; i++) {
		if (view->shape[i] > 1 && view->strides[i] % view->itemsize)
			return refuse(state, TIDL_ERR_LAYOUT,
				      "a stride is not a whole number of elements; pass "
				      "numpy.ascontiguousarray(obj)");
		source->strides[i] = view->strides[i] / view->itemsize;
	}
	return 0;
}

static int describe(const struct tpy_state *state, struct buffer_source *source)
{
	struct tidl_dtype dtype;
	const Py_buffer *view = &source->view;

	const char *format = view->format ? view->format : "B";

	if (tpy_dtype_from_format(format, view->itemsize, &dtype)) {
		tpy_raise_format(state, TIDL_ERR_DTYPE,
				 "elements of format '%s' cannot be shared: numbers in native byte "
				 "order, bool and complex can",
				 format);
		return -1;
	}
	if (convert_layout(state, source))
		return -1;
	source->managed.version = (DLPackVersion){1, 1};
	source->managed.manager_ctx = source;
	source->managed.deleter = buffer_source_delete;
	source->managed.flags = view->readonly ? DLPACK_FLAG_BITMASK_READ_ONLY : 0;
	source->managed.dl_tensor = (DLTensor){
		.data = view->buf,
		.device = {kDLCPU, 0},
		.ndim = view->ndim,
		.dtype = {dtype.code, dtype.bits, dtype.lanes},
		.shape = source->shape,
		.strides = source->strides,
	};
	return 0;
}

static int open_buffer(const struct tpy_state *state, PyObject *object, int refusal_code,
		       Py_buffer *view)
{
	if (PyObject_GetBuffer(object, view, PyBUF_RECORDS_RO) == 0)
		return 0;
	if (tpy_is_refusal(state))
		tpy_raise_refusal(state, refusal_code, object);
	return -1;
}

/* `refusal_code` is for an object that will not give its buffer. */
int tpy_source_from_buffer(struct tpy_state *state, PyObject *object, int refusal_code,
			   struct tpy_source *ret_source)
{
	if (!PyObject_CheckBuffer(object)) {
		tpy_raise_class(
			state->no_tensor_class,
			"%R is no tensor: pass an object with __dlpack__, a DLPack capsule, "
			"a NumPy array, a buffer, or a mapping of names to those, such as a "
			"state_dict()",
			(PyObject *)Py_TYPE(object));
		return -1;
	}
	struct buffer_source *source = calloc(1, sizeof(*source));
	if (!source) {
		PyErr_NoMemory();
		return -1;
	}
	if (open_buffer(state, object, refusal_code, &source->view)) {
		free(source);
		return -1;
	}
	if (describe(state, source)) {
		PyBuffer_Release(&source->view);
		free(source);
		return -1;
	}
	ret_source->versioned = &source->managed;
	return 0;
}
