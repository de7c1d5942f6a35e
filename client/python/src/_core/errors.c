/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From libtidl's codes to Python exceptions. The classes live in tidl/_errors.py; here a code's
 * stable name is only looked up. An exception that is already pending (Ctrl-C in a wait) wins.
 */
#include "client/python/src/_core/core.h"

#include <stdarg.h>
#include <string.h>

static PyObject *class_of_code(const struct tpy_state *state, int code)
{
	if (!state->error_classes) /* the interpreter is being taken down */
		return PyExc_RuntimeError;
	PyObject *class = PyDict_GetItemString(state->error_classes, tidl_error_name(code));
	if (!class)
		class = PyDict_GetItemString(state->error_classes, "UNKNOWN");
	return class ? class : PyExc_RuntimeError;
}

static void raise_message(PyObject *class, PyObject *message)
{
	if (!message)
		return;
	PyErr_SetObject(class, message);
	Py_DECREF(message);
}

void tpy_raise(const struct tpy_state *state, int code, const char *sentence)
{
	if (PyErr_Occurred())
		return;
	raise_message(class_of_code(state, code),
		      PyUnicode_DecodeUTF8(sentence, (Py_ssize_t)strlen(sentence), "replace"));
}

void tpy_raise_format(const struct tpy_state *state, int code, const char *format, ...)
{
	if (PyErr_Occurred())
		return;
	va_list args;
	va_start(args, format);
	raise_message(class_of_code(state, code), PyUnicode_FromFormatV(format, args));
	va_end(args);
}

/* For the few errors whose class says more than their code. */
void tpy_raise_class(PyObject *class, const char *format, ...)
{
	if (PyErr_Occurred())
		return;
	va_list args;
	va_start(args, format);
	raise_message(class ? class : PyExc_RuntimeError, PyUnicode_FromFormatV(format, args));
	va_end(args);
}

PyObject *tpy_take_pending(void)
{
	PyObject *type, *value, *traceback;

	PyErr_Fetch(&type, &value, &traceback);
	PyErr_NormalizeException(&type, &value, &traceback);
	if (value && traceback)
		PyException_SetTraceback(value, traceback);
	Py_XDECREF(type);
	Py_XDECREF(traceback);
	return value;
}

/* Into the attribute of the pending exception that says why. */
static void tell_reason(const char *reason)
{
	PyObject *error = tpy_take_pending();
	PyObject *word = PyUnicode_FromString(reason);

	/* Without it the exception is still the right one. */
	if (!error || !word || PyObject_SetAttrString(error, "reason", word))
		PyErr_Clear();
	if (error)
		PyErr_SetObject((PyObject *)Py_TYPE(error), error);
	Py_XDECREF(word);
	Py_XDECREF(error);
}

int tpy_check(const struct tpy_state *state, int result)
{
	if (PyErr_Occurred())
		return -1;
	if (result >= 0)
		return 0;
	const char *sentence = tidl_last_error();
	enum tidl_copy_reason reason = tidl_last_copy_reason();
	tpy_raise(state, result, *sentence ? sentence : tidl_error_text(result));
	if (result == TIDL_ERR_COPY_NEEDED && reason != TIDL_COPY_REASON_NONE)
		tell_reason(tidl_copy_reason_name(reason));
	return -1;
}

/*
 * Whether the pending exception is one with which producers say that they cannot export. Others
 * (Ctrl-C, no memory, endless recursion, a mistake of the caller's) are nobody's answer, and ours
 * are complete already.
 */
int tpy_is_refusal(const struct tpy_state *state)
{
	PyObject *const kinds[] = {PyExc_BufferError,	PyExc_TypeError,    PyExc_ValueError,
				   PyExc_OverflowError, PyExc_RuntimeError, PyExc_AttributeError,
				   PyExc_AssertionError};
	PyObject *own =
		state->error_classes ? PyDict_GetItemString(state->error_classes, "UNKNOWN") : NULL;

	if (PyErr_ExceptionMatches(PyExc_RecursionError) ||
	    PyErr_ExceptionMatches(PyExc_MemoryError) || (own && PyErr_ExceptionMatches(own)))
		return 0;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (PyErr_ExceptionMatches(kinds[i]))
			return 1;
	}
	return 0;
}

static void raise_from(PyObject *class, PyObject *message, PyObject *cause)
{
	PyErr_SetObject(class, message);
	PyObject *error = tpy_take_pending();
	if (!error)
		return;
	PyException_SetCause(error, Py_NewRef(cause)); /* steals */
	PyErr_SetObject((PyObject *)Py_TYPE(error), error);
	Py_DECREF(error);
}

/* Turns the pending exception of a producer into ours, with its words and itself as the cause. */
void tpy_raise_refusal(const struct tpy_state *state, int code, PyObject *producer)
{
	PyObject *cause = tpy_take_pending();
	if (!cause)
		return;
	PyObject *type_name = PyType_GetName(Py_TYPE(producer));
	PyObject *message = type_name
				    ? PyUnicode_FromFormat("this %U cannot be shared as it is: %S",
							   type_name, cause)
				    : NULL;
	if (message)
		raise_from(code == TIDL_ERR_INVALID_ARGUMENT ? state->refusal_class
							     : class_of_code(state, code),
			   message, cause);
	Py_XDECREF(type_name);
	Py_XDECREF(message);
	Py_DECREF(cause);
}
