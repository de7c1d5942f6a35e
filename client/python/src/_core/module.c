/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The module `tidl._core`: its state and its refusal of interpreters it cannot serve. Multi-phase
 * initialisation; one state for each import, owned by the module object.
 */
#include "client/python/src/_core/numpy_memory.h"

#ifdef Py_GIL_DISABLED
#error "tidl._core relies on the GIL: build it for a regular Python"
#endif

struct tpy_state *tpy_state_of_module(PyObject *module)
{
	return PyModule_GetState(module);
}

/*
 * Deleters run on threads without an interpreter and re-enter with PyGILState_Ensure(), which
 * knows the main interpreter only.
 */
static int refuse_subinterpreter(void)
{
	if (PyInterpreterState_GetID(PyInterpreterState_Get()) == 0)
		return 0;
	PyErr_SetString(PyExc_ImportError,
			"tidl works in the main interpreter only: import it there, or use a "
			"process instead of a sub-interpreter");
	return -1;
}

static int refuse_free_threading(void)
{
	PyObject *probe = PySys_GetObject("_is_gil_enabled"); /* borrowed; absent before 3.13 */
	if (!probe)
		return 0;
	PyObject *answer = PyObject_CallNoArgs(probe);
	if (!answer)
		return -1;
	int is_enabled = PyObject_IsTrue(answer);
	Py_DECREF(answer);
	if (is_enabled == 0)
		PyErr_SetString(
			PyExc_ImportError,
			"tidl needs the GIL: use a regular Python build, or set PYTHON_GIL=1");
	return is_enabled == 1 ? 0 : -1;
}

static int load_error_classes(struct tpy_state *state)
{
	PyObject *errors = PyImport_ImportModule("tidl._errors");
	if (!errors)
		return -1;
	struct {
		const char *name;
		PyObject **target;
	} wanted[] = {
		{"BY_CODE", &state->error_classes},
		{"NotExportableError", &state->refusal_class},
		{"ArgumentTypeError", &state->no_tensor_class},
		{"UnsupportedTensorError", &state->unknown_kind_class},
	};
	int result = 0;
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]) && !result; i++) {
		*wanted[i].target = PyObject_GetAttrString(errors, wanted[i].name);
		result = *wanted[i].target ? 0 : -1;
	}
	Py_DECREF(errors);
	return result;
}

static int module_exec(PyObject *module)
{
	struct tpy_state *state = tpy_state_of_module(module);

	if (refuse_subinterpreter() || refuse_free_threading() || load_error_classes(state))
		return -1;
	state->client_type = tpy_client_type_new(module);
	state->tensor_type = tpy_tensor_type_new(module);
	state->watch_type = tpy_watch_type_new(module);
	state->draft_type = tpy_draft_type_new(module);
	state->bundle_type = tpy_bundle_type_new(module);
	state->events_type = tpy_events_type_new(module);
	state->pending_type = tpy_pending_type_new(module);
	state->update_type = tpy_update_type_new(module);
	state->numpy_allocator_type = tpy_numpy_allocator_type_new(module);
	if (!state->client_type || !state->tensor_type || !state->watch_type ||
	    !state->draft_type || !state->bundle_type || !state->events_type ||
	    !state->pending_type || !state->update_type || !state->numpy_allocator_type)
		return -1;
	if (PyModule_AddType(module, state->client_type) ||
	    PyModule_AddType(module, state->tensor_type) ||
	    PyModule_AddType(module, state->watch_type) ||
	    PyModule_AddType(module, state->draft_type) ||
	    PyModule_AddType(module, state->bundle_type) ||
	    PyModule_AddType(module, state->events_type) ||
	    PyModule_AddType(module, state->pending_type) ||
	    PyModule_AddType(module, state->update_type) ||
	    PyModule_AddType(module, state->numpy_allocator_type))
		return -1;
	return PyModule_AddStringConstant(module, "__version__", tidl_version());
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
	struct tpy_state *state = tpy_state_of_module(module);
	if (!state)
		return 0;
	Py_VISIT(state->error_classes);
	Py_VISIT(state->refusal_class);
	Py_VISIT(state->no_tensor_class);
	Py_VISIT(state->unknown_kind_class);
	Py_VISIT(state->client_type);
	Py_VISIT(state->tensor_type);
	Py_VISIT(state->watch_type);
	Py_VISIT(state->draft_type);
	Py_VISIT(state->bundle_type);
	Py_VISIT(state->events_type);
	Py_VISIT(state->pending_type);
	Py_VISIT(state->update_type);
	Py_VISIT(state->numpy_allocator_type);
	return 0;
}

