/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A memory handler of NumPy (NEP 49) over `tidl_empty()`: each block is a segment of its own, as
 * with `client.empty()`. What is too small, or comes after the `with`, goes to the handler that was
 * there before; what the broker refuses is NULL, which NumPy turns into a MemoryError.
 *
 * NumPy mostly calls with the GIL, and now and then without: `np.fromstring()` and text files grow
 * their arrays while other threads run. A new block waits for the broker, so it takes the GIL if
 * need be and gives it up meanwhile, which NumPy's own allocator does too when it asks for zeroed
 * memory: the array is not known to anybody yet. A block that is resized stays where it is until
 * the new one is there and is left with the GIL held throughout; where somebody else has resized
 * the same array meanwhile, it is refused. Freeing asks for neither.
 *
 * A signal's handler that raises (Ctrl-C) ends the waiting, but its exception cannot come before
 * NumPy has returned, and a MemoryError instead would pass by whoever expects it. So it waits, and
 * until it comes everything new goes to the handler below, as if nobody had asked the broker.
 */
#include "client/python/src/_core/numpy_memory.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct tidl_dtype BYTE = {.code = kDLUInt, .bits = 8, .lanes = 1};

/* ---- life ---- */

static void numpy_release(void *context, void *data, size_t bytes);
static void *numpy_allocate(void *context, size_t bytes);
static void *numpy_allocate_zeroed(void *context, size_t count, size_t element_bytes);
static void *numpy_resize(void *context, void *data, size_t bytes);

struct tpy_numpy_heap *tpy_numpy_heap_new(struct tpy_client *client, size_t min_bytes)
{
	struct tpy_numpy_heap *heap = calloc(1, sizeof(*heap));

	if (!heap) {
		PyErr_NoMemory();
		return NULL;
	}
	heap->handler = (struct tpy_numpy_handler){
		.name = "tidl",
		.version = 1,
		.functions = {heap, numpy_allocate, numpy_allocate_zeroed, numpy_resize,
			      numpy_release},
	};
	atomic_init(&heap->refs, 1);
	heap->min_bytes = min_bytes;
	heap->client = (struct tpy_client *)Py_NewRef((PyObject *)client);
	return heap;
}

struct tpy_numpy_heap *tpy_numpy_heap_ref(struct tpy_numpy_heap *heap)
{
	atomic_fetch_add(&heap->refs, 1);
	return heap;
}

void tpy_numpy_heap_unref(struct tpy_numpy_heap *heap)
{
	if (heap && atomic_fetch_sub(&heap->refs, 1) == 1)
		free(heap);
}

void tpy_numpy_heap_end(struct tpy_numpy_heap *heap)
{
	struct tpy_client *client = heap->client;

	atomic_store(&heap->has_ended, true);
	heap->client = NULL;
	Py_XDECREF((PyObject *)client);
}

/* An allocator of ours, if it is one. */
static struct tpy_numpy_heap *heap_of(const struct tpy_numpy_handler *handler)
{
	return handler->functions.allocate == numpy_allocate ? handler->functions.context : NULL;
}

/*
 * With the last array of ours, and the last context that has the handler. Blocks that end in
 * another order than they began leave as many below one another as there have been, so those that
 * go with this one go one by one, not each in the destructor of the next.
 */
static void heap_close(PyObject *capsule)
{
	struct tpy_numpy_heap *heap = PyCapsule_GetPointer(capsule, TPY_NUMPY_CAPSULE);
	struct tpy_numpy_heap *next = heap_of(heap->below);
	PyObject *gone = heap->below_capsule;

	tpy_numpy_heap_end(heap);
	tpy_numpy_heap_unref(heap);
	while (gone && next && Py_REFCNT(gone) == 1) {
		PyObject *capsule_below = next->below_capsule;

		next->below_capsule = NULL;
		next = heap_of(next->below);
		Py_DECREF(gone);
		gone = capsule_below;
	}
	Py_XDECREF(gone);
}

PyObject *tpy_numpy_heap_open(struct tpy_numpy_heap *heap, PyObject *below)
{
	PyObject *capsule;

	heap->below = PyCapsule_GetPointer(below, TPY_NUMPY_CAPSULE);
	if (!heap->below)
		return NULL;
	capsule = PyCapsule_New(heap, TPY_NUMPY_CAPSULE, heap_close);
	if (!capsule)
		return NULL;
	(void)tpy_numpy_heap_ref(heap);
	heap->below_capsule = Py_NewRef(below);
	return capsule;
}

PyObject *tpy_numpy_heap_below(const struct tpy_numpy_heap *heap)
{
	PyObject *capsule;

	do {
		capsule = heap->below_capsule;
		heap = heap_of(heap->below);
	} while (heap && atomic_load(&heap->has_ended));
	return capsule;
}

/* ---- new blocks: with the GIL ---- */

