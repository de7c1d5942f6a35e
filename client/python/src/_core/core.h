/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TIDL_PYTHON_CORE_H
#define TIDL_PYTHON_CORE_H

/*
 * What the files of the extension `tidl._core` share. Python's stable ABI of 3.11 only; libtidl
 * through its public headers only.
 *
 * The GIL protects every field below. It is given up around each libtidl call that can wait, copy
 * or run a deleter.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdatomic.h>

#include <sys/types.h>

#include <tidl/tidl.h>

#include <dlpack/dlpack.h>

/* Per-module state. Owned by the module; every object of ours keeps its module alive. */
struct tpy_state {
	PyObject *error_classes; /* dict: name of a code -> exception class; from tidl._errors */
	/* From tidl._errors, too: what a producer's own refusal becomes, what is no tensor at all,
	 * and tensors of a kind that is not known yet. */
	PyObject *refusal_class;
	PyObject *no_tensor_class;
	PyObject *unknown_kind_class;
	PyTypeObject *client_type;
	PyTypeObject *tensor_type;
	PyTypeObject *watch_type;
	PyTypeObject *draft_type;
	PyTypeObject *bundle_type;
	PyTypeObject *events_type;
	PyTypeObject *pending_type;
	PyTypeObject *update_type;
	PyTypeObject *numpy_allocator_type;
};

/* A connection. Owns the tidl_client until the last call on it has left after close(). */
struct tpy_client {
	PyObject_HEAD struct tpy_state *state;
	PyObject *result_type;	    /* subclass of Tensor that empty() and get() make */
	struct tidl_client *handle; /* NULL once disconnected */
	pid_t owner_pid;	    /* process that `calls_count` counts for */
	unsigned calls_count;	    /* calls now inside libtidl */
	int is_closing;
};

/* One reference to a tidl_tensor; NULL after release(). */
struct tpy_tensor {
	PyObject_HEAD struct tpy_state *state;
	struct tidl_tensor *handle;
	struct tidl_tensor *lent; /* second reference, once a bare address was handed out */
};

/* module.c */
struct tpy_state *tpy_state_of_module(PyObject *module);

/* errors.c: each sets a Python exception unless one is already pending */
void tpy_raise(const struct tpy_state *state, int code, const char *sentence);
void tpy_raise_format(const struct tpy_state *state, int code, const char *format, ...);
void tpy_raise_class(PyObject *class, const char *format, ...);
int tpy_check(const struct tpy_state *state, int result); /* 0, or -1 with an exception set */
int tpy_is_refusal(const struct tpy_state *state); /* the pending exception says "I cannot" */
PyObject *tpy_take_pending(void); /* it, normalised and owned by the caller; none is pending then */
void tpy_raise_refusal(const struct tpy_state *state, int code, PyObject *producer);

/* client.c, client_calls.c */
PyTypeObject *tpy_client_type_new(PyObject *module);
PyObject *tpy_client_open(struct tpy_state *state, PyObject *args);
struct tidl_client *tpy_client_enter(struct tpy_client *self);
void tpy_client_leave(struct tpy_client *self);
int tpy_client_check(struct tpy_client *self, int result);
PyObject *tpy_client_empty(PyObject *object, PyObject *args);
PyObject *tpy_client_publish(PyObject *object, PyObject *args);
PyObject *tpy_client_get(PyObject *object, PyObject *args);
int tpy_parse_keys(PyObject *tuple, const char ***ret_keys, size_t *ret_count);
PyObject *tpy_client_wrap(const struct tpy_client *self, struct tidl_tensor *tensor,
			  struct tidl_bundle *bundle);
PyObject *tpy_client_list(PyObject *object, PyObject *pattern);
PyObject *tpy_client_inspect(PyObject *object, PyObject *name);
PyObject *tpy_client_unshare(PyObject *object, PyObject *name);
PyObject *tpy_client_recognise(PyObject *object, PyObject *args);
PyObject *tpy_client_remove(PyObject *object, PyObject *name);
PyObject *tpy_client_shutdown(PyObject *object, PyObject *unused);
PyObject *tpy_client_dispatch(PyObject *object, PyObject *unused);
PyObject *tpy_client_fileno(PyObject *object, PyObject *unused);
PyObject *tpy_client_broker(PyObject *object, PyObject *unused);

/* client_waits.c */
PyObject *tpy_client_wait(PyObject *object, PyObject *args);
PyObject *tpy_client_pin(PyObject *object, PyObject *args);
PyObject *tpy_client_ready(PyObject *object, PyObject *unused);
PyObject *tpy_client_due(PyObject *object, PyObject *unused);

/* pending.c, events.c */
PyTypeObject *tpy_pending_type_new(PyObject *module);
PyObject *tpy_client_get_begin(PyObject *object, PyObject *args);
PyObject *tpy_client_wait_begin(PyObject *object, PyObject *args);
PyTypeObject *tpy_events_type_new(PyObject *module);
PyObject *tpy_client_watch(PyObject *object, PyObject *args);

/* tensor.c */
PyTypeObject *tpy_tensor_type_new(PyObject *module);
PyObject *tpy_tensor_wrap(struct tpy_state *state, PyTypeObject *type, struct tidl_tensor *steal);
struct tidl_tensor *tpy_tensor_hold(struct tpy_tensor *self);

/*
 * A reference for the length of a block. Whatever runs Python code (any allocation may, by way of
 * the garbage collector) or gives up the GIL lets release() drop the object's own.
 */
