/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `_core.NumpyAllocator`: what `with tidl.numpy_allocator(client):` enters and leaves, and the
 * report of what it did. In C as `_core.Update`: Ctrl-C must not come between the new handler and
 * the block, or before the old one is back.
 */
#include "client/python/src/_core/numpy_memory.h"

struct allocator {
	PyObject_HEAD struct tpy_state *state;
	struct tpy_numpy_api api;
	struct tpy_numpy_heap *heap;
	PyObject *capsule; /* between __enter__ and __exit__ */
	PyObject *error;
	int is_used;
};

/* numpy_allocator(array_api, min_bytes) */
PyObject *tpy_client_numpy_allocator(PyObject *object, PyObject *args)
{
	struct tpy_client *client = (struct tpy_client *)object;
	PyObject *array_api;
	Py_ssize_t min_bytes;

	if (!PyArg_ParseTuple(args, "On:numpy_allocator", &array_api, &min_bytes))
		return NULL;
	PyTypeObject *type = client->state->numpy_allocator_type;
	allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
	struct allocator *self = (struct allocator *)alloc(type, 0);
	if (!self)
		return NULL;
	self->state = client->state;
	if (!tpy_numpy_open(client->state, array_api, &self->api))
		self->heap = tpy_numpy_heap_new(client, (size_t)min_bytes);
	if (!self->heap) {
		Py_DECREF((PyObject *)self);
		return NULL;
	}
	self->heap->error = &self->error;
	return (PyObject *)self;
}

/* Puts a handler in. 0, or -1 with an exception set. */
static int allocator_set(const struct allocator *self, PyObject *capsule)
{
	PyObject *replaced = self->api.set_handler(capsule);

	Py_XDECREF(replaced);
	return replaced ? 0 : -1;
}

static PyObject *allocator_enter(PyObject *object, PyObject *unused)
{
	struct allocator *self = (struct allocator *)object;

	(void)unused;
	if (self->is_used) {
		tpy_raise(self->state, TIDL_ERR_INVALID_ARGUMENT,
			  "an allocator is entered once: make another with "
			  "tidl.numpy_allocator()");
		return NULL;
	}
	/* Rather than at each array. */
	if (!tpy_client_enter(self->heap->client))
		return NULL;
	tpy_client_leave(self->heap->client);
	self->is_used = 1;
	PyObject *below = self->api.get_handler();
	PyObject *capsule = below ? tpy_numpy_heap_open(self->heap, below) : NULL;
	Py_XDECREF(below);
	if (!capsule || allocator_set(self, capsule)) {
		Py_XDECREF(capsule);
		return NULL;
	}
	self->capsule = capsule;
	return Py_NewRef(object);
}

/* The handler of before, unless somebody has set another in between, or this is another context:
 * then ours stays where it is and leaves everything to the one below. */
static int allocator_restore(const struct allocator *self, PyObject *capsule)
{
	PyObject *current = self->api.get_handler();

	if (!current)
		return -1;
	int result = current == capsule ? allocator_set(self, tpy_numpy_heap_below(self->heap)) : 0;
	Py_DECREF(current);
	return result;
}

/* NumPy says how large the array would have been; why there is no memory is for us to say. */
static void allocator_explain(const struct allocator *self, PyObject *error)
{
	if (!self->error || !self->heap->is_refused || !PyExceptionInstance_Check(error) ||
	    !PyErr_GivenExceptionMatches(error, PyExc_MemoryError))
		return;
	PyObject *cause = PyException_GetCause(error);
	if (!cause && error != self->error)
		PyException_SetCause(error, Py_NewRef(self->error)); /* steals */
	Py_XDECREF(cause);
}

static PyObject *allocator_exit(PyObject *object, PyObject *args)
{
	struct allocator *self = (struct allocator *)object;
	PyObject *capsule = self->capsule;
	PyObject *kind, *error, *trace;

	if (!PyArg_ParseTuple(args, "OOO:__exit__", &kind, &error, &trace))
		return NULL;
	if (!capsule)
		Py_RETURN_NONE;
	self->capsule = NULL;
	tpy_numpy_heap_end(self->heap);
	int result = allocator_restore(self, capsule);
	Py_DECREF(capsule);
	if (result)
		return NULL;
	allocator_explain(self, error);
	Py_RETURN_NONE;
}

