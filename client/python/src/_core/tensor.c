/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `_core.Tensor`: one reference to a tensor in shared memory, and its description. The package
 * derives the public class from it. Exports (capsules, buffers) hold references of their own, so
 * release() never unmaps memory under them.
 */
#include "client/python/src/_core/core.h"

#include <string.h>

PyObject *tpy_tensor_wrap(struct tpy_state *state, PyTypeObject *type, struct tidl_tensor *steal)
{
	allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
	struct tpy_tensor *self = (struct tpy_tensor *)alloc(type, 0);
	if (!self) {
		tidl_tensor_unref(steal);
		return NULL;
	}
	self->state = state;
	self->handle = steal;
	return (PyObject *)self;
}

/* A new reference for TPY_HELD, or NULL with RELEASED raised. */
struct tidl_tensor *tpy_tensor_hold(struct tpy_tensor *self)
{
	if (self->handle)
		return tidl_tensor_ref(self->handle);
	tpy_raise(self->state, TIDL_ERR_RELEASED,
		  "this tensor was released; get it again by its name");
	return NULL;
}

/* Keeps the GIL: hardly ever the last reference, and every property comes by here. */
void tpy_tensor_unhold(struct tidl_tensor **tensor)
{
	tidl_tensor_unref(*tensor);
}

static PyObject *tensor_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
	(void)type, (void)args, (void)keywords;
	PyErr_SetString(PyExc_TypeError,
			"tensors come from client.empty(), zeros(), full() and get() only");
	return NULL;
}

static void drop(struct tidl_tensor *tensor)
{
	if (!tensor)
		return;
	/* The last reference unmaps, which takes time for large tensors. */
	PyThreadState *thread = PyEval_SaveThread();
	tidl_tensor_unref(tensor);
	PyEval_RestoreThread(thread);
}

static PyObject *tensor_release(PyObject *object, PyObject *unused)
{
	struct tpy_tensor *self = (struct tpy_tensor *)object;
	struct tidl_tensor *handle = self->handle;

	(void)unused;
	self->handle = NULL;
	drop(handle);
	Py_RETURN_NONE;
}

static void tensor_dealloc(PyObject *object)
{
	struct tpy_tensor *self = (struct tpy_tensor *)object;
	PyTypeObject *type = Py_TYPE(object);

	drop(self->handle);
	drop(self->lent);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
	Py_DECREF(type);
}

/*
 * Fills a tensor that empty() just made (row-major, writable) with one element's bytes, doubling
 * the filled part: the cost is that of one pass.
 */
static void fill_pattern(char *data, size_t total, const char *pattern, size_t pattern_bytes)
{
	memcpy(data, pattern, pattern_bytes);
	for (size_t filled = pattern_bytes; filled < total;) {
		size_t step = filled < total - filled ? filled : total - filled;
		memcpy(data + filled, data, step);
		filled += step;
	}
}

static PyObject *tensor_fill(PyObject *object, PyObject *pattern)
{
	struct tpy_tensor *self = (struct tpy_tensor *)object;
	TPY_HELD struct tidl_tensor *handle = tpy_tensor_hold(self);
	char *bytes;
	Py_ssize_t size;

	if (!handle || PyBytes_AsStringAndSize(pattern, &bytes, &size))
		return NULL;
	size_t total = tidl_tensor_nbytes(handle);
	if (tidl_tensor_is_readonly(handle) || size < 1 || total % (size_t)size ||
	    !tpy_is_compact(tidl_tensor_ndim(handle), tidl_tensor_shape(handle),
			    tidl_tensor_strides(handle))) {
		PyErr_SetString(PyExc_ValueError, "only whole elements into a fresh tensor");
		return NULL;
	}
	if (total == 0)
		Py_RETURN_NONE;
	PyThreadState *thread = PyEval_SaveThread();
	fill_pattern(tidl_tensor_data(handle), total, bytes, (size_t)size);
	PyEval_RestoreThread(thread);
	Py_RETURN_NONE;
}

static PyObject *tensor_copy_on_write(PyObject *object, PyObject *unused)
{
	struct tpy_tensor *self = (struct tpy_tensor *)object;
	TPY_HELD struct tidl_tensor *handle = tpy_tensor_hold(self);
	struct tidl_tensor *writable = NULL;

	(void)unused;
	if (!handle)
		return NULL;
	PyThreadState *thread = PyEval_SaveThread();
	int result = tidl_tensor_copy_on_write(handle, &writable);
	PyEval_RestoreThread(thread);
	if (tpy_check(self->state, result))
		return NULL;
	return tpy_tensor_wrap(self->state, Py_TYPE(object), writable);
}

