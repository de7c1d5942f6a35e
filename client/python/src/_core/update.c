/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `_core.Update`: what `with tensor.update():` enters and leaves. In C because Python looks for
 * signals wherever a function of its own begins and after each call: Ctrl-C would come between the
 * beginning of an update and the block, or before its end, and leave it open for good. It has a
 * reference of its own, so that a tensor released inside the block does no such harm either.
 */
#include "client/python/src/_core/core.h"

struct tpy_update {
	PyObject_HEAD struct tpy_state *state;
	struct tidl_tensor *handle;
	int takes_over;
};

/* update(take_over) */
PyObject *tpy_tensor_update(PyObject *object, PyObject *takes_over)
{
	struct tpy_tensor *tensor = (struct tpy_tensor *)object;
	TPY_HELD struct tidl_tensor *handle = tpy_tensor_hold(tensor);
	int is_taking = PyObject_IsTrue(takes_over);

	if (!handle || is_taking < 0)
		return NULL;
	PyTypeObject *type = tensor->state->update_type;
	allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
	struct tpy_update *self = (struct tpy_update *)alloc(type, 0);
	if (!self)
		return NULL;
	self->state = tensor->state;
	self->handle = tidl_tensor_ref(handle);
	self->takes_over = is_taking;
	return (PyObject *)self;
}

static PyObject *update_enter(PyObject *object, PyObject *unused)
{
	struct tpy_update *self = (struct tpy_update *)object;
	uint64_t step = 0;

	(void)unused;
	PyThreadState *thread = PyEval_SaveThread();
	int result = tidl_update_begin(self->handle, self->takes_over ? TIDL_UPDATE_TAKE_OVER : 0);
	if (result == 0)
		(void)tidl_step(self->handle, &step);
	PyEval_RestoreThread(thread);
	if (tpy_check(self->state, result))
		return NULL;
	PyObject *number = PyLong_FromUnsignedLongLong(step + 1);
	if (!number)
		(void)tidl_update_end(self->handle, NULL);
	return number;
}

/* After an error too: what was written until then cannot be taken back, and readers wait. */
static PyObject *update_exit(PyObject *object, PyObject *error)
{
	struct tpy_update *self = (struct tpy_update *)object;

	(void)error;
	PyThreadState *thread = PyEval_SaveThread();
	int result = tidl_update_end(self->handle, NULL);
	PyEval_RestoreThread(thread);
	if (tpy_check(self->state, result))
		return NULL;
	Py_RETURN_NONE;
}

static void update_dealloc(PyObject *object)
{
	struct tpy_update *self = (struct tpy_update *)object;
	PyTypeObject *type = Py_TYPE(object);

	PyThreadState *thread = PyEval_SaveThread();
	tidl_tensor_unref(self->handle);
	PyEval_RestoreThread(thread);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
	Py_DECREF(type);
}

static PyMethodDef update_methods[] = {
	{"__enter__", update_enter, METH_NOARGS,
	 "Begins it. Returns the number of the step that the end of the block completes."},
	{"__exit__", update_exit, METH_VARARGS, "Completes the step."},
	{NULL, NULL, 0, NULL},
};

static char update_doc[] = "A step in the making: what `with tensor.update():` enters. Made by "
			   "`Tensor.update()`.";

static PyType_Slot update_slots[] = {
	{Py_tp_doc, update_doc},
	{Py_tp_dealloc, update_dealloc},
	{Py_tp_methods, update_methods},
	{0, NULL},
};

static PyType_Spec update_spec = {
	.name = "tidl.Update",
	.basicsize = sizeof(struct tpy_update),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = update_slots,
};

PyTypeObject *tpy_update_type_new(PyObject *module)
{
	return (PyTypeObject *)PyType_FromModuleAndSpec(module, &update_spec, NULL);
}
