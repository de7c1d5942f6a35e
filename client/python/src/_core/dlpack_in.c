/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Somebody else's tensor as a DLPack structure that we own. Takes a Tensor of ours, a capsule of
 * either generation, an object with __dlpack__, or (buffer_in.c) a buffer. Whether memory may be
 * shared or has to be copied is libtidl's decision, not made here.
 */
#include "client/python/src/_core/core.h"

static int host_readable(long device_type)
{
	return device_type == kDLCPU || device_type == kDLCUDAHost || device_type == kDLROCMHost;
}

/* A newer major version has another layout behind `flags`: only the deleter may be touched. */
static int refuse_major(const struct tpy_state *state, struct tpy_source *source)
{
	unsigned major = source->versioned->version.major;
	tpy_source_discard(source);
	tpy_raise_class(state->unknown_kind_class,
			"the tensor is a DLPack %u structure and this version knows DLPack 1; "
			"update tidl",
			major);
	return -1;
}

/* Takes the structure out of the capsule, which is renamed so that it can never be used twice. */
static int take_capsule(const struct tpy_state *state, PyObject *capsule,
			struct tpy_source *ret_source)
{
	struct tpy_source source = {NULL, NULL};
	const char *used;

	if (PyCapsule_IsValid(capsule, TPY_CAPSULE_VERSIONED)) {
		source.versioned = PyCapsule_GetPointer(capsule, TPY_CAPSULE_VERSIONED);
		used = TPY_CAPSULE_VERSIONED_USED;
	} else if (PyCapsule_IsValid(capsule, TPY_CAPSULE_LEGACY)) {
		source.legacy = PyCapsule_GetPointer(capsule, TPY_CAPSULE_LEGACY);
		used = TPY_CAPSULE_LEGACY_USED;
	} else {
		const char *name = PyCapsule_GetName(capsule);
		tpy_raise_format(state, TIDL_ERR_INVALID_ARGUMENT,
				 "the capsule is named \"%s\", not \"" TPY_CAPSULE_LEGACY
				 "\" or \"" TPY_CAPSULE_VERSIONED
				 "\": it was used already, or holds no tensor",
				 name ? name : "");
		return -1;
	}
	if (PyCapsule_SetName(capsule, used) || PyCapsule_SetDestructor(capsule, NULL))
		return -1;
	if (source.versioned && source.versioned->version.major > DLPACK_MAJOR_VERSION)
		return refuse_major(state, &source);
	*ret_source = source;
	return 0;
}

/* The deleter may be Python code (ctypes), which must not meet the exception that led here. */
void tpy_source_discard(struct tpy_source *source)
{
	PyObject *error, *value, *traceback;

	PyErr_Fetch(&error, &value, &traceback);
	if (source->versioned && source->versioned->deleter)
		source->versioned->deleter(source->versioned);
	if (source->legacy && source->legacy->deleter)
		source->legacy->deleter(source->legacy);
	source->versioned = NULL;
	source->legacy = NULL;
	PyErr_Restore(error, value, traceback);
}

/*
 * Asks __dlpack_device__ first, so that no device memory is synchronised or exported in vain. What
 * cannot be asked is let through: the structure itself says it again.
 */
static int read_device(const struct tpy_state *state, PyObject *object, long *ret_type)
{
	PyObject *device = PyObject_CallMethod(object, "__dlpack_device__", NULL);
	long type = kDLCPU;

	if (device && PyTuple_Check(device) && PyTuple_Size(device) >= 1)
		type = PyLong_AsLong(PyTuple_GetItem(device, 0));
	Py_XDECREF(device);
	if (PyErr_Occurred()) {
		if (!tpy_is_refusal(state))
			return -1;
		PyErr_Clear();
		type = kDLCPU;
	}
	*ret_type = type;
	return 0;
}

static void refuse_device(const struct tpy_state *state, long type)
{
	static const char sentence[] =
		"memory of DLPack device type %ld cannot be shared by this version; copy the "
		"tensor to the host first, or pass copy=True";

	if (type == kDLCUDA || type == kDLCUDAManaged)
		tpy_raise_class(state->unknown_kind_class, sentence, type);
	else
		tpy_raise_format(state, TIDL_ERR_DEVICE, sentence, type);
}

/*
 * One call of __dlpack__; steals the keywords, NULL only for an error that is set. No stream: host
 * memory has none, and NumPy refuses any.
 */
