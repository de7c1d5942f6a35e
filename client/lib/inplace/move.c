/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages of a memfd under somebody else's pointer. Each piece is stopped for writers, copied, mapped
 * over and released; all signals wait meanwhile, since a handler that writes there would wait for
 * its own thread. Nothing here allocates while writers are stopped: they may hold malloc's lock.
 * The way back: retreat.c.
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
#include "client/lib/inplace/provisions.h"
#include "client/lib/inplace/retreat.h"
#include "proto/mem/memfd.h"

tdc_move_hook_fn tdc_move_hook;

static pthread_mutex_t moves_mutex = PTHREAD_MUTEX_INITIALIZER;

void tdc_moves_lock(void)
{
	pthread_mutex_lock(&moves_mutex);
	tdc_provisions_look_anew();
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
		.is_shared = true,
	};
	return 0;
}

int tdc_move_ask(enum tdc_move_step step, size_t offset_bytes)
{
	return tdc_move_hook != NULL ? tdc_move_hook(step, offset_bytes / TDC_PIECE_BYTES) : 0;
}

void tdc_signals_block(sigset_t *ret_before)
{
	sigset_t all;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, ret_before);
}

void tdc_signals_restore(const sigset_t *before)
{
	(void)pthread_sigmask(SIG_SETMASK, before, NULL);
}

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
	int error = tdc_move_ask(TDC_MOVE_THERE, range->shared_bytes);

	if (error != 0)
		return error;
	tdc_signals_block(&before);
	error = tdc_guard_stop(guard, piece, size_bytes);
	if (error == 0) {
		error = piece_exchange(backing, piece, size_bytes, offset);
		tdc_guard_release(guard, piece, size_bytes, error != 0);
	}
	tdc_signals_restore(&before);
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
		return tdp_fault_set(
			fault, TIDL_ERR_NO_MEMORY,
			"the system has no memory to move %zu bytes into a segment, or "
			"this process has too many maps: free some, or raise the "
			"memory limit of its cgroup (vm.max_map_count)",
			range->size_bytes);
	if (error == ENOENT || error == EFAULT)
		return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT,
				     "the memory was freed while it was moved into a segment: "
				     "keep the tensor until publish has returned");
	return tdp_fault_errno(fault, error, "cannot move %zu bytes into a segment",
			       range->size_bytes);
}

bool tdc_range_mark(struct tdc_range *range)
{
	size_t page_bytes = tdp_page_bytes();

	range->is_marked = range->size_bytes > page_bytes &&
			   madvise(range->begin, page_bytes, MADV_RANDOM) == 0;
	return range->is_marked || range->size_bytes <= page_bytes;
}

static int move_pieces(struct tdc_range *range, const struct tdc_backing *backing,
		       const struct tdc_guard *guard, struct tdp_fault *fault)
{
	while (range->shared_bytes < range->size_bytes) {
		size_t size_bytes = range_piece_bytes(range);
		int error = piece_move(range, backing, guard, size_bytes);

		if (error != 0)
			return move_fail(error, range, fault);
		range->shared_bytes += size_bytes;
		if (range->shared_bytes == size_bytes && !tdc_range_mark(range))
			return move_fail(ENOMEM, range, fault);
	}
	return 0;
}

void tdc_move_undo(struct tdc_range *range, const struct tdc_backing *backing)
{
	struct tdp_fault unused;

	range->header = NULL;
	(void)!tdc_unmove(range, backing, &unused);
}

int tdc_move(struct tdc_range *range, const struct tdc_backing *backing, struct tdp_fault *fault)
{
	struct tdc_guard guard;
	int r;

	r = tdc_guard_open(&guard, range->begin, range->size_bytes, fault);
	if (r < 0 && !backing->nobody_writes)
		return r;
	r = move_pieces(range, backing, &guard, fault);
	tdc_guard_close(&guard);
	if (r < 0)
		tdc_move_undo(range, backing);
	return r;
}
