/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory that NumPy has from us: tensors by the address of their first byte. Arrays are freed
 * on any thread, some without the GIL, so a lock guards the table. It is held for look-ups only,
 * never in a call to libtidl or Python, and a fork waits for it: a child frees its arrays as its
 * parent does, and libtidl sees to it that the child gives nothing of the parent's back.
 *
 * Also what NumPy is about to move, ours or not.
 */
#include "client/python/src/_core/numpy_memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

struct tpy_numpy_block {
	void *data;
	struct tidl_tensor *tensor;
	struct tpy_numpy_heap *heap;
	UT_hash_handle hh;
};

/* Not on the stack of who waits: a forked child has the list, and the stacks no more. */
struct tpy_numpy_move {
	const void *data;
	bool is_forestalled;
	struct tpy_numpy_move *next;
};

static pthread_mutex_t blocks_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t blocks_once = PTHREAD_ONCE_INIT;
static struct tpy_numpy_block *blocks;
static struct tpy_numpy_move *moves;
static atomic_uint moves_count; /* most of what NumPy frees needs no lock for them either */

static void lock(void)
{
	pthread_mutex_lock(&blocks_lock);
}

static void unlock(void)
{
	pthread_mutex_unlock(&blocks_lock);
}

static void blocks_init(void)
{
	(void)pthread_atfork(lock, unlock, unlock);
}

/* What is not on a page boundary needs no look, nor a lock: most of what NumPy frees. */
static bool may_be_ours(const void *data)
{
	uintptr_t mask = (uintptr_t)sysconf(_SC_PAGESIZE) - 1;

	return data && ((uintptr_t)data & mask) == 0;
}

int tpy_numpy_blocks_add(struct tpy_numpy_heap *heap, struct tidl_tensor *tensor)
{
	struct tpy_numpy_block *block = calloc(1, sizeof(*block));
	size_t bytes = (size_t)tidl_tensor_nbytes(tensor);
	bool is_added;

	if (!block)
		return -1;
	block->data = tidl_tensor_data(tensor);
	block->tensor = tensor;
	block->heap = heap;
	(void)pthread_once(&blocks_once, blocks_init);
	lock();
	HASH_ADD_PTR(blocks, data, block);
	is_added = block->hh.tbl != NULL;
	unlock();
	if (!is_added) {
		free(block);
		return -1;
	}
	(void)tpy_numpy_heap_ref(heap);
	atomic_fetch_add(&heap->array_count, 1);
	atomic_fetch_add(&heap->array_bytes, bytes);
	atomic_fetch_add(&heap->total_count, 1);
	atomic_fetch_add(&heap->total_bytes, bytes);
	return 0;
}

struct tidl_tensor *tpy_numpy_blocks_find(void *data)
{
	struct tpy_numpy_block *block = NULL;
	struct tidl_tensor *tensor;

	if (!may_be_ours(data))
		return NULL;
	lock();
	HASH_FIND_PTR(blocks, &data, block);
	tensor = block ? tidl_tensor_ref(block->tensor) : NULL;
	unlock();
	return tensor;
}

bool tpy_numpy_blocks_release(void *data)
{
	struct tpy_numpy_block *block = NULL;

	if (!may_be_ours(data))
		return false;
	lock();
	HASH_FIND_PTR(blocks, &data, block);
	if (block)
		HASH_DEL(blocks, block);
	unlock();
	if (!block)
		return false;
	atomic_fetch_sub(&block->heap->array_count, 1);
	atomic_fetch_sub(&block->heap->array_bytes, (size_t)tidl_tensor_nbytes(block->tensor));
	tidl_tensor_unref(block->tensor);
	tpy_numpy_heap_unref(block->heap);
	free(block);
	return true;
}

struct tpy_numpy_move *tpy_numpy_move_begin(const void *data)
{
	struct tpy_numpy_move *move = calloc(1, sizeof(*move));

	if (!move)
		return NULL;
	move->data = data;
	(void)pthread_once(&blocks_once, blocks_init);
	lock();
	move->next = moves;
	moves = move;
	atomic_fetch_add(&moves_count, 1);
	unlock();
	return move;
}

bool tpy_numpy_move_end(struct tpy_numpy_move *move)
{
	struct tpy_numpy_move **link = &moves;
	bool is_forestalled;

	lock();
	while (*link != move)
		link = &(*link)->next;
	*link = move->next;
	atomic_fetch_sub(&moves_count, 1);
	is_forestalled = move->is_forestalled;
	unlock();
	free(move);
	return !is_forestalled;
}

void tpy_numpy_move_forestall(const void *data)
{
	if (atomic_load(&moves_count) == 0)
		return;
	lock();
	for (struct tpy_numpy_move *move = moves; move; move = move->next)
		move->is_forestalled |= move->data == data;
	unlock();
}
