/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps of `_core.Tensor`: updates, commits, waiting, snapshots. Every call gives up the GIL: the
 * first one on a tensor asks the broker, and a wake-up of others can cost this thread its core.
 */
#include "client/python/src/_core/core.h"

static PyObject *steps_result(const struct tpy_tensor *self, int result, uint64_t step)
{
	return tpy_check(self->state, result) ? NULL : PyLong_FromUnsignedLongLong(step);
}

/* The calls that answer with a step and take nothing else. */
static PyObject *steps_call(PyObject *object, int (*call)(struct tidl_tensor *, uint64_t *))
{
	struct tpy_tensor *self = (struct tpy_tensor *)object;
	TPY_HELD struct tidl_tensor *handle = tpy_tensor_hold(self);
	uint64_t step = 0;

	if (!handle)
		return NULL;
	PyThreadState *thread = PyEval_SaveThread();
	int result = call(handle, &step);
	PyEval_RestoreThread(thread);
	return steps_result(self, result, step);
}

PyObject *tpy_tensor_step(PyObject *object, void *closure)
{
	(void)closure;
	return steps_call(object, tidl_step);
}

PyObject *tpy_tensor_update_begin(PyObject *object, PyObject *takes_over)
{
	struct tpy_tensor *self = (struct tpy_tensor *)object;
	TPY_HELD struct tidl_tensor *handle = tpy_tensor_hold(self);
	int is_taking = PyObject_IsTrue(takes_over);

	if (!handle || is_taking < 0)
		return NULL;
	PyThreadState *thread = PyEval_SaveThread();
	int result = tidl_update_begin(handle, is_taking ? TIDL_UPDATE_TAKE_OVER : 0);
	PyEval_RestoreThread(thread);
	if (tpy_check(self->state, result))
		return NULL;
	Py_RETURN_NONE;
}

PyObject *tpy_tensor_update_end(PyObject *object, PyObject *unused)
{
	(void)unused;
	return steps_call(object, tidl_update_end);
}

PyObject *tpy_tensor_commit(PyObject *object, PyObject *unused)
{
	(void)unused;
	return steps_call(object, tidl_commit);
}

PyObject *tpy_tensor_wait_step(PyObject *object, PyObject *args)
{
	struct tpy_tensor *self = (struct tpy_tensor *)object;
	unsigned long long step;
	long long timeout_ms;
	uint64_t reached = 0;

	if (!PyArg_ParseTuple(args, "KL:_wait_step", &step, &timeout_ms))
		return NULL;
	TPY_HELD struct tidl_tensor *handle = tpy_tensor_hold(self);
	if (!handle)
		return NULL;
	PyThreadState *thread = PyEval_SaveThread();
	int result = tidl_wait_step(handle, step, timeout_ms, &reached);
	PyEval_RestoreThread(thread);
	return steps_result(self, result, reached);
}

PyObject *tpy_tensor_snapshot(PyObject *object, PyObject *args)
{
	struct tpy_tensor *self = (struct tpy_tensor *)object;
	Py_buffer buffer;
	long long timeout_ms;
	uint64_t step = 0;

	if (!PyArg_ParseTuple(args, "w*L:_snapshot", &buffer, &timeout_ms))
		return NULL;
	TPY_HELD struct tidl_tensor *handle = tpy_tensor_hold(self);
	if (!handle) {
		PyBuffer_Release(&buffer);
		return NULL;
	}
	PyThreadState *thread = PyEval_SaveThread();
	int result = tidl_snapshot(handle, buffer.buf, (uint64_t)buffer.len, timeout_ms, &step);
	PyEval_RestoreThread(thread);
	PyBuffer_Release(&buffer);
	return steps_result(self, result, step);
}