/* 0: it cannot be. */
static int64_t whole_pages(size_t bytes)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	return bytes < INT64_MAX - page ? (int64_t)((bytes + page - 1) & ~(page - 1)) : 0;
}

/* NULL: an exception is set, by the handler of a signal or by us. */
static struct tidl_tensor *tensor_new(struct tpy_client *client, int64_t bytes, bool *ret_is_signal)
{
	struct tidl_client *handle = tpy_client_enter(client);
	struct tidl_tensor *tensor = NULL;

	if (!handle)
		return NULL;
	PyThreadState *thread = PyEval_SaveThread();
	int result = tidl_empty(handle, 1, &bytes, BYTE, &tensor);
	PyEval_RestoreThread(thread);
	*ret_is_signal = PyErr_Occurred() != NULL;
	if (tpy_client_check(client, result))
		tensor = tidl_tensor_unref(tensor);
	tpy_client_leave(client);
	return tensor;
}

/* What a signal's handler has raised waits until this thread, the main one, is back from NumPy. */
static _Thread_local bool is_interrupted;

/* Runs between two steps of the interpreter. */
static int raise_later(void *exception)
{
	is_interrupted = false;
	PyErr_SetObject((PyObject *)Py_TYPE((PyObject *)exception), exception);
	Py_DECREF((PyObject *)exception);
	return -1;
}

/* Takes the exception over; false: so much is waiting there that one more makes no difference. */
static bool interrupt(PyObject *exception)
{
	is_interrupted = Py_AddPendingCall(raise_later, exception) == 0;
	if (!is_interrupted)
		Py_DECREF(exception);
	return is_interrupted;
}

/*
 * NumPy raises a MemoryError of its own over whatever is pending, so why is kept for the report. It
 * was not raised: what is handled at the moment is the context of NumPy's error, not of this one.
 */
static void heap_refuse(struct tpy_numpy_heap *heap, PyObject *error)
{
	heap->is_refused = true;
	if (error)
		PyException_SetContext(error, NULL);
	if (heap->error) {
		PyObject *before = *heap->error;
		*heap->error = Py_XNewRef(error);
		Py_XDECREF(before);
	}
	Py_XDECREF(error);
}

static void *heap_take(struct tpy_numpy_heap *heap, size_t bytes)
{
	/* __exit__() in another thread may let go of it while the GIL is given up. */
	PyObject *client = Py_NewRef((PyObject *)heap->client);
	struct tidl_tensor *tensor = NULL;
	PyObject *kind, *value, *trace;
	int64_t whole_bytes = whole_pages(bytes);
	bool is_signal = false;

	heap->is_refused = false;
	PyErr_Fetch(&kind, &value, &trace);
	if (whole_bytes)
		tensor = tensor_new((struct tpy_client *)client, whole_bytes, &is_signal);
	if (tensor && tpy_numpy_blocks_add(heap, tensor))
		tensor = tidl_tensor_unref(tensor);
	if (!tensor) {
		if (!PyErr_Occurred())
			PyErr_NoMemory();
		PyObject *error = tpy_take_pending();
		if (!is_signal || !error || !interrupt(error))
			heap_refuse(heap, is_signal ? NULL : error);
	}
	PyErr_Restore(kind, value, trace);
	Py_DECREF(client);
	return tensor ? tidl_tensor_data(tensor) : NULL;
}

/* ---- whose a block is to be ---- */

/* Those of ours that have ended would only go on to the one below them. */
static const struct tpy_numpy_functions *below(const struct tpy_numpy_heap *heap)
{
	const struct tpy_numpy_handler *handler;

	do {
		handler = heap->below;
		heap = heap_of(handler);
	} while (heap && atomic_load(&heap->has_ended));
	return &handler->functions;
}

/* Everything new goes to the handler below, whatever its size. */
static bool heap_is_passed(const struct tpy_numpy_heap *heap)
{
	return is_interrupted || atomic_load(&heap->has_ended);
}

static bool heap_wants(const struct tpy_numpy_heap *heap, size_t bytes)
{
	return bytes >= heap->min_bytes && !heap_is_passed(heap);
}

static void heap_count_left(struct tpy_numpy_heap *heap, size_t bytes)
{
	if (bytes < heap->min_bytes)
		atomic_fetch_add(&heap->small_count, 1);
	else if (atomic_load(&heap->has_ended))
		atomic_fetch_add(&heap->late_count, 1);
	else
		atomic_fetch_add(&heap->interrupted_count, 1);
}

/*
 * Wanted a moment ago, without the GIL perhaps. With it. True: it is for the handler below after
 * all. False: there is a block, or it was refused.
 */
static bool heap_leaves(struct tpy_numpy_heap *heap, size_t bytes, void **ret_data)
{
	*ret_data = heap_is_passed(heap) ? NULL : heap_take(heap, bytes);
	if (*ret_data || !heap_is_passed(heap))
		return false;
	heap_count_left(heap, bytes);
	return true;
}

