/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `_core.Client`: one connection as a Python object. Opens it, counts the calls that are inside
 * libtidl, and frees it when the last of them has left after close(). Knows nothing of what the
 * calls do: see client_calls.c.
 */
#include "client/python/src/_core/core.h"

#include <unistd.h>

/* Runs in a waiting thread after a signal. A KeyboardInterrupt stays pending in that thread. */
static int interrupt_wait(void *context)
{
	(void)context;
	PyGILState_STATE gil = PyGILState_Ensure();
	/* The second time a KeyboardInterrupt may be pending, and no handler runs on top of it. */
	int is_interrupted = PyErr_Occurred() || PyErr_CheckSignals() != 0;
	PyGILState_Release(gil);
	return is_interrupted;
}

/* Warns of memory that stays shared; -1 where warnings are errors. */
static int client_disconnect(struct tpy_client *self)
{
	struct tidl_client *handle = self->handle;
	self->handle = NULL;
	PyThreadState *thread = PyEval_SaveThread();
	int result = tidl_disconnect(handle);
	PyEval_RestoreThread(thread);
	return result < 0 ? PyErr_WarnEx(PyExc_RuntimeWarning, tidl_last_error(), 1) : 0;
}

/* The same where nothing can be raised, perhaps with an exception on its way. */
static void client_disconnect_aside(struct tpy_client *self)
{
	PyObject *type, *value, *trace;

	PyErr_Fetch(&type, &value, &trace);
	if (client_disconnect(self))
		PyErr_WriteUnraisable((PyObject *)Py_TYPE((PyObject *)self));
	PyErr_Restore(type, value, trace);
}

/* A forked child has one thread: the calls of its parent's other threads never return here. */
static void forget_calls_of_parent(struct tpy_client *self)
{
	pid_t pid = getpid();
	if (self->owner_pid == pid)
		return;
	self->owner_pid = pid;
	self->calls_count = 0;
}

/* Counts one call in. Returns the handle, or NULL with CLOSED raised. */
struct tidl_client *tpy_client_enter(struct tpy_client *self)
{
	forget_calls_of_parent(self);
	if (self->is_closing || !self->handle) {
		tpy_raise(self->state, TIDL_ERR_CLOSED,
			  "this client was closed; open another one with tidl.connect()");
		return NULL;
	}
	self->calls_count++;
	return self->handle;
}

/* Counts it out again. Called with or without a pending exception; raises none itself. */
void tpy_client_leave(struct tpy_client *self)
{
	self->calls_count--;
	if (self->is_closing && self->calls_count == 0)
		client_disconnect_aside(self);
}

/* tpy_check(), but a connection that close() ended in another thread is CLOSED. */
int tpy_client_check(struct tpy_client *self, int result)
{
	if (self->is_closing && result <= TIDL_ERR_NO_BROKER)
		tpy_raise(self->state, TIDL_ERR_CLOSED,
			  "this client was closed by another thread while the call was waiting");
	return tpy_check(self->state, result);
}

static struct tpy_client *client_alloc(struct tpy_state *state, PyObject *result_type)
{
	allocfunc alloc = (allocfunc)PyType_GetSlot(state->client_type, Py_tp_alloc);
	struct tpy_client *self = (struct tpy_client *)alloc(state->client_type, 0);
	if (!self)
		return NULL;
	self->state = state;
	self->result_type = Py_NewRef(result_type);
	self->owner_pid = getpid();
	return self;
}

static int check_result_type(struct tpy_state *state, PyObject *type)
{
	if (PyType_Check(type) && PyType_IsSubtype((PyTypeObject *)type, state->tensor_type))
		return 0;
	PyErr_SetString(PyExc_TypeError, "result_type must be a subclass of tidl._core.Tensor");
	return -1;
}

PyObject *tpy_client_open(struct tpy_state *state, PyObject *args)
{
	PyObject *result_type;
	long long timeout_ms;
	int can_autostart;
	struct tidl_connect_options options = {.size = sizeof(options)};

	if (!PyArg_ParseTuple(args, "OzzzLp:connect", &result_type, &options.address,
			      &options.client_name, &options.daemon_path, &timeout_ms,
			      &can_autostart))
		return NULL;
	if (check_result_type(state, result_type))
		return NULL;
	options.timeout_ms = timeout_ms;
	options.no_autostart = !can_autostart;
	options.interrupt_handler = interrupt_wait;

	struct tpy_client *self = client_alloc(state, result_type);
	if (!self)
		return NULL;
	PyThreadState *thread = PyEval_SaveThread();
	int result = tidl_connect(&options, &self->handle);
	PyEval_RestoreThread(thread);
	if (tpy_check(state, result)) {
		Py_DECREF(self);
		return NULL;
	}
	return (PyObject *)self;
}

