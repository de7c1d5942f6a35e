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
	PyObject *class = PyDict_GetItemString(state->error_classes, tidl_error_name(code));
	if (!class)
		class = PyDict_GetItemString(state->error_classes, "UNKNOWN");
	return class ? class : PyExc_RuntimeError;
}

static void raise_message(const struct tpy_state *state, int code, PyObject *message)
{
	if (!message)
		return;
	PyErr_SetObject(class_of_code(state, code), message);
	Py_DECREF(message);
}

void tpy_raise(const struct tpy_state *state, int code, const char *sentence)
{
	if (PyErr_Occurred())
		return;
	raise_message(state, code,
		      PyUnicode_DecodeUTF8(sentence, (Py_ssize_t)strlen(sentence), "replace"));
}

void tpy_raise_format(const struct tpy_state *state, int code, const char *format, ...)
{
	if (PyErr_Occurred())
		return;
	va_list args;
	va_start(args, format);
	raise_message(state, code, PyUnicode_FromFormatV(format, args));
	va_end(args);
}

int tpy_check(const struct tpy_state *state, int result)
{
	if (PyErr_Occurred())
		return -1;
	if (result >= 0)
		return 0;
	const char *sentence = tidl_last_error();
	tpy_raise(state, result, *sentence ? sentence : tidl_error_text(result));
	return -1;
}