void tpy_tensor_unhold(struct tidl_tensor **tensor);
#define TPY_HELD __attribute__((cleanup(tpy_tensor_unhold)))

/* steps.c */
PyObject *tpy_tensor_step(PyObject *object, void *closure);
PyObject *tpy_tensor_update_begin(PyObject *object, PyObject *takes_over);
PyObject *tpy_tensor_update_end(PyObject *object, PyObject *unused);
PyObject *tpy_tensor_commit(PyObject *object, PyObject *unused);
PyObject *tpy_tensor_wait_step(PyObject *object, PyObject *args);
PyObject *tpy_tensor_snapshot(PyObject *object, PyObject *args);

/* update.c */
PyTypeObject *tpy_update_type_new(PyObject *module);
PyObject *tpy_tensor_update(PyObject *object, PyObject *takes_over);

/* buffer.c */
int tpy_tensor_getbuffer(PyObject *object, Py_buffer *view, int flags);
void tpy_tensor_releasebuffer(PyObject *object, Py_buffer *view);
PyObject *tpy_tensor_array_interface(PyObject *object, void *closure);

/* gather.c */
int tpy_is_compact(uint32_t ndim, const int64_t *shape, const int64_t *strides);
void tpy_compact_strides(uint32_t ndim, const int64_t *shape, int64_t *ret_strides);
void tpy_gather(const struct tidl_tensor *tensor, size_t element_bytes, void *destination);

/* dtype.c */
const char *tpy_dtype_format(struct tidl_dtype dtype);	/* PEP 3118; NULL: has none */
const char *tpy_dtype_typestr(struct tidl_dtype dtype); /* __array_interface__; NULL: has none */
int tpy_dtype_from_format(const char *format, Py_ssize_t itemsize, struct tidl_dtype *ret_dtype);
int64_t tpy_dtype_element_bits(struct tidl_dtype dtype);
PyObject *tpy_dtype_to_python(struct tidl_dtype dtype);

/* dlpack_out.c, dlpack_copy.c */
#define TPY_CAPSULE_LEGACY	   "dltensor"
#define TPY_CAPSULE_LEGACY_USED	   "used_dltensor"
#define TPY_CAPSULE_VERSIONED	   "dltensor_versioned"
#define TPY_CAPSULE_VERSIONED_USED "used_dltensor_versioned"

PyObject *tpy_tensor_dlpack(PyObject *object, PyObject *const *args, Py_ssize_t args_count,
			    PyObject *keyword_names);
PyObject *tpy_tensor_dlpack_device(PyObject *object, PyObject *unused);
PyObject *tpy_tensor_dlpack_unflagged(PyObject *object, PyObject *const *args,
				      Py_ssize_t args_count, PyObject *keyword_names);
PyObject *tpy_capsule_versioned(struct DLManagedTensorVersioned *steal);
PyObject *tpy_capsule_legacy(struct DLManagedTensor *steal);
int tpy_copy_versioned(const struct tpy_state *state, struct tidl_tensor *tensor,
		       struct DLManagedTensorVersioned **ret_managed);
int tpy_copy_legacy(const struct tpy_state *state, struct tidl_tensor *tensor,
		    struct DLManagedTensor **ret_managed);

/* quarantine.c: deleters of structures from malloc(), which may be called twice */
int tpy_is_first_deletion(atomic_int *is_dead);
void tpy_bury(void *block); /* frees it later */

/* export_watch.c */
PyTypeObject *tpy_watch_type_new(PyObject *module);
PyObject *tpy_tensor_export_watched(PyObject *object, PyObject *unused);

/*
 * dlpack_in.c, buffer_in.c: somebody else's tensor, owned by us until published or discarded.
 * Exactly one of the two is set.
 */
struct tpy_source {
	struct DLManagedTensorVersioned *versioned;
	struct DLManagedTensor *legacy;
};

/* With `may_copy` a producer on another device is asked for a copy on the host. */
int tpy_source_open(struct tpy_state *state, PyObject *object, int may_copy,
		    struct tpy_source *ret_source);
void tpy_source_discard(struct tpy_source *source);

/* keep.c: makes it fit to be deleted without the GIL. -1: an exception is set, and it is as before.
 */
int tpy_source_keep(struct tpy_source *source);
int tpy_source_from_buffer(struct tpy_state *state, PyObject *object, int refusal_code,
			   struct tpy_source *ret_source);

/* numpy_allocator.c */
PyObject *tpy_client_numpy_allocator(PyObject *object, PyObject *args);

/* bundle.c */
PyTypeObject *tpy_draft_type_new(PyObject *module);
PyObject *tpy_draft_open(struct tpy_state *state, int may_copy);
struct tidl_draft *tpy_draft_handle(struct tpy_state *state, PyObject *object); /* NULL: none */
PyTypeObject *tpy_bundle_type_new(PyObject *module);
PyObject *tpy_bundle_wrap(struct tpy_state *state, PyObject *result_type,
			  struct tidl_bundle *steal);

/* results.c */
PyObject *tpy_result_publication(const struct tidl_publication *publication);
PyObject *tpy_result_listing(const struct tidl_listing *listing);
PyObject *tpy_result_inspection(const struct tidl_inspection *inspection);
PyObject *tpy_result_broker(const struct tidl_broker_info *info);
PyObject *tpy_result_integers(uint32_t count, const int64_t *values); /* tuple */
PyObject *tpy_result_text(const char *text); /* str; bad UTF-8 replaced; NULL: None */

#endif
