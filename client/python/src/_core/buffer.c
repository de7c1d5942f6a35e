/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tensor as a buffer (PEP 3118) and as NumPy's array interface. Each buffer holds a reference to
 * the tensor of its own and so outlives release(); a bare address cannot, which is why handing one
 * out keeps the memory mapped until the Python object goes.
 */
#include "client/python/src/_core/core.h"

#include <string.h>

/* What an exported Py_buffer points into. */
struct exported {
	struct tidl_tensor *tensor;
	Py_ssize_t shape[TIDL_MAX_NDIM];
	Py_ssize_t strides[TIDL_MAX_NDIM]; /* bytes */
};

/* Consumers may compare or offset the address of an empty buffer, but not with NULL. */
static _Alignas(64) char empty_buffer[1];

static int refuse(PyObject *object, int code, const char *sentence)
{
	tpy_raise(((struct tpy_tensor *)object)->state, code, sentence);
	return -1;
}

static int is_column_major(const struct exported *exported, int ndim, Py_ssize_t itemsize)
{
	Py_ssize_t expected = itemsize;
	for (int i = 0; i < ndim; i++) {
		if (exported->shape[i] > 1 && exported->strides[i] != expected)
			return 0;
		expected *= exported->shape[i];
	}
	return 1;
}

static int has_zero(const struct exported *exported, int ndim)
{
	for (int i = 0; i < ndim; i++) {
		if (exported->shape[i] == 0)
			return 1;
	}
	return 0;
}

/* Whether the layout is one that the consumer says it can take. */
static int is_layout_wanted(const struct exported *exported, const Py_buffer *view,
			    int is_row_major, int flags)
{
	if (has_zero(exported, view->ndim))
		return 1;
	int is_column = is_column_major(exported, view->ndim, view->itemsize);
	if ((flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS && !is_row_major)
		return 0;
	if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS && !is_column)
		return 0;
	if ((flags & PyBUF_ANY_CONTIGUOUS) == PyBUF_ANY_CONTIGUOUS && !is_row_major && !is_column)
		return 0;
	return is_row_major || (flags & PyBUF_STRIDES) == PyBUF_STRIDES;
}

static void view_fill(Py_buffer *view, struct exported *exported, int flags)
{
	struct tidl_tensor *tensor = exported->tensor;
	struct tidl_dtype dtype = tidl_tensor_dtype(tensor);
	void *data = tidl_tensor_data(tensor);

	memset(view, 0, sizeof(*view));
	view->buf = data ? data : empty_buffer;
	view->itemsize = (Py_ssize_t)(tpy_dtype_element_bits(dtype) / 8);
	view->len = (Py_ssize_t)tidl_tensor_nbytes(tensor);
	view->readonly = tidl_tensor_is_readonly(tensor) != 0;
	view->ndim = (int)tidl_tensor_ndim(tensor);
	for (int i = 0; i < view->ndim; i++) {
		exported->shape[i] = (Py_ssize_t)tidl_tensor_shape(tensor)[i];
		exported->strides[i] = (Py_ssize_t)tidl_tensor_strides(tensor)[i] * view->itemsize;
	}
	if (flags & PyBUF_FORMAT) {
		union {
			const char *constant;
			char *plain; /* as Py_buffer declares it; never written */
		} format = {.constant = tpy_dtype_format(dtype)};
		view->format = format.plain;
	}
	if ((flags & PyBUF_ND) == PyBUF_ND)
		view->shape = exported->shape;
	if ((flags & PyBUF_STRIDES) == PyBUF_STRIDES)
		view->strides = exported->strides;
	view->internal = exported;
}

static int view_check(PyObject *object, const Py_buffer *view, struct exported *exported, int flags)
{
	struct tidl_tensor *tensor = exported->tensor;
	int is_row_major = tpy_is_compact(tidl_tensor_ndim(tensor), tidl_tensor_shape(tensor),
					  tidl_tensor_strides(tensor));

	if ((flags & PyBUF_WRITABLE) && view->readonly)
		return refuse(
			object, TIDL_ERR_READ_ONLY,
			"the tensor was attached for reading; get it with access=\"write\" or "
			"\"copy_on_write\"");
	if (!is_layout_wanted(exported, view, is_row_major, flags))
		return refuse(object, TIDL_ERR_LAYOUT,
			      "the consumer asked for contiguous memory and the tensor is strided");
	return 0;
}

int tpy_tensor_getbuffer(PyObject *object, Py_buffer *view, int flags)
{
	struct tpy_tensor *self = (struct tpy_tensor *)object;
	TPY_HELD struct tidl_tensor *tensor = tpy_tensor_hold(self);

	view->obj = NULL;
	if (!tensor)
		return -1;
	if (!tpy_dtype_format(tidl_tensor_dtype(tensor)))
		return refuse(object, TIDL_ERR_DTYPE,
			      "Python's buffers have no format for this dtype; use DLPack "
			      "(to_torch(), to_paddle()), or publish it as an integer type");
	struct exported *exported = PyMem_Malloc(sizeof(*exported));
	if (!exported) {
		PyErr_NoMemory();
		return -1;
	}
	exported->tensor = tensor;
	view_fill(view, exported, flags);
	if (view_check(object, view, exported, flags)) {
		PyMem_Free(exported);
		return -1;
	}
	if (!view->shape)
		view->ndim = 1; /* plain bytes, as memoryview itself gives them */
	tidl_tensor_ref(tensor);
	view->obj = Py_NewRef(object);
	return 0;
}

void tpy_tensor_releasebuffer(PyObject *object, Py_buffer *view)
{
	struct exported *exported = view->internal;

	(void)object;
	PyThreadState *thread = PyEval_SaveThread();
	tidl_tensor_unref(exported->tensor);
	PyEval_RestoreThread(thread);
	PyMem_Free(exported);
}

static PyObject *byte_strides(struct tidl_tensor *tensor, int64_t itemsize)
{
	int64_t strides[TIDL_MAX_NDIM];
	uint32_t ndim = tidl_tensor_ndim(tensor);
	for (uint32_t i = 0; i < ndim; i++)
		strides[i] = tidl_tensor_strides(tensor)[i] * itemsize;
	return tpy_result_integers(ndim, strides);
}

PyObject *tpy_tensor_array_interface(PyObject *object, void *closure)
{
	struct tpy_tensor *self = (struct tpy_tensor *)object;
	TPY_HELD struct tidl_tensor *tensor = tpy_tensor_hold(self);

	(void)closure;
	if (!tensor)
		return NULL;
	struct tidl_dtype dtype = tidl_tensor_dtype(tensor);
	const char *typestr = tpy_dtype_typestr(dtype);
	if (!typestr) {
		/* AttributeError: hasattr() then says no, as it should. */
		PyErr_SetString(PyExc_AttributeError,
				"__array_interface__ has no type string for this dtype");
		return NULL;
	}
	if (!self->lent)
		self->lent = tidl_tensor_ref(tensor);
	void *data = tidl_tensor_data(tensor);
	return Py_BuildValue(
		"{s:i,s:s,s:N,s:N,s:(NN)}", "version", 3, "typestr", typestr, "shape",
		tpy_result_integers(tidl_tensor_ndim(tensor), tidl_tensor_shape(tensor)), "strides",
		byte_strides(tensor, tpy_dtype_element_bits(dtype) / 8), "data",
		PyLong_FromVoidPtr(data ? data : empty_buffer),
		PyBool_FromLong(tidl_tensor_is_readonly(tensor)));
}
