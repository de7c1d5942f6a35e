/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `_core.Draft`, a bundle that is being put together, and `_core.Bundle`, one that is attached.
 * Both are flat: keys are whole paths. The package makes and reads the nesting.
 */
#include "client/python/src/_core/core.h"

/* ---- drafts ---- */

struct tpy_draft {
	PyObject_HEAD struct tpy_state *state;
	struct tidl_draft *handle;
	int may_copy; /* producers may be asked for copies on the host */
};

PyObject *tpy_draft_open(struct tpy_state *state, int may_copy)
{
	allocfunc alloc = (allocfunc)PyType_GetSlot(state->draft_type, Py_tp_alloc);
	struct tpy_draft *self = (struct tpy_draft *)alloc(state->draft_type, 0);
	if (!self)
		return NULL;
	self->state = state;
	self->may_copy = may_copy;
	if (tpy_check(state, tidl_draft_new(&self->handle))) {
		Py_DECREF(self);
		return NULL;
	}
	return (PyObject *)self;
}

struct tidl_draft *tpy_draft_handle(struct tpy_state *state, PyObject *object)
{
	if (!PyObject_TypeCheck(object, state->draft_type))
		return NULL;
	return ((struct tpy_draft *)object)->handle;
}

static PyObject *draft_add(PyObject *object, PyObject *args)
{
	struct tpy_draft *self = (struct tpy_draft *)object;
	struct tpy_source source;
	PyObject *tensor;
	const char *key;
	int result;

	if (!PyArg_ParseTuple(args, "sO:add", &key, &tensor) ||
	    tpy_source_open(self->state, tensor, self->may_copy, &source))
		return NULL;
	if (tpy_source_keep(&source)) {
		tpy_source_discard(&source);
		return NULL;
	}
	if (source.versioned)
		result = tidl_draft_add(self->handle, key, source.versioned);
	else
		result = tidl_draft_add_legacy(self->handle, key, source.legacy);
	if (tpy_check(self->state, result)) {
		tpy_source_discard(&source);
		return NULL;
	}
	Py_RETURN_NONE;
}

static PyObject *draft_add_mapping(PyObject *object, PyObject *key)
{
	struct tpy_draft *self = (struct tpy_draft *)object;
	const char *text = PyUnicode_AsUTF8AndSize(key, NULL);

	if (!text || tpy_check(self->state, tidl_draft_add_mapping(self->handle, text)))
		return NULL;
	Py_RETURN_NONE;
}

/*
 * Calls the producers' deleters. They may be Python code, or free Python's memory and rely on the
 * caller for the GIL, and must not meet an exception.
 */
static void draft_dealloc(PyObject *object)
{
	struct tpy_draft *self = (struct tpy_draft *)object;
	PyTypeObject *type = Py_TYPE(object);
	PyObject *error, *value, *traceback;

	PyErr_Fetch(&error, &value, &traceback);
	tidl_draft_free(self->handle);
	PyErr_Restore(error, value, traceback);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
	Py_DECREF(type);
}

static PyMethodDef draft_methods[] = {
	{"add", draft_add, METH_VARARGS, "add(key, obj) -> None"},
	{"add_mapping", draft_add_mapping, METH_O, "add_mapping(key) -> None"},
	{NULL, NULL, 0, NULL},
};

static char draft_doc[] = "A bundle that is being put together. Made by draft().";

static PyType_Slot draft_slots[] = {
	{Py_tp_doc, draft_doc},
	{Py_tp_dealloc, draft_dealloc},
	{Py_tp_methods, draft_methods},
	{0, NULL},
};

static PyType_Spec draft_spec = {
	.name = "tidl._core.Draft",
	.basicsize = sizeof(struct tpy_draft),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = draft_slots,
};

PyTypeObject *tpy_draft_type_new(PyObject *module)
{
	return (PyTypeObject *)PyType_FromModuleAndSpec(module, &draft_spec, NULL);
}

/* ---- bundles ---- */

/* One reference to a tidl_bundle; NULL after release(). */
struct tpy_bundle {
	PyObject_HEAD struct tpy_state *state;
	PyObject *result_type; /* subclass of Tensor that tensor() makes */
	struct tidl_bundle *handle;
};

