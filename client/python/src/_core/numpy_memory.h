/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TIDL_PYTHON_NUMPY_MEMORY_H
#define TIDL_PYTHON_NUMPY_MEMORY_H

/*
 * What the files behind `tidl.numpy_allocator()` share. NumPy's part of it (its functions and the
 * layout of a memory handler, NEP 49) is looked up when it is used, so that neither building nor
 * running needs NumPy: docs/decisions/0021.
 */
#include "client/python/src/_core/core.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* NumPy's name for capsules of handlers. */
#define TPY_NUMPY_CAPSULE "mem_handler"

/* What NumPy calls. Its ABI since 1.22, as the next. */
struct tpy_numpy_functions {
	void *context;
	void *(*allocate)(void *context, size_t bytes);
	void *(*allocate_zeroed)(void *context, size_t count, size_t element_bytes);
	void *(*resize)(void *context, void *data, size_t bytes);
	void (*release)(void *context, void *data, size_t bytes);
};

struct tpy_numpy_handler {
	char name[127];
	uint8_t version;
	struct tpy_numpy_functions functions;
};

/* numpy_api.c */
struct tpy_numpy_api {
	PyObject *(*set_handler)(PyObject *capsule); /* returns a reference to the one before */
	PyObject *(*get_handler)(void);
};

/* From NumPy's capsule `_ARRAY_API`. -1: UNSUPPORTED is raised. */
int tpy_numpy_open(const struct tpy_state *state, PyObject *capsule, struct tpy_numpy_api *ret_api);

/*
 * A handler of ours: whose client's memory, from which size on, what is below it, and what it has
 * done. Kept by the capsule, hence by each array that was made with it, by each block, and by the
 * report. NumPy finds it through the capsule, so the handler comes first.
 */
struct tpy_numpy_heap {
	struct tpy_numpy_handler handler;
	atomic_size_t refs;
	size_t min_bytes;

	/* With the GIL. */
	struct tpy_client *client; /* NULL: the block of the `with` has ended, or not begun */
	PyObject *below_capsule;   /* the handler before; gone with our capsule */
	const struct tpy_numpy_handler *below;
	PyObject **error; /* the report's: why it was refused last; NULL without a report */
	bool is_refused;  /* what was asked for last */

	atomic_bool has_ended;
	atomic_size_t array_count;
	atomic_size_t array_bytes;
	atomic_size_t total_count;
	atomic_size_t total_bytes;
	atomic_size_t small_count;
	atomic_size_t late_count;
	atomic_size_t interrupted_count;
};

/* numpy_heap.c. One reference; NULL: an exception is set. */
struct tpy_numpy_heap *tpy_numpy_heap_new(struct tpy_client *client, size_t min_bytes);
struct tpy_numpy_heap *tpy_numpy_heap_ref(struct tpy_numpy_heap *heap);
void tpy_numpy_heap_unref(struct tpy_numpy_heap *heap); /* any thread, without the GIL too */

/* A capsule for NumPy, over `below`. NULL: an exception is set. */
PyObject *tpy_numpy_heap_open(struct tpy_numpy_heap *heap, PyObject *below);

/* The handler to go back to, borrowed: the next one below that has not ended, if it is ours. */
PyObject *tpy_numpy_heap_below(const struct tpy_numpy_heap *heap);

/* From now on everything new is left to the handler below. */
void tpy_numpy_heap_end(struct tpy_numpy_heap *heap);

/*
 * numpy_blocks.c: the blocks that NumPy has now, by address. Any thread, without the GIL too, and
 * in a forked child.
 */
struct tpy_numpy_block;

/* Takes the tensor over and holds the heap; -1 without memory. */
int tpy_numpy_blocks_add(struct tpy_numpy_heap *heap, struct tidl_tensor *tensor);

/* One reference to the tensor that begins there, or NULL. */
struct tidl_tensor *tpy_numpy_blocks_find(void *data);

/* Gives it back; false: nothing of ours begins there. */
bool tpy_numpy_blocks_release(void *data);

/*
 * Memory whose resizing waits for other memory: while it does, another thread, or the handler of a
 * signal, may resize the same array or have it freed, and does not wait for us.
 */
struct tpy_numpy_move;

struct tpy_numpy_move *tpy_numpy_move_begin(const void *data); /* NULL without memory */
bool tpy_numpy_move_end(struct tpy_numpy_move *move);	       /* false: it was forestalled */
void tpy_numpy_move_forestall(const void *data); /* whoever waits to move that comes too late */

/* numpy_allocator.c */
PyTypeObject *tpy_numpy_allocator_type_new(PyObject *module);

#endif