/* Ends the connection and the calls of other threads at once; the last of them frees the handle. */
static PyObject *client_close(PyObject *object, PyObject *unused)
{
	struct tpy_client *self = (struct tpy_client *)object;

	(void)unused;
	forget_calls_of_parent(self);
	if (self->is_closing || !self->handle)
		Py_RETURN_NONE;
	self->is_closing = 1;
	if (self->calls_count == 0) {
		if (client_disconnect(self))
			return NULL;
		Py_RETURN_NONE;
	}
	tidl_close(self->handle);
	Py_RETURN_NONE;
}

static PyObject *client_get_closed(PyObject *object, void *closure)
{
	struct tpy_client *self = (struct tpy_client *)object;
	(void)closure;
	return PyBool_FromLong(self->is_closing || !self->handle);
}

static int client_traverse(PyObject *object, visitproc visit, void *arg)
{
	Py_VISIT(Py_TYPE(object));
	Py_VISIT(((struct tpy_client *)object)->result_type);
	return 0;
}

static int client_clear(PyObject *object)
{
	Py_CLEAR(((struct tpy_client *)object)->result_type);
	return 0;
}

static void client_dealloc(PyObject *object)
{
	struct tpy_client *self = (struct tpy_client *)object;
	PyTypeObject *type = Py_TYPE(object);

	PyObject_GC_UnTrack(object);
	if (self->handle)
		client_disconnect_aside(self);
	client_clear(object);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
	Py_DECREF(type);
}

static PyMethodDef client_methods[] = {
	{"close", client_close, METH_NOARGS, "close() -> None"},
	{"empty", tpy_client_empty, METH_VARARGS, "empty(shape, dtype) -> Tensor"},
	{"numpy_allocator", tpy_client_numpy_allocator, METH_VARARGS,
	 "numpy_allocator(array_api, min_bytes) -> NumpyAllocator"},
	{"publish", tpy_client_publish, METH_VARARGS,
	 "publish(name, obj, access, copy, retention, retain_ms, mode, group, replace, keep, "
	 "expose, metadata, blocks, nobody_writes, writable) -> dict"},
	{"get", tpy_client_get, METH_VARARGS,
	 "get(name, attach, timeout_ms, generation, newer_than, keys)"},
	{"get_begin", tpy_client_get_begin, METH_VARARGS,
	 "get_begin(name, attach, is_waiting, generation, newer_than, keys, key) -> Pending"},
	{"wait", tpy_client_wait, METH_VARARGS,
	 "wait(name, timeout_ms, newer_than, released, generation) -> int"},
	{"wait_begin", tpy_client_wait_begin, METH_VARARGS,
	 "wait_begin(name, newer_than, released, generation, key) -> Pending"},
	{"watch", tpy_client_watch, METH_VARARGS, "watch(pattern, kinds, key) -> Events"},
	{"pin", tpy_client_pin, METH_VARARGS, "pin(name, generation) -> None"},
	{"ready", tpy_client_ready, METH_NOARGS, "ready() -> key, 0 for none"},
	{"due", tpy_client_due, METH_NOARGS, "due() -> int"},
	{"list", tpy_client_list, METH_O, "list(pattern) -> list of dict"},
	{"inspect", tpy_client_inspect, METH_O, "inspect(name) -> dict"},
	{"remove", tpy_client_remove, METH_O, "remove(name) -> None"},
	{"unshare", tpy_client_unshare, METH_O, "unshare(name) -> None"},
	{"recognise", tpy_client_recognise, METH_VARARGS,
	 "recognise(address, bytes) -> whether it is published without a copy"},
	{"shutdown", tpy_client_shutdown, METH_NOARGS, "shutdown() -> None"},
	{"dispatch", tpy_client_dispatch, METH_NOARGS, "dispatch() -> None"},
	{"fileno", tpy_client_fileno, METH_NOARGS, "fileno() -> int"},
	{"broker", tpy_client_broker, METH_NOARGS, "broker() -> dict"},
	{NULL, NULL, 0, NULL},
};

static PyGetSetDef client_getset[] = {
	{"closed", client_get_closed, NULL, "whether close() was called", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static char client_doc[] = "A connection to a broker. Made by connect().";

static PyType_Slot client_slots[] = {
	{Py_tp_doc, client_doc},
	{Py_tp_dealloc, client_dealloc},
	{Py_tp_traverse, client_traverse},
	{Py_tp_clear, client_clear},
	{Py_tp_methods, client_methods},
	{Py_tp_getset, client_getset},
	{0, NULL},
};

static PyType_Spec client_spec = {
	.name = "tidl._core.Client",
	.basicsize = sizeof(struct tpy_client),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = client_slots,
};

PyTypeObject *tpy_client_type_new(PyObject *module)
{
	return (PyTypeObject *)PyType_FromModuleAndSpec(module, &client_spec, NULL);
}
