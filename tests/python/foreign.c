/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A producer and a consumer of DLPack in C, loaded by fake_foreign.py: deleters on threads that
 * never saw Python, at exit, under a framework's own lock; structures that nobody may touch once
 * they are deleted. Knows nothing of tidl but what DLPack says.
 */
#include "tests/python/foreign.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <dlpack/dlpack.h>

/* From the interpreter: whether the calling thread holds the GIL. */
extern int PyGILState_Check(void);

/* What either kind of capsule holds, and the deleter that is inside it. */
struct tt_victim {
	void *managed;
	void (*deleter)(void *managed);
	int count; /* calls to make */
};

/* ---- consumer ---- */

static void *victim_delete(void *argument)
{
	const struct tt_victim *victim = argument;

	for (int i = 0; i < victim->count; i++)
		victim->deleter(victim->managed);
	return NULL;
}

int tt_delete_on_thread(void *managed, void (*deleter)(void *), int count)
{
	struct tt_victim victim = {managed, deleter, count};
	pthread_t thread;

	if (pthread_create(&thread, NULL, victim_delete, &victim))
		return -1;
	return pthread_join(thread, NULL);
}

static struct tt_victim last;
static int last_fd;

static void delete_last(void)
{
	static const char gone[] = "unmapped\n", there[] = "still mapped\n";
	const DLManagedTensorVersioned *managed = last.managed;
	void *page = managed->dl_tensor.data; /* of a whole tensor */

	victim_delete(&last);
	int is_gone = msync(page, 1, MS_ASYNC) && errno == ENOMEM;
	if (write(last_fd, is_gone ? gone : there, strlen(is_gone ? gone : there)) < 0)
		_exit(1);
}

int tt_delete_at_exit(void *managed, void (*deleter)(void *), int count, int fd)
{
	last = (struct tt_victim){managed, deleter, count};
	last_fd = fd;
	return atexit(delete_last);
}

/* ---- producer ---- */

/* One page: any look at it after its deleter is a crash. */
struct tt_producer {
	union {
		DLManagedTensorVersioned versioned;
		DLManagedTensor legacy;
	} managed;
	int64_t shape[1];
	int64_t strides[1];
	struct tt_victim next; /* deleted by this one's deleter, when there is one */
};

static atomic_int deleted_count, without_gil_count;
static pthread_mutex_t framework_lock = PTHREAD_MUTEX_INITIALIZER;

static void producer_delete(void *page)
{
	struct tt_producer *producer = page;

	atomic_fetch_add(&deleted_count, 1);
	if (!PyGILState_Check())
		atomic_fetch_add(&without_gil_count, 1);
	if (producer->next.managed) {
		/* As Paddle, which holds a lock of its own around what deleters do. The other
		 * deleter may want neither that, nor the GIL, nor what our caller holds. */
		pthread_mutex_lock(&framework_lock);
		(void)tt_delete_on_thread(producer->next.managed, producer->next.deleter,
					  producer->next.count);
		pthread_mutex_unlock(&framework_lock);
	}
	mprotect(page, (size_t)sysconf(_SC_PAGESIZE), PROT_NONE);
}

static void producer_delete_versioned(DLManagedTensorVersioned *managed)
{
	producer_delete(managed->manager_ctx);
}

static void producer_delete_legacy(DLManagedTensor *managed)
{
	producer_delete(managed->manager_ctx);
}

void *tt_producer_new(int is_versioned, void *data, int64_t count)
{
	void *page = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		return NULL;
	struct tt_producer *producer = page;
	producer->shape[0] = count;
	producer->strides[0] = 1;
	DLTensor tensor = {
		.data = data,
		.device = {kDLCPU, 0},
		.ndim = 1,
		.dtype = {kDLFloat, 32, 1},
		.shape = producer->shape,
		.strides = producer->strides,
	};
	if (is_versioned)
		producer->managed.versioned = (DLManagedTensorVersioned){
			.version = {1, 1},
			.manager_ctx = page,
			.deleter = producer_delete_versioned,
			.dl_tensor = tensor,
		};
	else
		producer->managed.legacy = (DLManagedTensor){
			.dl_tensor = tensor,
			.manager_ctx = page,
			.deleter = producer_delete_legacy,
		};
	return page;
}

void tt_producer_chain(void *page, void *managed, void (*deleter)(void *), int count)
{
	struct tt_producer *producer = page;

	producer->next = (struct tt_victim){managed, deleter, count};
}

void tt_producer_free(void *page)
{
	munmap(page, (size_t)sysconf(_SC_PAGESIZE));
}

int tt_deleted_count(void)
{
	return atomic_load(&deleted_count);
}

int tt_without_gil_count(void)
{
	return atomic_load(&without_gil_count);
}
