/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of `_core.Client`, one function for each of libtidl's. All follow one pattern: parse,
 * enter, call without the GIL, check, leave. Arguments are positional and already checked by the
 * Python layer.
 */
#include "client/python/src/_core/core.h"

static int parse_shape(const struct tpy_state *state, PyObject *tuple, uint32_t *ret_ndim,
		       int64_t *ret_shape)
{
	Py_ssize_t count = PyTuple_Size(tuple);
	if (count < 0)
		return -1;
	if (count > TIDL_MAX_NDIM) {
		tpy_raise_format(state, TIDL_ERR_LAYOUT,
				 "the shape has %zd dimensions; at most %d are possible", count,
				 TIDL_MAX_NDIM);
		return -1;
	}
	for (Py_ssize_t i = 0; i < count; i++) {
		ret_shape[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
		if (ret_shape[i] == -1 && PyErr_Occurred())
			return -1;
	}
	*ret_ndim = (uint32_t)count;
	return 0;
}

PyObject *tpy_client_empty(PyObject *object, PyObject *args)
{
	struct tpy_client *self = (struct tpy_client *)object;
	PyObject *tuple;
	const char *dtype_name;
	int64_t shape[TIDL_MAX_NDIM];
	uint32_t ndim;
	struct tidl_dtype dtype;

	if (!PyArg_ParseTuple(args, "O!s:empty", &PyTuple_Type, &tuple, &dtype_name))
		return NULL;
	if (tpy_check(self->state, tidl_dtype_parse(dtype_name, &dtype)) ||
	    parse_shape(self->state, tuple, &ndim, shape))
		return NULL;

	struct tidl_client *handle = tpy_client_enter(self);
	if (!handle)
		return NULL;
	struct tidl_tensor *tensor = NULL;
	PyThreadState *thread = PyEval_SaveThread();
	int result = tidl_empty(handle, ndim, shape, dtype, &tensor);
	PyEval_RestoreThread(thread);
	if (tpy_client_check(self, result))
		tensor = tidl_tensor_unref(tensor);
	tpy_client_leave(self);
	if (!tensor)
		return NULL;
	return tpy_tensor_wrap(self->state, (PyTypeObject *)self->result_type, tensor);
}

/*
 * Copies and what lies in segments already: publishes a stand-in without a deleter, so that libtidl
 * never calls the producer's, which is for tpy_source_discard(), with the GIL at hand.
 */
static int publish_stand_in(struct tidl_client *handle, const char *name,
			    const struct tpy_source *source,
			    const struct tidl_publish_options *options,
			    struct tidl_publication *ret_publication)
{
	int result;
	PyThreadState *thread = PyEval_SaveThread();
	if (source->versioned) {
		DLManagedTensorVersioned stand_in = *source->versioned;
		stand_in.deleter = NULL;
		result = tidl_publish(handle, name, &stand_in, options, ret_publication);
	} else {
		DLManagedTensor stand_in = *source->legacy;
		stand_in.deleter = NULL;
		result = tidl_publish_legacy(handle, name, &stand_in, options, ret_publication);
	}
	PyEval_RestoreThread(thread);
	return result;
}

/* What may be shared where it lies: libtidl keeps it as long as it has to. */
static int publish_kept(struct tidl_client *handle, const char *name, struct tpy_source *source,
			const struct tidl_publish_options *options,
			struct tidl_publication *ret_publication)
{
	if (tpy_source_keep(source))
		return TIDL_ERR_NO_MEMORY;
	int result;
	PyThreadState *thread = PyEval_SaveThread();
	if (source->versioned)
		result = tidl_publish(handle, name, source->versioned, options, ret_publication);
	else
		result =
			tidl_publish_legacy(handle, name, source->legacy, options, ret_publication);
	PyEval_RestoreThread(thread);
	if (result >= 0)
		*source = (struct tpy_source){NULL, NULL};
	return result;
}

static int publish_source(struct tidl_client *handle, const char *name, struct tpy_source *source,
			  const struct tidl_publish_options *options,
			  struct tidl_publication *ret_publication)
{
	if (options->copy == TIDL_COPY_NEVER)
		return publish_kept(handle, name, source, options, ret_publication);
	return publish_stand_in(handle, name, source, options, ret_publication);
}

static int publish_draft(struct tidl_client *handle, const char *name,
			 const struct tidl_draft *draft, const struct tidl_publish_options *options,
			 struct tidl_publication *ret_publication)
{
	PyThreadState *thread = PyEval_SaveThread();
	int result = tidl_publish_bundle(handle, name, draft, options, ret_publication);
	PyEval_RestoreThread(thread);
	return result;
}

/* None: the caller's own. */
static int parse_group(PyObject *group, struct tidl_publish_options *options)
{
	if (group == Py_None)
		return 0;
	options->group = PyLong_AsLongLong(group);
	options->has_group = 1;
	return options->group == -1 && PyErr_Occurred() ? -1 : 0;
}

/* Of a tuple of (address, bytes) a new array. */
static int parse_blocks(PyObject *tuple, struct tidl_publish_options *options)
{
	Py_ssize_t count = PyTuple_Size(tuple);
	struct tidl_block *blocks =
		count < 0 ? NULL : PyMem_Calloc((size_t)count + 1, sizeof(*blocks));
	if (!blocks)
		return -1;
	for (Py_ssize_t i = 0; i < count; i++) {
		unsigned long long address, bytes;
		int kind;
		if (!PyArg_ParseTuple(PyTuple_GetItem(tuple, i), "KKi", &address, &bytes, &kind)) {
			PyMem_Free(blocks);
			return -1;
		}
		blocks[i].address = (void *)(uintptr_t)address;
		blocks[i].bytes = (size_t)bytes;
		blocks[i].kind = (enum tidl_block_kind)kind;
	}
	options->blocks = blocks;
	options->block_count = (size_t)count;
	return 0;
}

static int parse_options(PyObject *args, const char **ret_name, PyObject **ret_tensor,
			 struct tidl_publish_options *options)
{
	PyObject *group, *blocks;
	int access, copy, retention;
	long long retain_ms;

	if (!PyArg_ParseTuple(args, "sOiiiLIOpIpzO!pp:publish", ret_name, ret_tensor, &access,
			      &copy, &retention, &retain_ms, &options->mode, &group,
			      &options->replace, &options->keep, &options->expose,
			      &options->metadata, &PyTuple_Type, &blocks, &options->nobody_writes,
			      &options->writable))
		return -1;
	options->access = (enum tidl_access)access;
	options->copy = (enum tidl_copy)copy;
	options->retention = (enum tidl_retention)retention;
	options->retain_ms = retain_ms;
	return parse_group(group, options) ? -1 : parse_blocks(blocks, options);
}

/* Opening runs the producer's Python code, which may close this client: enter after it. */
static PyObject *publish_object(struct tpy_client *self, const char *name, PyObject *tensor,
				const struct tidl_publish_options *options)
{
	struct tidl_publication publication = {.size = sizeof(publication)};
	struct tpy_source source = {NULL, NULL};
	struct tidl_draft *draft = tpy_draft_handle(self->state, tensor);
	if (!draft &&
	    tpy_source_open(self->state, tensor, options->copy == TIDL_COPY_ALWAYS, &source))
		return NULL;
	struct tidl_client *handle = tpy_client_enter(self);
	if (!handle) {
		tpy_source_discard(&source);
		return NULL;
	}
	int result = draft ? publish_draft(handle, name, draft, options, &publication)
			   : publish_source(handle, name, &source, options, &publication);
	int is_failed = tpy_client_check(self, result);
	tpy_client_leave(self);
	tpy_source_discard(&source);
	return is_failed ? NULL : tpy_result_publication(&publication);
}

PyObject *tpy_client_publish(PyObject *object, PyObject *args)
{
	struct tpy_client *self = (struct tpy_client *)object;
	struct tidl_publish_options options = {.size = sizeof(options)};
	const char *name;
	PyObject *tensor;

	if (parse_options(args, &name, &tensor, &options))
		return NULL;
	PyObject *result = publish_object(self, name, tensor, &options);
	PyMem_Free((void *)(uintptr_t)options.blocks);
	return result;
}

/* Of a tuple of str, borrowed texts in a new array; None: none. */
int tpy_parse_keys(PyObject *tuple, const char ***ret_keys, size_t *ret_count)
{
	if (tuple == Py_None)
		return 0;
	Py_ssize_t count = PyTuple_Size(tuple);
	const char **keys = count < 0 ? NULL : PyMem_Calloc((size_t)count + 1, sizeof(*keys));
	if (!keys)
		return -1;
	for (Py_ssize_t i = 0; i < count; i++) {
		keys[i] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(tuple, i), NULL);
		if (!keys[i]) {
			PyMem_Free(keys);
			return -1;
		}
	}
	*ret_keys = keys;
	*ret_count = (size_t)count;
	return 0;
}

