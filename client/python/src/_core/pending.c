/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `_core.Pending`: a request whose answer an event loop waits for. Nothing here blocks. What is not
 * taken is given back, what is not answered is cancelled, both by close() or with the object.
 */
#include "client/python/src/_core/core.h"

struct tpy_pending {
	PyObject_HEAD struct tpy_state *state;
	struct tpy_client *client;
	struct tidl_pending *handle; /* NULL once closed */
};

static struct tpy_pending *pending_new(struct tpy_client *client)
{
	PyTypeObject *type = client->state->pending_type;
	allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
	struct tpy_pending *self = (struct tpy_pending *)alloc(type, 0);

	if (!self)
		return NULL;
	self->state = client->state;
	self->client = (struct tpy_client *)Py_NewRef((PyObject *)client);
	return self;
}

/* What begins a request: get_begin() or wait_begin(), with their arguments. */
struct beginning {
	const char *name;
	const struct tidl_get_options *get; /* one of the two */
	const struct tidl_wait_options *wait;
};

static PyObject *pending_begin(struct tpy_client *client, const struct beginning *beginning,
			       unsigned long long key)
{
	struct tpy_pending *self = pending_new(client);
	struct tidl_client *handle = self ? tpy_client_enter(client) : NULL;

	if (!handle) {
		Py_XDECREF((PyObject *)self);
		return NULL;
	}
	/* In a forked child's first call this connects. */
	PyThreadState *thread = PyEval_SaveThread();
	int result =
		beginning->get
			? tidl_get_begin(handle, beginning->name, beginning->get, &self->handle)
			: tidl_wait_begin(handle, beginning->name, beginning->wait, &self->handle);
	PyEval_RestoreThread(thread);
	int is_failed = tpy_client_check(client, result);
	if (!is_failed)
		tidl_pending_set_key(self->handle, key);
	tpy_client_leave(client);
	if (is_failed)
		Py_CLEAR(self);
	return (PyObject *)self;
}

/* get_begin(name, attach, is_waiting, generation, newer_than, keys, key) */
PyObject *tpy_client_get_begin(PyObject *object, PyObject *args)
{
	struct tidl_get_options options = {.size = sizeof(options)};
	struct beginning beginning = {.get = &options};
	int attach, is_waiting;
	unsigned long long generation, newer_than, key;
	PyObject *tuple;
	const char **keys = NULL;

	if (!PyArg_ParseTuple(args, "sipKKOK:get_begin", &beginning.name, &attach, &is_waiting,
			      &generation, &newer_than, &tuple, &key) ||
	    tpy_parse_keys(tuple, &keys, &options.key_count))
		return NULL;
	options.keys = keys;
	options.attach = (enum tidl_attach)attach;
	options.timeout_ms = is_waiting ? -1 : 0;
	options.generation = generation;
	options.newer_than = newer_than;
	PyObject *pending = pending_begin((struct tpy_client *)object, &beginning, key);
	PyMem_Free(keys);
	return pending;
}

/* wait_begin(name, newer_than, released, generation, key) */
PyObject *tpy_client_wait_begin(PyObject *object, PyObject *args)
{
	struct tidl_wait_options options = {.size = sizeof(options)};
	struct beginning beginning = {.wait = &options};
	unsigned long long generation, newer_than, key;

	if (!PyArg_ParseTuple(args, "sKpKK:wait_begin", &beginning.name, &newer_than,
			      &options.released, &generation, &key))
		return NULL;
	options.newer_than = newer_than;
	options.generation = generation;
	return pending_begin((struct tpy_client *)object, &beginning, key);
}

/* The live handle, its client entered; NULL with an exception. */
static struct tidl_pending *pending_enter(struct tpy_pending *self)
{
	if (!self->handle) {
		tpy_raise(self->state, TIDL_ERR_CANCELLED, "this request was given up");
		return NULL;
	}
	return tpy_client_enter(self->client) ? self->handle : NULL;
}

