/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `_core.Events`: a watch. Each look at it counts as a call on its client, so that closing that
 * ends the look first. Its own close() wakes readers, and the last of them frees it.
 */
#include "client/python/src/_core/core.h"

struct tpy_events {
	PyObject_HEAD struct tpy_state *state;
	struct tpy_client *client;
	struct tidl_watch *handle; /* NULL once freed */
	unsigned calls_count;	   /* looks now inside libtidl */
	int is_closing;
};

static void events_free_handle(struct tpy_events *self)
{
	struct tidl_watch *handle = self->handle;

	self->handle = NULL;
	tidl_unwatch(handle);
}

static struct tpy_events *events_new(struct tpy_client *client)
{
	PyTypeObject *type = client->state->events_type;
	allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
	struct tpy_events *self = (struct tpy_events *)alloc(type, 0);

	if (!self)
		return NULL;
	self->state = client->state;
	self->client = (struct tpy_client *)Py_NewRef((PyObject *)client);
	return self;
}

/* watch(pattern, kinds, key) */
PyObject *tpy_client_watch(PyObject *object, PyObject *args)
{
	struct tpy_client *client = (struct tpy_client *)object;
	struct tidl_watch_options options = {.size = sizeof(options)};
	const char *pattern;
	unsigned long long key;

	if (!PyArg_ParseTuple(args, "sIK:watch", &pattern, &options.kinds, &key))
		return NULL;
	struct tpy_events *self = events_new(client);
	if (!self)
		return NULL;
	struct tidl_client *handle = tpy_client_enter(client);
	if (!handle) {
		Py_DECREF(self);
		return NULL;
	}
	PyThreadState *thread = PyEval_SaveThread();
	int result = tidl_watch(handle, pattern, &options, &self->handle);
	PyEval_RestoreThread(thread);
	int is_failed = tpy_client_check(client, result);
	if (!is_failed)
		tidl_watch_set_key(self->handle, key);
	tpy_client_leave(client);
	if (is_failed)
		Py_CLEAR(self);
	return (PyObject *)self;
}

static PyObject *event_to_python(const struct tidl_event *event)
{
	int has_holder = event->attach != 0;

	return Py_BuildValue(
		"{s:s,s:N,s:k,s:K,s:N,s:N,s:N}", "kind", tidl_event_kind_name(event->kind), "name",
		event->name[0] ? tpy_result_text(event->name) : Py_NewRef(Py_None), "owner",
		(unsigned long)event->owner_uid, "generation",
		(unsigned long long)event->generation, "holder_uid",
		has_holder ? PyLong_FromUnsignedLong(event->holder_uid) : Py_NewRef(Py_None),
		"holder_pid",
		has_holder ? PyLong_FromLongLong(event->holder_pid) : Py_NewRef(Py_None), "access",
		has_holder ? tpy_result_text(tidl_attach_name(event->attach)) : Py_NewRef(Py_None));
}

/* Without the GIL unless there is nothing to wait for. */
static int events_look(struct tpy_events *self, long long timeout_ms, struct tidl_event *event)
{
	self->calls_count++;
	PyThreadState *thread = PyEval_SaveThread();
	int result = tidl_watch_next(self->handle, timeout_ms, event);
	PyEval_RestoreThread(thread);
	self->calls_count--;
	return result;
}

/* next(timeout_ms) -> dict, or None when none came in time. A closed one raises CANCELLED. */
static PyObject *events_next(PyObject *object, PyObject *argument)
{
	struct tpy_events *self = (struct tpy_events *)object;
	struct tidl_event event = {.size = sizeof(event)};
	long long timeout_ms = PyLong_AsLongLong(argument);

	if (timeout_ms == -1 && PyErr_Occurred())
		return NULL;
	if (self->is_closing || !self->handle) {
		tpy_raise(self->state, TIDL_ERR_CANCELLED,
			  "this watch was closed; open another one with client.watch()");
		return NULL;
	}
	if (!tpy_client_enter(self->client))
		return NULL;
	int result = events_look(self, timeout_ms, &event);
	int is_failed = result != TIDL_ERR_TIMEOUT && tpy_client_check(self->client, result);
	if (self->is_closing && self->calls_count == 0)
		events_free_handle(self);
	tpy_client_leave(self->client);
	/* Ctrl-C may have come just as an event did. */
	if (is_failed || PyErr_Occurred())
		return NULL;
	return result == TIDL_ERR_TIMEOUT ? Py_NewRef(Py_None) : event_to_python(&event);
}

static PyObject *events_close(PyObject *object, PyObject *unused)
{
	struct tpy_events *self = (struct tpy_events *)object;

	(void)unused;
	if (self->is_closing || !self->handle)
		Py_RETURN_NONE;
	self->is_closing = 1;
	if (self->calls_count == 0)
		events_free_handle(self);
	else
		tidl_watch_stop(self->handle);
	Py_RETURN_NONE;
}

static PyObject *events_get_closed(PyObject *object, void *closure)
{
	struct tpy_events *self = (struct tpy_events *)object;

	(void)closure;
	return PyBool_FromLong(self->is_closing || !self->handle);
}

static void events_dealloc(PyObject *object)
{
	struct tpy_events *self = (struct tpy_events *)object;
	PyTypeObject *type = Py_TYPE(object);

	if (self->handle)
		events_free_handle(self);
	Py_XDECREF((PyObject *)self->client);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
	Py_DECREF(type);
}

static PyMethodDef events_methods[] = {
	{"next", events_next, METH_O, "next(timeout_ms) -> dict or None"},
	{"close", events_close, METH_NOARGS, "close() -> None"},
	{NULL, NULL, 0, NULL},
};

static PyGetSetDef events_getset[] = {
	{"closed", events_get_closed, NULL, "whether close() was called", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static char events_doc[] = "Events of names. Made by Client.watch().";

static PyType_Slot events_slots[] = {
	{Py_tp_doc, events_doc},
	{Py_tp_dealloc, events_dealloc},
	{Py_tp_methods, events_methods},
	{Py_tp_getset, events_getset},
	{0, NULL},
};

static PyType_Spec events_spec = {
	.name = "tidl._core.Events",
	.basicsize = sizeof(struct tpy_events),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = events_slots,
};

PyTypeObject *tpy_events_type_new(PyObject *module)
{
	return (PyTypeObject *)PyType_FromModuleAndSpec(module, &events_spec, NULL);
}