static PyObject *call_dlpack(PyObject *method, PyObject *keywords)
{
	PyObject *none = PyTuple_New(0);
	PyObject *capsule = NULL;
	if (none && keywords)
		capsule = PyObject_Call(method, none, keywords);
	Py_XDECREF(none);
	Py_XDECREF(keywords);
	return capsule;
}

/* Older producers know no max_version. Anything but a TypeError is their answer. */
static PyObject *request_capsule(const struct tpy_state *state, PyObject *method)
{
	PyObject *capsule = call_dlpack(
		method, Py_BuildValue("{s:(ii)}", "max_version", DLPACK_MAJOR_VERSION, 3));
	if (capsule || !PyErr_ExceptionMatches(PyExc_TypeError) || !tpy_is_refusal(state))
		return capsule;
	PyErr_Clear();
	return call_dlpack(method, PyDict_New());
}

/* A copy on the host of a tensor elsewhere, by its own framework; in the words of DLPack 1.0. */
static PyObject *request_host_copy(const struct tpy_state *state, PyObject *object,
				   PyObject *method)
{
	PyObject *capsule = call_dlpack(method, Py_BuildValue("{s:(ii),s:(ii),s:O}", "max_version",
							      DLPACK_MAJOR_VERSION, 3, "dl_device",
							      kDLCPU, 0, "copy", Py_True));
	if (!capsule && tpy_is_refusal(state))
		tpy_raise_refusal(state, TIDL_ERR_DEVICE, object);
	return capsule;
}

/*
 * A producer that cannot say it in DLPack may still be able to say it as a buffer (NumPy's types
 * that DLPack lacks). Where neither has a word for the elements, it is their type.
 */
static int retry_as_buffer(struct tpy_state *state, PyObject *object, struct tpy_source *ret_source)
{
	if (!tpy_is_refusal(state))
		return -1;
	if (!PyObject_CheckBuffer(object)) {
		tpy_raise_refusal(state, TIDL_ERR_INVALID_ARGUMENT, object);
		return -1;
	}
	PyErr_Clear();
	return tpy_source_from_buffer(state, object, TIDL_ERR_DTYPE, ret_source);
}

static int take_answer(const struct tpy_state *state, PyObject *capsule,
		       struct tpy_source *ret_source)
{
	int result;
	if (PyCapsule_CheckExact(capsule)) {
		result = take_capsule(state, capsule, ret_source);
	} else {
		tpy_raise(state, TIDL_ERR_INVALID_ARGUMENT,
			  "the object's __dlpack__ did not return a capsule");
		result = -1;
	}
	Py_DECREF(capsule);
	return result;
}

static int open_producer(struct tpy_state *state, PyObject *object, PyObject *method, int may_copy,
			 struct tpy_source *ret_source)
{
	long device_type;
	PyObject *capsule;

	if (read_device(state, object, &device_type))
		return -1;
	if (host_readable(device_type)) {
		capsule = request_capsule(state, method);
		if (!capsule)
			return retry_as_buffer(state, object, ret_source);
		return take_answer(state, capsule, ret_source);
	}
	if (!may_copy) {
		refuse_device(state, device_type);
		return -1;
	}
	capsule = request_host_copy(state, object, method);
	return capsule ? take_answer(state, capsule, ret_source) : -1;
}

int tpy_source_open(struct tpy_state *state, PyObject *object, int may_copy,
		    struct tpy_source *ret_source)
{
	*ret_source = (struct tpy_source){NULL, NULL};
	if (PyObject_TypeCheck(object, state->tensor_type)) {
		TPY_HELD struct tidl_tensor *tensor = tpy_tensor_hold((struct tpy_tensor *)object);
		if (!tensor)
			return -1;
		return tpy_check(state, tidl_tensor_export(tensor, &ret_source->versioned));
	}
	if (PyCapsule_CheckExact(object))
		return take_capsule(state, object, ret_source);

	PyObject *method = PyObject_GetAttrString(object, "__dlpack__");
	if (method) {
		int result = open_producer(state, object, method, may_copy, ret_source);
		Py_DECREF(method);
		return result;
	}
	if (!PyErr_ExceptionMatches(PyExc_AttributeError))
		return -1;
	PyErr_Clear();
	return tpy_source_from_buffer(state, object, TIDL_ERR_INVALID_ARGUMENT, ret_source);
}
