/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensor.__dlpack__: a tensor handed to a framework as a capsule. Decides which capsule generation
 * and whether a private copy is wanted; libtidl makes the structures. A capsule that nobody
 * consumed calls its deleter when it is collected; a consumed one (renamed) does nothing.
 */
#include "client/python/src/_core/core.h"

/* What a consumer asked for. */
struct request {
	int is_versioned;
	int is_copy;
};

/*
 * Destructors. Neither the checks nor our deleters touch Python's error indicator, so an exception
 * that is on its way goes on undisturbed.
 */
static void capsule_delete_versioned(PyObject *capsule)
{
	if (!PyCapsule_IsValid(capsule, TPY_CAPSULE_VERSIONED))
		return;
	DLManagedTensorVersioned *managed = PyCapsule_GetPointer(capsule, TPY_CAPSULE_VERSIONED);
	PyThreadState *thread = PyEval_SaveThread();
	managed->deleter(managed);
	PyEval_RestoreThread(thread);
}

static void capsule_delete_legacy(PyObject *capsule)
{
	if (!PyCapsule_IsValid(capsule, TPY_CAPSULE_LEGACY))
		return;
	DLManagedTensor *managed = PyCapsule_GetPointer(capsule, TPY_CAPSULE_LEGACY);
	PyThreadState *thread = PyEval_SaveThread();
	managed->deleter(managed);
	PyEval_RestoreThread(thread);
}

PyObject *tpy_capsule_versioned(struct DLManagedTensorVersioned *steal)
{
	PyObject *capsule = PyCapsule_New(steal, TPY_CAPSULE_VERSIONED, capsule_delete_versioned);
	if (!capsule)
		steal->deleter(steal);
	return capsule;
}

PyObject *tpy_capsule_legacy(struct DLManagedTensor *steal)
{
	PyObject *capsule = PyCapsule_New(steal, TPY_CAPSULE_LEGACY, capsule_delete_legacy);
	if (!capsule)
		steal->deleter(steal);
	return capsule;
}

/* Host memory has no stream: None, or -1 for "do not synchronise". */
static int check_stream(PyObject *value)
{
	if (value == Py_None)
		return 0;
	if (PyBool_Check(value) || !PyLong_Check(value)) {
		PyErr_SetString(PyExc_TypeError, "stream must be None or an integer");
		return -1;
	}
	long stream = PyLong_AsLong(value);
	if (stream == -1 && !PyErr_Occurred())
		return 0;
	PyErr_Clear();
	PyErr_SetString(PyExc_ValueError, "host memory has no streams: pass stream=None");
	return -1;
}

static int parse_pair(PyObject *value, const char *what, long *ret_first, long *ret_second)
{
	if (!PyTuple_Check(value) || PyTuple_Size(value) != 2) {
		PyErr_Format(PyExc_TypeError, "%s must be None or a tuple of two integers", what);
		return -1;
	}
	*ret_first = PyLong_AsLong(PyTuple_GetItem(value, 0));
	if (*ret_first == -1 && PyErr_Occurred())
		return -1;
	PyObject *second = PyTuple_GetItem(value, 1);
	*ret_second = second == Py_None ? 0 : PyLong_AsLong(second); /* Paddle's device id */
	return *ret_second == -1 && PyErr_Occurred() ? -1 : 0;
}

/* Whatever the newest version a consumer knows, the capsule's own version tells it ours. */
static int parse_max_version(PyObject *value, int *ret_is_versioned)
{
	long major, minor;
	if (value == Py_None)
		return 0;
	if (parse_pair(value, "max_version", &major, &minor))
		return -1;
	*ret_is_versioned = major >= 1;
	return 0;
}

static int check_device(const struct tpy_state *state, PyObject *value)
{
	long type, id;
	if (value == Py_None)
		return 0;
	if (parse_pair(value, "dl_device", &type, &id))
		return -1;
	if (type == kDLCPU && id == 0)
		return 0;
	tpy_raise_format(state, TIDL_ERR_DEVICE,
			 "this tensor is in host memory and cannot be exported to device "
			 "(%ld, %ld); ask for (1, 0)",
			 type, id);
	return -1;
}