static PyObject *tensor_map_at(PyObject *object, PyObject *args)
{
	struct tpy_tensor *self = (struct tpy_tensor *)object;
	unsigned long long address;
	Py_ssize_t size_bytes;

	if (!PyArg_ParseTuple(args, "Kn:_map_at", &address, &size_bytes))
		return NULL;
	TPY_HELD struct tidl_tensor *handle = tpy_tensor_hold(self);
	if (!handle)
		return NULL;
	PyThreadState *thread = PyEval_SaveThread();
	int result = tidl_tensor_map_at(handle, (void *)(uintptr_t)address, (size_t)size_bytes);
	PyEval_RestoreThread(thread);
	if (tpy_check(self->state, result))
		return NULL;
	Py_RETURN_NONE;
}

static PyObject *published_as(const struct tidl_tensor *tensor)
{
	enum tidl_access access = tidl_tensor_access(tensor);

	/* What nobody can attach has no access yet, unless its seals have decided already. */
	if (access == TIDL_ACCESS_SHARED && tidl_tensor_generation(tensor) == 0)
		Py_RETURN_NONE;
	return tpy_result_text(tidl_access_name(access));
}

/* Defines a read-only property that needs a live tensor: `expression` is a PyObject *. */
#define TENSOR_PROPERTY(property, expression)                                                      \
	static PyObject *tensor_get_##property(PyObject *object, void *closure)                    \
	{                                                                                          \
		TPY_HELD struct tidl_tensor *tensor =                                              \
			tpy_tensor_hold((struct tpy_tensor *)object);                              \
		(void)closure;                                                                     \
		return tensor ? (expression) : NULL;                                               \
	}

TENSOR_PROPERTY(shape, tpy_result_integers(tidl_tensor_ndim(tensor), tidl_tensor_shape(tensor)))
TENSOR_PROPERTY(strides, tpy_result_integers(tidl_tensor_ndim(tensor), tidl_tensor_strides(tensor)))
TENSOR_PROPERTY(dtype, tpy_dtype_to_python(tidl_tensor_dtype(tensor)))
TENSOR_PROPERTY(nbytes, PyLong_FromUnsignedLongLong(tidl_tensor_nbytes(tensor)))
TENSOR_PROPERTY(name, tpy_result_text(tidl_tensor_name(tensor)))
TENSOR_PROPERTY(key, tpy_result_text(tidl_tensor_key(tensor)))
TENSOR_PROPERTY(generation, PyLong_FromUnsignedLongLong(tidl_tensor_generation(tensor)))
TENSOR_PROPERTY(readonly, PyBool_FromLong(tidl_tensor_is_readonly(tensor)))
TENSOR_PROPERTY(access, tpy_result_text(tidl_attach_name(tidl_tensor_attach(tensor))))
TENSOR_PROPERTY(published_as, published_as(tensor))
TENSOR_PROPERTY(owner, PyLong_FromUnsignedLong(tidl_tensor_owner_uid(tensor)))
TENSOR_PROPERTY(metadata_json, tpy_result_text(tidl_tensor_metadata(tensor)))
TENSOR_PROPERTY(address, PyLong_FromVoidPtr(tidl_tensor_data(tensor)))

TENSOR_PROPERTY(broker, tpy_result_broker(tidl_tensor_broker(tensor)))

/* Keeps the generation at the broker for a while, for who unpickles it. */
static PyObject *tensor_pin(PyObject *object, PyObject *unused)
{
	struct tpy_tensor *self = (struct tpy_tensor *)object;
	TPY_HELD struct tidl_tensor *handle = tpy_tensor_hold(self);

	(void)unused;
	if (!handle)
		return NULL;
	PyThreadState *thread = PyEval_SaveThread();
	int result = tidl_tensor_pin(handle);
	PyEval_RestoreThread(thread);
	return tpy_check(self->state, result) ? NULL : Py_NewRef(Py_None);
}

static PyObject *tensor_get_released(PyObject *object, void *closure)
{
	(void)closure;
	return PyBool_FromLong(!((struct tpy_tensor *)object)->handle);
}