static void *heap_take_or_leave(struct tpy_numpy_heap *heap, size_t bytes)
{
	void *data;

	if (heap_leaves(heap, bytes, &data))
		return below(heap)->allocate(below(heap)->context, bytes);
	return data;
}

/* ---- blocks that change their size: with the GIL ---- */

/*
 * One of ours stays one, whatever its size. Growing it takes a quarter more, so that what grows in
 * small steps (a text that is read) is not copied at each. No step of Python's comes between the
 * copy and NumPy's own use of the new address, or a write would be lost.
 */
static void *block_resize(struct tpy_numpy_heap *heap, struct tidl_tensor *tensor, size_t bytes)
{
	size_t had_bytes = (size_t)tidl_tensor_nbytes(tensor);
	void *data = tidl_tensor_data(tensor);
	void *other = NULL;
	size_t roomy_bytes;

	if (bytes <= had_bytes && (size_t)whole_pages(bytes) > had_bytes / 2)
		return data;
	struct tpy_numpy_move *move = tpy_numpy_move_begin(data);
	if (!move)
		return NULL;
	if (bytes > had_bytes && !heap_is_passed(heap) &&
	    !__builtin_add_overflow(bytes, bytes / 4, &roomy_bytes))
		other = heap_take(heap, roomy_bytes);
	if (!other)
		other = heap_take_or_leave(heap, bytes);
	if (!tpy_numpy_move_end(move)) {
		numpy_release(heap, other, bytes);
		return NULL;
	}
	if (!other)
		return bytes <= had_bytes ? data : NULL;
	memcpy(other, data, bytes < had_bytes ? bytes : had_bytes);
	numpy_release(heap, data, had_bytes);
	return other;
}

/* One of theirs has become large enough. How large it was they alone know, so it grows there. */
static void *block_adopt(struct tpy_numpy_heap *heap, void *data, size_t bytes)
{
	struct tpy_numpy_move *move = tpy_numpy_move_begin(data);
	void *ours;
	void *theirs;

	if (!move)
		return NULL;
	bool is_refused = !heap_leaves(heap, bytes, &ours) && !ours;
	if (!tpy_numpy_move_end(move) || is_refused) {
		(void)tpy_numpy_blocks_release(ours);
		return NULL;
	}
	tpy_numpy_move_forestall(data);
	theirs = below(heap)->resize(below(heap)->context, data, bytes);
	if (!ours || !theirs) {
		(void)tpy_numpy_blocks_release(ours);
		return theirs;
	}
	memcpy(ours, theirs, bytes);
	below(heap)->release(below(heap)->context, theirs, bytes);
	return ours;
}

/* ---- what NumPy calls: with or without the GIL ---- */

static void *numpy_allocate(void *context, size_t bytes)
{
	struct tpy_numpy_heap *heap = context;

	if (!heap_wants(heap, bytes)) {
		heap_count_left(heap, bytes);
		return below(heap)->allocate(below(heap)->context, bytes);
	}
	PyGILState_STATE before = PyGILState_Ensure();
	void *data = heap_take_or_leave(heap, bytes);
	PyGILState_Release(before);
	return data;
}

static void *numpy_allocate_zeroed(void *context, size_t count, size_t element_bytes)
{
	struct tpy_numpy_heap *heap = context;
	size_t bytes;

	if (__builtin_mul_overflow(count, element_bytes, &bytes))
		return NULL;
	if (!heap_wants(heap, bytes)) {
		heap_count_left(heap, bytes);
		return below(heap)->allocate_zeroed(below(heap)->context, count, element_bytes);
	}
	PyGILState_STATE before = PyGILState_Ensure();
	void *data; /* new segments are zeroed */
	if (heap_leaves(heap, bytes, &data))
		data = below(heap)->allocate_zeroed(below(heap)->context, count, element_bytes);
	PyGILState_Release(before);
	return data;
}

static void *numpy_resize(void *context, void *data, size_t bytes)
{
	struct tpy_numpy_heap *heap = context;
	struct tidl_tensor *tensor = tpy_numpy_blocks_find(data);

	if (!tensor && !data)
		return numpy_allocate(context, bytes);
	if (!tensor && !heap_wants(heap, bytes)) {
		tpy_numpy_move_forestall(data);
		return below(heap)->resize(below(heap)->context, data, bytes);
	}
	PyGILState_STATE before = PyGILState_Ensure();
	void *other = tensor ? block_resize(heap, tensor, bytes) : block_adopt(heap, data, bytes);
	tidl_tensor_unref(tensor);
	PyGILState_Release(before);
	return other;
}

static void numpy_release(void *context, void *data, size_t bytes)
{
	struct tpy_numpy_heap *heap = context;

	tpy_numpy_move_forestall(data);
	if (!tpy_numpy_blocks_release(data))
		below(heap)->release(below(heap)->context, data, bytes);
}