static int parse_copy(PyObject *value, int *ret_is_copy)
{
	if (value != Py_None && !PyBool_Check(value)) {
		PyErr_SetString(PyExc_TypeError, "copy must be True, False or None");
		return -1;
	}
	*ret_is_copy = value == Py_True;
	return 0;
}

static int parse_keyword(const struct tpy_state *state, PyObject *name, PyObject *value,
			 struct request *request)
{
	if (PyUnicode_CompareWithASCIIString(name, "stream") == 0)
		return check_stream(value);
	if (PyUnicode_CompareWithASCIIString(name, "max_version") == 0)
		return parse_max_version(value, &request->is_versioned);
	if (PyUnicode_CompareWithASCIIString(name, "dl_device") == 0)
		return check_device(state, value);
	if (PyUnicode_CompareWithASCIIString(name, "copy") == 0)
		return parse_copy(value, &request->is_copy);
	PyErr_Format(PyExc_TypeError, "__dlpack__() got an unexpected keyword argument '%U'", name);
	return -1;
}

static PyObject *export_versioned(const struct tpy_state *state, struct tidl_tensor *tensor,
				  int is_copy)
{
	struct DLManagedTensorVersioned *managed = NULL;
	if (is_copy ? tpy_copy_versioned(state, tensor, &managed)
		    : tpy_check(state, tidl_tensor_export(tensor, &managed)))
		return NULL;
	return tpy_capsule_versioned(managed);
}

static PyObject *export_legacy(const struct tpy_state *state, struct tidl_tensor *tensor,
			       int is_copy, uint32_t flags)
{
	struct DLManagedTensor *managed = NULL;
	if (is_copy ? tpy_copy_legacy(state, tensor, &managed)
		    : tpy_check(state, tidl_tensor_export_legacy(tensor, flags, &managed)))
		return NULL;
	return tpy_capsule_legacy(managed);
}

/* `flags` are those of tidl_tensor_export_legacy(). */
static PyObject *export_requested(PyObject *object, PyObject *const *args, Py_ssize_t args_count,
				  PyObject *keyword_names, uint32_t flags)
{
	struct tpy_tensor *self = (struct tpy_tensor *)object;
	struct request request = {0};
	Py_ssize_t keywords_count = keyword_names ? PyTuple_Size(keyword_names) : 0;

	if (args_count > 0) {
		PyErr_SetString(PyExc_TypeError, "__dlpack__() takes keyword arguments only");
		return NULL;
	}
	for (Py_ssize_t i = 0; i < keywords_count; i++) {
		if (parse_keyword(self->state, PyTuple_GetItem(keyword_names, i), args[i],
				  &request))
			return NULL;
	}
	TPY_HELD struct tidl_tensor *tensor = tpy_tensor_hold(self);
	if (!tensor)
		return NULL;
	if (request.is_versioned)
		return export_versioned(self->state, tensor, request.is_copy);
	return export_legacy(self->state, tensor, request.is_copy, flags);
}

PyObject *tpy_tensor_dlpack(PyObject *object, PyObject *const *args, Py_ssize_t args_count,
			    PyObject *keyword_names)
{
	return export_requested(object, args, args_count, keyword_names, 0);
}

/* For consumers that know the old capsule only, when the caller vouches that nobody writes. */
PyObject *tpy_tensor_dlpack_unflagged(PyObject *object, PyObject *const *args,
				      Py_ssize_t args_count, PyObject *keyword_names)
{
	return export_requested(object, args, args_count, keyword_names,
				TIDL_EXPORT_ALLOW_READONLY);
}

PyObject *tpy_tensor_dlpack_device(PyObject *object, PyObject *unused)
{
	(void)unused;
	TPY_HELD struct tidl_tensor *tensor = tpy_tensor_hold((struct tpy_tensor *)object);
	if (!tensor)
		return NULL;
	return Py_BuildValue("(ii)", (int)kDLCPU, 0);
}