PyObject *tpy_bundle_wrap(struct tpy_state *state, PyObject *result_type, struct tidl_bundle *steal)
{
	allocfunc alloc = (allocfunc)PyType_GetSlot(state->bundle_type, Py_tp_alloc);
	struct tpy_bundle *self = (struct tpy_bundle *)alloc(state->bundle_type, 0);
	if (!self) {
		tidl_bundle_unref(steal);
		return NULL;
	}
	self->state = state;
	self->result_type = Py_NewRef(result_type);
	self->handle = steal;
	return (PyObject *)self;
}

static void bundle_drop(struct tidl_bundle *bundle)
{
	if (!bundle)
		return;
	PyThreadState *thread = PyEval_SaveThread();
	tidl_bundle_unref(bundle);
	PyEval_RestoreThread(thread);
}

static void bundle_unhold(struct tidl_bundle **bundle)
{
	tidl_bundle_unref(*bundle);
}

/* As TPY_HELD of tensors: release() may come in between. */
#define BUNDLE_HELD __attribute__((cleanup(bundle_unhold)))

static struct tidl_bundle *bundle_hold(PyObject *object)
{
	struct tpy_bundle *self = (struct tpy_bundle *)object;

	if (self->handle)
		return tidl_bundle_ref(self->handle);
	tpy_raise(self->state, TIDL_ERR_RELEASED,
		  "this bundle was released; get it again by its name");
	return NULL;
}

static PyObject *bundle_release(PyObject *object, PyObject *unused)
{
	struct tpy_bundle *self = (struct tpy_bundle *)object;
	struct tidl_bundle *handle = self->handle;

	(void)unused;
	self->handle = NULL;
	bundle_drop(handle);
	Py_RETURN_NONE;
}

static void bundle_dealloc(PyObject *object)
{
	struct tpy_bundle *self = (struct tpy_bundle *)object;
	PyTypeObject *type = Py_TYPE(object);

	PyObject_GC_UnTrack(object);
	bundle_drop(self->handle);
	Py_CLEAR(self->result_type);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
	Py_DECREF(type);
}

static int bundle_traverse(PyObject *object, visitproc visit, void *arg)
{
	Py_VISIT(Py_TYPE(object));
	Py_VISIT(((struct tpy_bundle *)object)->result_type);
	return 0;
}

static PyObject *bundle_keys(PyObject *object, PyObject *unused)
{
	BUNDLE_HELD struct tidl_bundle *bundle = bundle_hold(object);
	PyObject *list = NULL;
	size_t count;

	(void)unused;
	if (!bundle)
		return NULL;
	count = tidl_bundle_count(bundle);
	list = PyList_New((Py_ssize_t)count);
	for (size_t i = 0; list && i < count; i++) {
		PyObject *key = tpy_result_text(tidl_bundle_key(bundle, i));
		if (!key || PyList_SetItem(list, (Py_ssize_t)i, key))
			Py_CLEAR(list);
	}
	return list;
}

static PyObject *bundle_mappings(PyObject *object, PyObject *unused)
{
	BUNDLE_HELD struct tidl_bundle *bundle = bundle_hold(object);
	PyObject *list = NULL;
	size_t count;

	(void)unused;
	if (!bundle)
		return NULL;
	count = tidl_bundle_mapping_count(bundle);
	list = PyList_New((Py_ssize_t)count);
	for (size_t i = 0; list && i < count; i++) {
		size_t position;
		const char *key = tidl_bundle_mapping(bundle, i, &position);
		PyObject *pair = Py_BuildValue("(Nn)", tpy_result_text(key), (Py_ssize_t)position);
		if (!pair || PyList_SetItem(list, (Py_ssize_t)i, pair))
			Py_CLEAR(list);
	}
	return list;
}

static PyObject *bundle_tensor(PyObject *object, PyObject *index)
{
	struct tpy_bundle *self = (struct tpy_bundle *)object;
	BUNDLE_HELD struct tidl_bundle *bundle = bundle_hold(object);
	struct tidl_tensor *tensor;
	size_t position;

	if (!bundle)
		return NULL;
	position = PyLong_AsSize_t(index);
	if (PyErr_Occurred() ||
	    tpy_check(self->state, tidl_bundle_tensor(bundle, position, &tensor)))
		return NULL;
	return tpy_tensor_wrap(self->state, (PyTypeObject *)self->result_type, tensor);
}