static PyMethodDef tensor_methods[] = {
	{"release", tensor_release, METH_NOARGS,
	 "release() -> None\n\n"
	 "Lets go of the memory; using the tensor afterwards raises ReleasedError. Arrays and "
	 "tensors "
	 "of frameworks made from it stay valid: the memory is unmapped, and the lease on it ends, "
	 "with the last of them. Calling it again does nothing."},
	{"_pin", tensor_pin, METH_NOARGS, "_pin() -> None"},
	{"commit", tpy_tensor_commit, METH_NOARGS,
	 "commit() -> int\n\n"
	 "Completes a step for what was written without update(), and wakes who waits for it. "
	 "Returns its number. Waiting processes are served as well as by an update; read() is not, "
	 "since it cannot notice what is written outside of one."},
	{"_update", tpy_tensor_update, METH_O, "_update(take_over) -> Update"},
	{"_update_begin", tpy_tensor_update_begin, METH_O, "_update_begin(take_over) -> None"},
	{"_update_end", tpy_tensor_update_end, METH_NOARGS, "_update_end() -> int"},
	{"_wait_step", tpy_tensor_wait_step, METH_VARARGS, "_wait_step(step, timeout_ms) -> int"},
	{"_snapshot", tpy_tensor_snapshot, METH_VARARGS, "_snapshot(buffer, timeout_ms) -> int"},
	{"_fill", tensor_fill, METH_O, "_fill(element) -> None"},
	{"_copy_on_write", tensor_copy_on_write, METH_NOARGS,
	 "_copy_on_write() -> a tensor over private pages of the same, immutable memory"},
	{"_map_at", tensor_map_at, METH_VARARGS,
	 "_map_at(address, size_bytes) -> None\n\n"
	 "Replaces the caller's own pages there by the tensor's."},
	{"_export_watched", tpy_tensor_export_watched, METH_NOARGS,
	 "_export_watched() -> (capsule, Watch)"},
	{"_dlpack_unflagged", (PyCFunction)(void (*)(void))tpy_tensor_dlpack_unflagged,
	 METH_FASTCALL | METH_KEYWORDS,
	 "__dlpack__(), but gives unversioned capsules of read-only memory too"},
	{"__dlpack__", (PyCFunction)(void (*)(void))tpy_tensor_dlpack,
	 METH_FASTCALL | METH_KEYWORDS,
	 "__dlpack__(*, stream=None, max_version=None, dl_device=None, copy=None)\n\n"
	 "A capsule over the same memory; with copy=True over a private copy. torch, Paddle and "
	 "Taichi ignore the flag of read-only memory: what they import from a tensor attached for "
	 "reading ends the process with SIGSEGV when it is written to."},
	{"__dlpack_device__", tpy_tensor_dlpack_device, METH_NOARGS,
	 "__dlpack_device__() -> (device type, device id)"},
	{NULL, NULL, 0, NULL},
};

static PyGetSetDef tensor_getset[] = {
	{"shape", tensor_get_shape, NULL, "extents in elements, a tuple", NULL},
	{"strides", tensor_get_strides, NULL, "steps in elements, a tuple", NULL},
	{"dtype", tensor_get_dtype, NULL, "name of the data type", NULL},
	{"nbytes", tensor_get_nbytes, NULL, "elements times element size", NULL},
	{"name", tensor_get_name, NULL, "path in its owner's namespace, or None", NULL},
	{"key", tensor_get_key, NULL, "path in a bundle, or None", NULL},
	{"generation", tensor_get_generation, NULL, "its generation, 0 if unpublished", NULL},
	{"readonly", tensor_get_readonly, NULL, "whether it is mapped for reading only", NULL},
	{"access", tensor_get_access, NULL, "read, write or copy_on_write", NULL},
	{"published_as", tensor_get_published_as, NULL,
	 "shared, live or immutable; None: unpublished", NULL},
	{"owner", tensor_get_owner, NULL, "uid of the owner", NULL},
	{"released", tensor_get_released, NULL, "whether release() was called", NULL},
	{"step", tpy_tensor_step, NULL,
	 "how many steps are complete: of its memory, which tensors may share", NULL},
	{"_metadata_json", tensor_get_metadata_json, NULL, "metadata as text, or None", NULL},
	{"_address", tensor_get_address, NULL, "address of the first element, or None", NULL},
	{"_broker", tensor_get_broker, NULL, "the broker it came from, a dict", NULL},
	{"__array_interface__", tpy_tensor_array_interface, NULL, "NumPy's array interface", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static char tensor_doc[] = "A tensor in shared memory. Made by Client.";

static PyType_Slot tensor_slots[] = {
	{Py_tp_doc, tensor_doc},
	{Py_tp_new, tensor_new},
	{Py_tp_dealloc, tensor_dealloc},
	{Py_tp_methods, tensor_methods},
	{Py_tp_getset, tensor_getset},
	{Py_bf_getbuffer, tpy_tensor_getbuffer},
	{Py_bf_releasebuffer, tpy_tensor_releasebuffer},
	{0, NULL},
};

static PyType_Spec tensor_spec = {
	.name = "tidl._core.Tensor",
	.basicsize = sizeof(struct tpy_tensor),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
	.slots = tensor_slots,
};

PyTypeObject *tpy_tensor_type_new(PyObject *module)
{
	return (PyTypeObject *)PyType_FromModuleAndSpec(module, &tensor_spec, NULL);
}