static int module_clear(PyObject *module)
{
	struct tpy_state *state = tpy_state_of_module(module);
	if (!state)
		return 0;
	Py_CLEAR(state->error_classes);
	Py_CLEAR(state->refusal_class);
	Py_CLEAR(state->no_tensor_class);
	Py_CLEAR(state->unknown_kind_class);
	Py_CLEAR(state->client_type);
	Py_CLEAR(state->tensor_type);
	Py_CLEAR(state->watch_type);
	Py_CLEAR(state->draft_type);
	Py_CLEAR(state->bundle_type);
	Py_CLEAR(state->events_type);
	Py_CLEAR(state->pending_type);
	Py_CLEAR(state->update_type);
	Py_CLEAR(state->numpy_allocator_type);
	return 0;
}

static void module_free(void *module)
{
	module_clear(module);
}

static PyObject *module_connect(PyObject *module, PyObject *args)
{
	return tpy_client_open(tpy_state_of_module(module), args);
}

static PyObject *module_draft(PyObject *module, PyObject *may_copy)
{
	return tpy_draft_open(tpy_state_of_module(module), may_copy == Py_True);
}

static PyObject *module_dtype_parse(PyObject *module, PyObject *name)
{
	const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
	struct tidl_dtype dtype;

	if (!text || tpy_check(tpy_state_of_module(module), tidl_dtype_parse(text, &dtype)))
		return NULL;
	return Py_BuildValue("(iii)", (int)dtype.code, (int)dtype.bits, (int)dtype.lanes);
}

static PyObject *module_prefer_shareable(PyObject *module, PyObject *min_bytes)
{
	size_t bytes = PyLong_AsSize_t(min_bytes);
	size_t from_bytes = 0;

	if (bytes == (size_t)-1 && PyErr_Occurred())
		return NULL;
	if (tpy_check(tpy_state_of_module(module), tidl_prefer_shareable(bytes, &from_bytes)))
		return NULL;
	return PyLong_FromSize_t(from_bytes);
}

static PyMethodDef module_methods[] = {
	{"connect", module_connect, METH_VARARGS,
	 "connect(result_type, address, client_name, daemon_path, timeout_ms, autostart) -> "
	 "Client"},
	{"prefer_shareable", module_prefer_shareable, METH_O,
	 "prefer_shareable(min_bytes) -> size from which on it works"},
	{"draft", module_draft, METH_O, "draft(may_copy) -> Draft"},
	{"dtype_parse", module_dtype_parse, METH_O,
	 "dtype_parse(name) -> (code, bits, lanes) of DLPack"},
	{NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot module_slots[] = {
	{Py_mod_exec, module_exec},
	{0, NULL},
};

static struct PyModuleDef module_definition = {
	.m_base = PyModuleDef_HEAD_INIT,
	.m_name = "tidl._core",
	.m_doc = "Binding of libtidl. Private: use the package tidl.",
	.m_size = sizeof(struct tpy_state),
	.m_methods = module_methods,
	.m_slots = module_slots,
	.m_traverse = module_traverse,
	.m_clear = module_clear,
	.m_free = module_free,
};

PyMODINIT_FUNC PyInit__core(void);

PyMODINIT_FUNC PyInit__core(void)
{
	return PyModuleDef_Init(&module_definition);
}