/* What a get brought: one of the two, or none with an exception. */
PyObject *tpy_client_wrap(const struct tpy_client *self, struct tidl_tensor *tensor,
			  struct tidl_bundle *bundle)
{
	if (tensor)
		return tpy_tensor_wrap(self->state, (PyTypeObject *)self->result_type, tensor);
	return bundle ? tpy_bundle_wrap(self->state, self->result_type, bundle) : NULL;
}

static PyObject *get_any(struct tpy_client *self, const char *name,
			 const struct tidl_get_options *options)
{
	struct tidl_client *handle = tpy_client_enter(self);
	if (!handle)
		return NULL;
	struct tidl_tensor *tensor = NULL;
	struct tidl_bundle *bundle = NULL;
	PyThreadState *thread = PyEval_SaveThread();
	int result = tidl_get_any(handle, name, options, &tensor, &bundle);
	PyEval_RestoreThread(thread);
	if (tpy_client_check(self, result)) { /* also when Ctrl-C came just as the tensor did */
		tensor = tidl_tensor_unref(tensor);
		bundle = tidl_bundle_unref(bundle);
	}
	tpy_client_leave(self);
	return tpy_client_wrap(self, tensor, bundle);
}

PyObject *tpy_client_get(PyObject *object, PyObject *args)
{
	struct tpy_client *self = (struct tpy_client *)object;
	const char *name;
	int attach;
	long long timeout_ms;
	unsigned long long generation, newer_than;
	PyObject *tuple;
	const char **keys = NULL;
	struct tidl_get_options options = {.size = sizeof(options)};

	if (!PyArg_ParseTuple(args, "siLKKO:get", &name, &attach, &timeout_ms, &generation,
			      &newer_than, &tuple))
		return NULL;
	options.attach = (enum tidl_attach)attach;
	options.timeout_ms = timeout_ms;
	options.generation = generation;
	options.newer_than = newer_than;
	if (tpy_parse_keys(tuple, &keys, &options.key_count))
		return NULL;
	options.keys = keys;
	PyObject *result = get_any(self, name, &options);
	PyMem_Free(keys);
	return result;
}