/* Defines a read-only property that needs a live bundle: `expression` is a PyObject *. */
#define BUNDLE_PROPERTY(property, expression)                                                      \
	static PyObject *bundle_get_##property(PyObject *object, void *closure)                    \
	{                                                                                          \
		BUNDLE_HELD struct tidl_bundle *bundle = bundle_hold(object);                      \
		(void)closure;                                                                     \
		return bundle ? (expression) : NULL;                                               \
	}

BUNDLE_PROPERTY(name, tpy_result_text(tidl_bundle_name(bundle)))
BUNDLE_PROPERTY(generation, PyLong_FromUnsignedLongLong(tidl_bundle_generation(bundle)))
BUNDLE_PROPERTY(access, tpy_result_text(tidl_attach_name(tidl_bundle_attach(bundle))))
BUNDLE_PROPERTY(owner, PyLong_FromUnsignedLong(tidl_bundle_owner_uid(bundle)))
BUNDLE_PROPERTY(nbytes, PyLong_FromUnsignedLongLong(tidl_bundle_nbytes(bundle)))
BUNDLE_PROPERTY(segment_count, PyLong_FromSize_t(tidl_bundle_segment_count(bundle)))
BUNDLE_PROPERTY(metadata_json, tpy_result_text(tidl_bundle_metadata(bundle)))

BUNDLE_PROPERTY(broker, tpy_result_broker(tidl_bundle_broker(bundle)))

static PyObject *bundle_pin(PyObject *object, PyObject *unused)
{
	struct tpy_bundle *self = (struct tpy_bundle *)object;
	BUNDLE_HELD struct tidl_bundle *bundle = bundle_hold(object);

	(void)unused;
	if (!bundle)
		return NULL;
	PyThreadState *thread = PyEval_SaveThread();
	int result = tidl_bundle_pin(bundle);
	PyEval_RestoreThread(thread);
	return tpy_check(self->state, result) ? NULL : Py_NewRef(Py_None);
}

static PyObject *bundle_get_released(PyObject *object, void *closure)
{
	(void)closure;
	return PyBool_FromLong(!((struct tpy_bundle *)object)->handle);
}

static PyMethodDef bundle_methods[] = {
	{"keys", bundle_keys, METH_NOARGS, "keys() -> list of the tensors' paths"},
	{"mappings", bundle_mappings, METH_NOARGS, "mappings() -> list of (path, position)"},
	{"tensor", bundle_tensor, METH_O, "tensor(index) -> Tensor"},
	{"_pin", bundle_pin, METH_NOARGS, "_pin() -> None"},
	{"release", bundle_release, METH_NOARGS, "release() -> None"},
	{NULL, NULL, 0, NULL},
};

static PyGetSetDef bundle_getset[] = {
	{"name", bundle_get_name, NULL, NULL, NULL},
	{"generation", bundle_get_generation, NULL, NULL, NULL},
	{"access", bundle_get_access, NULL, NULL, NULL},
	{"owner", bundle_get_owner, NULL, NULL, NULL},
	{"nbytes", bundle_get_nbytes, NULL, NULL, NULL},
	{"segment_count", bundle_get_segment_count, NULL, NULL, NULL},
	{"metadata_json", bundle_get_metadata_json, NULL, NULL, NULL},
	{"_broker", bundle_get_broker, NULL, NULL, NULL},
	{"released", bundle_get_released, NULL, NULL, NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static char bundle_doc[] = "An attached bundle, flat. Made by Client.get().";

static PyType_Slot bundle_slots[] = {
	{Py_tp_doc, bundle_doc},	   {Py_tp_dealloc, bundle_dealloc},
	{Py_tp_traverse, bundle_traverse}, {Py_tp_methods, bundle_methods},
	{Py_tp_getset, bundle_getset},	   {0, NULL},
};

static PyType_Spec bundle_spec = {
	.name = "tidl._core.Bundle",
	.basicsize = sizeof(struct tpy_bundle),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = bundle_slots,
};

PyTypeObject *tpy_bundle_type_new(PyObject *module)
{
	return (PyTypeObject *)PyType_FromModuleAndSpec(module, &bundle_spec, NULL);
}