static PyObject *pending_get_done(PyObject *object, void *closure)
{
	struct tpy_pending *self = (struct tpy_pending *)object;

	(void)closure;
	return PyBool_FromLong(!self->handle || tidl_pending_is_done(self->handle));
}

/* A bundle of more segments than a packet has descriptors takes further round trips. */
static PyObject *pending_result(PyObject *object, PyObject *unused)
{
	struct tpy_pending *self = (struct tpy_pending *)object;
	struct tidl_pending *handle = pending_enter(self);
	struct tidl_tensor *tensor = NULL;
	struct tidl_bundle *bundle = NULL;

	(void)unused;
	if (!handle)
		return NULL;
	/* Nobody else may close it meanwhile. */
	self->handle = NULL;
	PyThreadState *thread = PyEval_SaveThread();
	int result = tidl_pending_any(handle, &tensor, &bundle);
	PyEval_RestoreThread(thread);
	if (tpy_client_check(self->client, result)) {
		tensor = tidl_tensor_unref(tensor);
		bundle = tidl_bundle_unref(bundle);
	}
	tidl_pending_free(handle);
	tpy_client_leave(self->client);
	return tpy_client_wrap(self->client, tensor, bundle);
}

static PyObject *pending_generation(PyObject *object, PyObject *unused)
{
	struct tpy_pending *self = (struct tpy_pending *)object;
	struct tidl_pending *handle = pending_enter(self);
	uint64_t generation = 0;

	(void)unused;
	if (!handle)
		return NULL;
	int is_failed =
		tpy_client_check(self->client, tidl_pending_generation(handle, &generation));
	tpy_client_leave(self->client);
	return is_failed ? NULL : PyLong_FromUnsignedLongLong(generation);
}

static PyObject *pending_cancel(PyObject *object, PyObject *unused)
{
	struct tpy_pending *self = (struct tpy_pending *)object;

	(void)unused;
	if (self->handle)
		tidl_pending_cancel(self->handle);
	Py_RETURN_NONE;
}

static PyObject *pending_close(PyObject *object, PyObject *unused)
{
	struct tpy_pending *self = (struct tpy_pending *)object;
	struct tidl_pending *handle = self->handle;

	(void)unused;
	self->handle = NULL;
	tidl_pending_free(handle);
	Py_RETURN_NONE;
}

static void pending_dealloc(PyObject *object)
{
	struct tpy_pending *self = (struct tpy_pending *)object;
	PyTypeObject *type = Py_TYPE(object);

	tidl_pending_free(self->handle);
	Py_XDECREF((PyObject *)self->client);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
	Py_DECREF(type);
}

static PyMethodDef pending_methods[] = {
	{"result", pending_result, METH_NOARGS, "result() -> Tensor or Bundle; once"},
	{"generation", pending_generation, METH_NOARGS, "generation() -> int"},
	{"cancel", pending_cancel, METH_NOARGS, "cancel() -> None"},
	{"close", pending_close, METH_NOARGS, "close() -> None"},
	{NULL, NULL, 0, NULL},
};

static PyGetSetDef pending_getset[] = {
	{"done", pending_get_done, NULL, "whether there is an answer", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static char pending_doc[] = "A request that an event loop waits for. Made by Client.";

static PyType_Slot pending_slots[] = {
	{Py_tp_doc, pending_doc},
	{Py_tp_dealloc, pending_dealloc},
	{Py_tp_methods, pending_methods},
	{Py_tp_getset, pending_getset},
	{0, NULL},
};

static PyType_Spec pending_spec = {
	.name = "tidl._core.Pending",
	.basicsize = sizeof(struct tpy_pending),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = pending_slots,
};

PyTypeObject *tpy_pending_type_new(PyObject *module)
{
	return (PyTypeObject *)PyType_FromModuleAndSpec(module, &pending_spec, NULL);
}