PyObject *tpy_client_list(PyObject *object, PyObject *pattern)
{
	struct tpy_client *self = (struct tpy_client *)object;
	const char *text = PyUnicode_AsUTF8AndSize(pattern, NULL);
	struct tidl_client *handle = text ? tpy_client_enter(self) : NULL;
	if (!handle)
		return NULL;

	struct tidl_listing *listing = NULL;
	PyThreadState *thread = PyEval_SaveThread();
	int result = tidl_list(handle, text, &listing);
	PyEval_RestoreThread(thread);
	PyObject *entries = NULL;
	if (!tpy_client_check(self, result))
		entries = tpy_result_listing(listing);
	tidl_listing_free(listing);
	tpy_client_leave(self);
	return entries;
}

PyObject *tpy_client_inspect(PyObject *object, PyObject *name)
{
	struct tpy_client *self = (struct tpy_client *)object;
	const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
	struct tidl_client *handle = text ? tpy_client_enter(self) : NULL;
	if (!handle)
		return NULL;

	struct tidl_inspection *inspection = NULL;
	PyThreadState *thread = PyEval_SaveThread();
	int result = tidl_inspect(handle, text, &inspection);
	PyEval_RestoreThread(thread);
	PyObject *fields = NULL;
	if (!tpy_client_check(self, result))
		fields = tpy_result_inspection(inspection);
	tidl_inspection_free(inspection);
	tpy_client_leave(self);
	return fields;
}

