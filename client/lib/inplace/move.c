/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages of a memfd under somebody else's pointer. Each piece is stopped for writers, copied, mapped
 * over and released; all signals wait meanwhile, since a handler that writes there would wait for
 * its own thread. Nothing here allocates while writers are stopped: they may hold malloc's lock.
 */
#include "client/lib/inplace/move.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/lib/inplace/guard.h"
#include "proto/mem/memfd.h"

tdc_move_hook_fn tdc_move_hook;

static pthread_mutex_t moves_mutex = PTHREAD_MUTEX_INITIALIZER;

void tdc_moves_lock(void)
{
	pthread_mutex_lock(&moves_mutex);
}

void tdc_moves_unlock(void)
{
	pthread_mutex_unlock(&moves_mutex);
}

int tdc_backing_identify(struct tdc_backing *backing, struct tdp_fault *fault)
{
	struct stat status;

	if (fstat(backing->fd, &status) < 0)
		return tdp_fault_errno(fault, errno, "cannot look at shared memory");
	backing->file = (struct tdc_map){
		.device = status.st_dev,
		.inode = status.st_ino,
		.offset_bytes = backing->offset_bytes,
	};
	return 0;
}

static int hook_ask(size_t offset_bytes, bool is_back)
{
	return tdc_move_hook != NULL ? tdc_move_hook(offset_bytes / TDC_PIECE_BYTES, is_back) : 0;
}

static void signals_block(sigset_t *ret_before)
{
	sigset_t all;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, ret_before);
}

static void signals_restore(const sigset_t *before)
{
	(void)pthread_sigmask(SIG_SETMASK, before, NULL);
}

/* ---- there ---- */

/* Writing through the descriptor is twice as fast as through a map, but must not meet a limit of
 * the file size, which would end the process. */
static bool backing_can_write(const struct tdc_backing *backing, size_t size_bytes)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
	       limit.rlim_cur >= backing->offset_bytes + size_bytes;
}

static int bytes_write(int fd, const unsigned char *source, size_t size_bytes, off_t offset)
{
	size_t done = 0;

	while (done < size_bytes) {
		ssize_t written =
			pwrite(fd, source + done, size_bytes - done, offset + (off_t)done);

		if (written > 0)
			done += (size_t)written;
		else if (written == 0)
			return ENOSPC;
		else if (errno != EINTR)
			return errno;
	}
	return 0;
}

static int bytes_write_mapped(int fd, const unsigned char *source, size_t size_bytes, off_t offset)
{
	void *target;

	if (fallocate(fd, FALLOC_FL_KEEP_SIZE, offset, (off_t)size_bytes) < 0)
		return errno;
	target = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);
	if (target == MAP_FAILED)
		return errno;
	memcpy(target, source, size_bytes);
	(void)munmap(target, size_bytes);
	return 0;
}

static int piece_copy(const struct tdc_backing *backing, const unsigned char *piece,
		      size_t size_bytes, off_t offset)
{
	return backing_can_write(backing, (size_t)offset + size_bytes)
		       ? bytes_write(backing->fd, piece, size_bytes, offset)
		       : bytes_write_mapped(backing->fd, piece, size_bytes, offset);
}

/* 0 or an errno, with the piece as it was. Writers are stopped. */
static int piece_exchange(const struct tdc_backing *backing, unsigned char *piece,
			  size_t size_bytes, off_t offset)
{
	int error = piece_copy(backing, piece, size_bytes, offset);

	if (error != 0)
		return error;
	if (mmap(piece, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, backing->fd,
		 offset) == MAP_FAILED)
		return errno;
	return 0;
}

static int piece_move(const struct tdc_range *range, const struct tdc_backing *backing,
		      const struct tdc_guard *guard, size_t size_bytes)
{
	unsigned char *piece = range->begin + range->shared_bytes;
	off_t offset = (off_t)(backing->offset_bytes + range->shared_bytes);
	sigset_t before;
	int error = hook_ask(range->shared_bytes, false);

	if (error != 0)
		return error;
	signals_block(&before);
	error = tdc_guard_stop(guard, piece, size_bytes);
	if (error == 0) {
		error = piece_exchange(backing, piece, size_bytes, offset);
		tdc_guard_release(guard, piece, size_bytes, error != 0);
	}
	signals_restore(&before);
	return error;
}

static size_t range_piece_bytes(const struct tdc_range *range)
{
	size_t left = range->size_bytes - range->shared_bytes;

	return left < TDC_PIECE_BYTES ? left : TDC_PIECE_BYTES;
}

static int move_fail(int error, const struct tdc_range *range, struct tdp_fault *fault)
{
	if (error == ENOSPC || error == ENOMEM)
		return tdp_fault_set(fault, TIDL_ERR_NO_MEMORY,
				     "the system has no memory to move %zu bytes into a segment: "
				     "free some, or raise the memory limit of this process's "
				     "cgroup",
				     range->size_bytes);
	if (error == ENOENT || error == EFAULT)
		return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT,
				     "the memory was freed while it was moved into a segment: "
				     "keep the tensor until publish has returned");
	return tdp_fault_errno(fault, error, "cannot move %zu bytes into a segment",
			       range->size_bytes);
}

void tdc_range_mark(struct tdc_range *range)
{
	size_t page_bytes = tdp_page_bytes();

	range->is_marked = range->size_bytes > page_bytes &&
			   madvise(range->begin, page_bytes, MADV_RANDOM) == 0;
}

