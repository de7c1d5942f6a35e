/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of `_core.Client` about generations and for event loops; as those of client_calls.c. */
#include "client/python/src/_core/core.h"

/* wait(name, timeout_ms, newer_than, released, generation) -> int */
PyObject *tpy_client_wait(PyObject *object, PyObject *args)
{
	struct tpy_client *self = (struct tpy_client *)object;
	struct tidl_wait_options options = {.size = sizeof(options)};
	const char *name;
	long long timeout_ms;
	unsigned long long newer_than, generation;
	uint64_t answer = 0;

	if (!PyArg_ParseTuple(args, "sLKpK:wait", &name, &timeout_ms, &newer_than,
			      &options.released, &generation))
		return NULL;
	options.timeout_ms = timeout_ms;
	options.newer_than = newer_than;
	options.generation = generation;

	struct tidl_client *handle = tpy_client_enter(self);
	if (!handle)
		return NULL;
	PyThreadState *thread = PyEval_SaveThread();
	int result = tidl_wait(handle, name, &options, &answer);
	PyEval_RestoreThread(thread);
	int is_failed = tpy_client_check(self, result);
	tpy_client_leave(self);
	return is_failed ? NULL : PyLong_FromUnsignedLongLong(answer);
}

/* pin(name, generation) */
PyObject *tpy_client_pin(PyObject *object, PyObject *args)
{
	struct tpy_client *self = (struct tpy_client *)object;
	const char *name;
	unsigned long long generation;

	if (!PyArg_ParseTuple(args, "sK:pin", &name, &generation))
		return NULL;
	struct tidl_client *handle = tpy_client_enter(self);
	if (!handle)
		return NULL;
	PyThreadState *thread = PyEval_SaveThread();
	int result = tidl_pin(handle, name, generation);
	PyEval_RestoreThread(thread);
	int is_failed = tpy_client_check(self, result);
	tpy_client_leave(self);
	return is_failed ? NULL : Py_NewRef(Py_None);
}

/* The key of a request or watch to look at; 0: none. */
PyObject *tpy_client_ready(PyObject *object, PyObject *unused)
{
	struct tpy_client *self = (struct tpy_client *)object;
	struct tidl_client *handle = tpy_client_enter(self);

	(void)unused;
	if (!handle)
		return NULL;
	uint64_t key = tidl_ready(handle);
	tpy_client_leave(self);
	return PyLong_FromUnsignedLongLong(key);
}

PyObject *tpy_client_due(PyObject *object, PyObject *unused)
{
	struct tpy_client *self = (struct tpy_client *)object;
	struct tidl_client *handle = tpy_client_enter(self);

	(void)unused;
	if (!handle)
		return NULL;
	size_t count = tidl_due(handle);
	tpy_client_leave(self);
	return PyLong_FromSize_t(count);
}