/* The calls that take a name and give nothing back. */
static PyObject *call_named(struct tpy_client *self, PyObject *name,
			    int (*call)(struct tidl_client *client, const char *name))
{
	const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
	struct tidl_client *handle = text ? tpy_client_enter(self) : NULL;
	if (!handle)
		return NULL;

	PyThreadState *thread = PyEval_SaveThread();
	int result = call(handle, text);
	PyEval_RestoreThread(thread);
	int is_failed = tpy_client_check(self, result);
	tpy_client_leave(self);
	return is_failed ? NULL : Py_NewRef(Py_None);
}

PyObject *tpy_client_remove(PyObject *object, PyObject *name)
{
	return call_named((struct tpy_client *)object, name, tidl_remove);
}

PyObject *tpy_client_unshare(PyObject *object, PyObject *name)
{
	return call_named((struct tpy_client *)object, name, tidl_unshare);
}

PyObject *tpy_client_recognise(PyObject *object, PyObject *args)
{
	struct tpy_client *self = (struct tpy_client *)object;
	unsigned long long address, bytes;
	enum tidl_copy_reason reason = TIDL_COPY_REASON_NONE;

	if (!PyArg_ParseTuple(args, "KK:recognise", &address, &bytes))
		return NULL;
	struct tidl_client *handle = tpy_client_enter(self);
	if (!handle)
		return NULL;
	PyThreadState *thread = PyEval_SaveThread();
	int result = tidl_recognise(handle, (void *)(uintptr_t)address, (size_t)bytes, &reason);
	PyEval_RestoreThread(thread);
	int is_failed = tpy_client_check(self, result);
	tpy_client_leave(self);
	return is_failed ? NULL : PyBool_FromLong(reason == TIDL_COPY_REASON_NONE);
}

/* The calls that take the client alone and give back a code (or a descriptor). */
static int call_alone(struct tpy_client *self, int (*call)(struct tidl_client *client),
		      int *ret_result)
{
	struct tidl_client *handle = tpy_client_enter(self);
	if (!handle)
		return -1;

	PyThreadState *thread = PyEval_SaveThread();
	int result = call(handle);
	PyEval_RestoreThread(thread);
	int is_failed = tpy_client_check(self, result);
	tpy_client_leave(self);
	*ret_result = result;
	return is_failed;
}

PyObject *tpy_client_shutdown(PyObject *object, PyObject *unused)
{
	int result;
	(void)unused;
	if (call_alone((struct tpy_client *)object, tidl_shutdown, &result))
		return NULL;
	Py_RETURN_NONE;
}

PyObject *tpy_client_dispatch(PyObject *object, PyObject *unused)
{
	int result;
	(void)unused;
	if (call_alone((struct tpy_client *)object, tidl_dispatch, &result))
		return NULL;
	Py_RETURN_NONE;
}

PyObject *tpy_client_fileno(PyObject *object, PyObject *unused)
{
	int fd;
	(void)unused;
	if (call_alone((struct tpy_client *)object, tidl_fd, &fd))
		return NULL;
	return PyLong_FromLong(fd);
}

PyObject *tpy_client_broker(PyObject *object, PyObject *unused)
{
	struct tpy_client *self = (struct tpy_client *)object;
	(void)unused;
	struct tidl_client *handle = tpy_client_enter(self);
	if (!handle)
		return NULL;
	PyObject *fields = tpy_result_broker(tidl_broker(handle));
	tpy_client_leave(self);
	return fields;
}
