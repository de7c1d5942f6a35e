/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An export whose end can be seen from Python. Paddle keys its imports by address and breaks when
 * one address is imported twice at once; its adapter asks the Watch whether the first is over. The
 * deleter touches no Python object, so it may run on any thread and after the interpreter.
 */
#include "client/python/src/_core/core.h"

#include <stdlib.h>

/* Shared by the export and the Watch; freed by the last of the two. */
struct export_state {
	atomic_int references;
	atomic_int is_alive;
};

struct watched_export {
	DLManagedTensorVersioned outer;
	DLManagedTensorVersioned *inner; /* libtidl's export: owns shape and strides */
	struct export_state *state;
	atomic_int is_dead;
};

struct tpy_watch {
	PyObject_HEAD struct export_state *state;
};

static void export_state_unref(struct export_state *state)
{
	if (state && atomic_fetch_sub(&state->references, 1) == 1)
		free(state);
}

static void watched_delete(DLManagedTensorVersioned *managed)
{
	struct watched_export *export = managed->manager_ctx;
	if (!tpy_is_first_deletion(&export->is_dead))
		return;
	export->inner->deleter(export->inner);
	atomic_store(&export->state->is_alive, 0);
	export_state_unref(export->state);
	tpy_bury(export);
}

static struct export_state *export_state_new(void)
{
	struct export_state *state = malloc(sizeof(*state));
	if (!state)
		return NULL;
	atomic_init(&state->references, 2);
	atomic_init(&state->is_alive, 1);
	return state;
}

/* Takes over `inner` and one of the two references of `state`. */
static DLManagedTensorVersioned *watched_new(DLManagedTensorVersioned *inner,
					     struct export_state *state)
{
	struct watched_export *export = malloc(sizeof(*export));
	if (!export)
		return NULL;
	export->outer = *inner;
	export->outer.manager_ctx = export;
	export->outer.deleter = watched_delete;
	export->inner = inner;
	export->state = state;
	atomic_init(&export->is_dead, 0);
	return &export->outer;
}

static PyObject *watch_get_alive(PyObject *object, void *closure)
{
	(void)closure;
	return PyBool_FromLong(atomic_load(&((struct tpy_watch *)object)->state->is_alive));
}

static void watch_dealloc(PyObject *object)
{
	PyTypeObject *type = Py_TYPE(object);
	export_state_unref(((struct tpy_watch *)object)->state);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
	Py_DECREF(type);
}

static PyGetSetDef watch_getset[] = {
	{"alive", watch_get_alive, NULL, "whether the export's deleter has yet to run", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static char watch_doc[] = "Tells whether one DLPack export is still in use.";

static PyType_Slot watch_slots[] = {
	{Py_tp_doc, watch_doc},
	{Py_tp_dealloc, watch_dealloc},
	{Py_tp_getset, watch_getset},
	{0, NULL},
};

static PyType_Spec watch_spec = {
	.name = "tidl._core.Watch",
	.basicsize = sizeof(struct tpy_watch),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = watch_slots,
};

PyTypeObject *tpy_watch_type_new(PyObject *module)
{
	return (PyTypeObject *)PyType_FromModuleAndSpec(module, &watch_spec, NULL);
}

static struct tpy_watch *watch_alloc(struct tpy_state *state)
{
	allocfunc alloc = (allocfunc)PyType_GetSlot(state->watch_type, Py_tp_alloc);
	return (struct tpy_watch *)alloc(state->watch_type, 0);
}

PyObject *tpy_tensor_export_watched(PyObject *object, PyObject *unused)
{
	struct tpy_tensor *self = (struct tpy_tensor *)object;
	TPY_HELD struct tidl_tensor *tensor = tpy_tensor_hold(self);
	DLManagedTensorVersioned *inner = NULL;

	(void)unused;
	if (!tensor || tpy_check(self->state, tidl_tensor_export(tensor, &inner)))
		return NULL;
	struct tpy_watch *watch = watch_alloc(self->state);
	struct export_state *state = watch ? export_state_new() : NULL;
	DLManagedTensorVersioned *outer = state ? watched_new(inner, state) : NULL;
	if (!outer) {
		free(state);
		Py_XDECREF((PyObject *)watch);
		inner->deleter(inner);
		return PyErr_NoMemory();
	}
	watch->state = state;
	PyObject *capsule = tpy_capsule_versioned(outer);
	if (!capsule) {
		Py_DECREF(watch);
		return NULL;
	}
	return Py_BuildValue("(NN)", capsule, watch);
}