bool tdc_range_is_there(const struct tdc_maps *maps, const struct tdc_range *range,
			size_t size_bytes, const struct tdc_map *file)
{
	uintptr_t begin = (uintptr_t)range->begin;

	return tdc_maps_show_file(maps, begin, begin + size_bytes, file) &&
	       (!range->is_marked || tdc_maps_have_edge(maps, begin + tdp_page_bytes()));
}

static int move_pieces(struct tdc_range *range, const struct tdc_backing *backing,
		       const struct tdc_guard *guard, struct tdp_fault *fault)
{
	while (range->shared_bytes < range->size_bytes) {
		size_t size_bytes = range_piece_bytes(range);
		int error = piece_move(range, backing, guard, size_bytes);

		if (error != 0)
			return move_fail(error, range, fault);
		if (range->shared_bytes == 0)
			tdc_range_mark(range);
		range->shared_bytes += size_bytes;
	}
	return 0;
}

int tdc_move(struct tdc_range *range, const struct tdc_backing *backing, struct tdp_fault *fault)
{
	struct tdc_guard guard;
	struct tdp_fault unused;
	int r;

	r = tdc_guard_open(&guard, range->begin, range->size_bytes, false, fault);
	if (r < 0 && !backing->nobody_writes)
		return r;
	r = move_pieces(range, backing, &guard, fault);
	tdc_guard_close(&guard);
	/* If even that fails, the owner goes on with pages that nobody else has. */
	if (r < 0)
		(void)!tdc_unmove(range, backing, &unused);
	return r;
}

/* ---- and back ---- */

/* Holes that another writer has punched are filled here, where a failure is no crash. */
static int piece_return_copy(const struct tdc_range *range, unsigned char *piece,
			     unsigned char *stage, size_t size_bytes)
{
	if (madvise(piece, size_bytes, MADV_POPULATE_READ) < 0)
		return errno;
	if (madvise(stage, size_bytes, MADV_POPULATE_WRITE) < 0)
		return errno;
	memcpy(stage, piece, size_bytes);
	if (range->header != NULL && piece == range->begin)
		memcpy(stage + (range->header - range->begin), range->saved_header,
		       TDC_HEADER_BYTES);
	return 0;
}

static int piece_return(const struct tdc_range *range, const struct tdc_guard *guard,
			unsigned char *stage, size_t begin_bytes, size_t size_bytes)
{
	unsigned char *piece = range->begin + begin_bytes;
	sigset_t before;
	int error = hook_ask(begin_bytes, true);

	if (error != 0)
		return error;
	signals_block(&before);
	error = tdc_guard_stop(guard, piece, size_bytes);
	if (error == 0) {
		error = piece_return_copy(range, piece, stage + begin_bytes, size_bytes);
		if (error == 0 && mremap(stage + begin_bytes, size_bytes, size_bytes,
					 MREMAP_MAYMOVE | MREMAP_FIXED, piece) == MAP_FAILED)
			error = errno;
		tdc_guard_release(guard, piece, size_bytes, error != 0);
	}
	signals_restore(&before);
	return error;
}

static int unmove_pieces(struct tdc_range *range, const struct tdc_guard *guard,
			 unsigned char *stage, struct tdp_fault *fault)
{
	while (range->shared_bytes > 0) {
		size_t begin_bytes = (range->shared_bytes - 1) / TDC_PIECE_BYTES * TDC_PIECE_BYTES;
		size_t size_bytes = range->shared_bytes - begin_bytes;
		int error = piece_return(range, guard, stage, begin_bytes, size_bytes);

		if (error != 0)
			return tdp_fault_errno(fault, error,
					       "cannot make %zu bytes private again; try again "
					       "when there is memory",
					       range->size_bytes);
		range->shared_bytes = begin_bytes;
	}
	return 0;
}

/* The owner may have freed the memory, and something else may lie there now. */
static int unmove_check(const struct tdc_range *range, const struct tdc_backing *backing,
			struct tdp_fault *fault)
{
	struct tdc_maps maps;
	bool is_there;
	int r = tdc_maps_load(&maps, fault);

	if (r < 0)
		return r;
	is_there = tdc_range_is_there(&maps, range, range->shared_bytes, &backing->file);
	tdc_maps_deinit(&maps);
	return is_there ? 0
			: tdp_fault_set(fault, TIDL_ERR_RELEASED,
					"the memory was freed by its owner, so it cannot become "
					"private again: nothing is left to do");
}

int tdc_unmove(struct tdc_range *range, const struct tdc_backing *backing, struct tdp_fault *fault)
{
	struct tdc_guard guard;
	size_t stage_bytes = range->shared_bytes;
	unsigned char *stage;
	int r;

	if (stage_bytes == 0)
		return 0;
	r = unmove_check(range, backing, fault);
	if (r < 0)
		return r;
	/* One reservation for all, so that its pieces become one map again. */
	stage = mmap(NULL, stage_bytes, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (stage == MAP_FAILED)
		return tdp_fault_errno(fault, errno, "cannot reserve %zu bytes", stage_bytes);
	r = tdc_guard_open(&guard, range->begin, stage_bytes, true, fault);
	if (r == 0 || backing->nobody_writes)
		r = unmove_pieces(range, &guard, stage, fault);
	tdc_guard_close(&guard);
	if (range->shared_bytes > 0)
		(void)munmap(stage, range->shared_bytes);
	return r;
}