/* The error has a traceback, hence a frame that may know us, as soon as somebody has raised it. */
static int allocator_traverse(PyObject *object, visitproc visit, void *arg)
{
	Py_VISIT(Py_TYPE(object));
	Py_VISIT(((struct allocator *)object)->error);
	return 0;
}

static int allocator_clear(PyObject *object)
{
	Py_CLEAR(((struct allocator *)object)->error);
	return 0;
}

static void allocator_dealloc(PyObject *object)
{
	struct allocator *self = (struct allocator *)object;
	PyTypeObject *type = Py_TYPE(object);

	PyObject_GC_UnTrack(object);
	if (self->heap) {
		self->heap->error = NULL;
		if (!self->is_used)
			tpy_numpy_heap_end(self->heap);
		tpy_numpy_heap_unref(self->heap);
	}
	Py_XDECREF(self->capsule);
	allocator_clear(object);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
	Py_DECREF(type);
}

/* Defines a read-only property: a number of the heap's. */
#define ALLOCATOR_NUMBER(property, expression)                                                     \
	static PyObject *allocator_get_##property(PyObject *object, void *closure)                 \
	{                                                                                          \
		struct tpy_numpy_heap *heap = ((struct allocator *)object)->heap;                  \
		(void)closure;                                                                     \
		return PyLong_FromSize_t(expression);                                              \
	}

ALLOCATOR_NUMBER(min_bytes, heap->min_bytes)
ALLOCATOR_NUMBER(arrays, atomic_load(&heap->array_count))
ALLOCATOR_NUMBER(bytes, atomic_load(&heap->array_bytes))
ALLOCATOR_NUMBER(total_arrays, atomic_load(&heap->total_count))
ALLOCATOR_NUMBER(total_bytes, atomic_load(&heap->total_bytes))

static PyObject *allocator_get_left(PyObject *object, void *closure)
{
	struct tpy_numpy_heap *heap = ((struct allocator *)object)->heap;

	(void)closure;
	return Py_BuildValue("{snsnsn}", "small", (Py_ssize_t)atomic_load(&heap->small_count),
			     "late", (Py_ssize_t)atomic_load(&heap->late_count), "interrupted",
			     (Py_ssize_t)atomic_load(&heap->interrupted_count));
}

static PyObject *allocator_get_error(PyObject *object, void *closure)
{
	PyObject *error = ((struct allocator *)object)->error;

	(void)closure;
	return Py_NewRef(error ? error : Py_None);
}

static PyMethodDef allocator_methods[] = {
	{"__enter__", allocator_enter, METH_NOARGS, "Begins it, for this thread or task."},
	{"__exit__", allocator_exit, METH_VARARGS, "The allocator of before is back."},
	{NULL, NULL, 0, NULL},
};

static PyGetSetDef allocator_getset[] = {
	{"min_bytes", allocator_get_min_bytes, NULL, "from which size on, in bytes", NULL},
	{"arrays", allocator_get_arrays, NULL, "how many are in shareable memory now", NULL},
	{"bytes", allocator_get_bytes, NULL, "their memory now, in whole pages", NULL},
	{"total_arrays", allocator_get_total_arrays, NULL, "how many there have been", NULL},
	{"total_bytes", allocator_get_total_bytes, NULL, "the memory that they were given", NULL},
	{"left", allocator_get_left, NULL,
	 "how many were left to the allocator of before, by reason: small, late, interrupted",
	 NULL},
	{"error", allocator_get_error, NULL,
	 "why the last one that was refused was refused, or None", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static char allocator_doc[] =
	"What `with tidl.numpy_allocator(client):` enters, and the report of what it did. Made by "
	"`tidl.numpy_allocator()`.";

static PyType_Slot allocator_slots[] = {
	{Py_tp_doc, allocator_doc},
	{Py_tp_dealloc, allocator_dealloc},
	{Py_tp_traverse, allocator_traverse},
	{Py_tp_clear, allocator_clear},
	{Py_tp_methods, allocator_methods},
	{Py_tp_getset, allocator_getset},
	{0, NULL},
};

static PyType_Spec allocator_spec = {
	.name = "tidl.NumpyAllocator",
	.basicsize = sizeof(struct allocator),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_HAVE_GC,
	.slots = allocator_slots,
};

PyTypeObject *tpy_numpy_allocator_type_new(PyObject *module)
{
	return (PyTypeObject *)PyType_FromModuleAndSpec(module, &allocator_spec, NULL);
}
