/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that was moved becomes private again. The process may be at its limits by then, so there
 * are three ways, of which each needs less than the one before:
 *
 * 1. Copy each piece into fresh private pages while its writers are stopped, and put those in its
 *    place. Leaves nothing behind.
 * 2. Map the segment privately at the same place, and have the kernel copy each page as if it had
 *    been written. Needs neither a guard, since a write at any moment goes to where it belongs, nor
 *    addresses; but the segment stays as long as that map does.
 * 3. malloc's header alone. The rest stays shared.
 */
#include "client/lib/inplace/retreat.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include "client/lib/inplace/guard.h"
#include "client/lib/inplace/provisions.h"
#include "proto/mem/memfd.h"

/* A range is one map, or two (tdc_range_mark()); its owner may have cut it a little. */
enum { RANGE_MAPS_MAX = 64 };

size_t tdc_range_left_bytes(const struct tdc_maps *maps, const struct tdc_range *range,
			    size_t size_bytes, const struct tdc_map *file)
{
	uintptr_t begin = (uintptr_t)range->begin;

	if (range->is_marked && !tdc_maps_have_edge(maps, begin + tdp_page_bytes()))
		return 0;
	return tdc_maps_file_bytes(maps, begin, begin + size_bytes, file);
}

/* The end of it was given back. That was realloc(), if it is malloc's: then the block has so much
 * less by now, and by its old size free() would take what lies behind it with it. */
static void range_cut(struct tdc_range *range, size_t left_bytes)
{
	size_t words[2]; /* what lies before in the map, and the size with its flags */

	memcpy(words, range->saved_header, sizeof(words));
	words[1] -= range->shared_bytes - left_bytes;
	memcpy(range->saved_header, words, sizeof(words));
	range->shared_bytes = left_bytes;
}

/* The owner may have freed the memory, or some of it, and something else may lie there now. */
static int unmove_check(struct tdc_range *range, const struct tdc_backing *backing,
			struct tdp_fault *fault)
{
	struct tdc_map found[RANGE_MAPS_MAX];
	struct tdc_maps maps = {.capacity = RANGE_MAPS_MAX, .maps = found};
	struct tdc_map file = backing->file;
	uintptr_t begin = (uintptr_t)range->begin;
	int error;
	struct tdc_maps_view *view = tdc_provisions_view(&error);
	size_t left_bytes;
	int r;

	if (view == NULL)
		return tdp_fault_errno(fault, error, "cannot read /proc/self/maps");
	r = tdc_maps_look(view, begin, begin + range->shared_bytes, &maps, fault);
	if (r < 0)
		return r;
	file.is_shared = !range->is_apart;
	left_bytes = tdc_range_left_bytes(&maps, range, range->shared_bytes, &file);
	if (left_bytes == 0)
		return tdp_fault_set(fault, TIDL_ERR_RELEASED,
				     "the memory was freed by its owner, so it cannot become "
				     "private again: nothing is left to do");
	if (left_bytes < range->shared_bytes)
		range_cut(range, left_bytes);
	return 0;
}

static int retreat_fail(int error, const struct tdc_range *range, struct tdp_fault *fault)
{
	return tdp_fault_errno(
		fault, error, "cannot make %zu bytes private again; try again when there is memory",
		range->size_bytes);
}

static void header_put(const struct tdc_range *range, unsigned char *page)
{
	if (range->header != NULL)
		memcpy(page + (range->header - range->begin), range->saved_header,
		       TDC_HEADER_BYTES);
}

/* ---- 1 ---- */

/* Holes that another writer has punched are filled here, where a failure is no crash. */
static int piece_return_copy(const struct tdc_range *range, unsigned char *piece,
			     unsigned char *stage, size_t size_bytes)
{
	if (madvise(piece, size_bytes, MADV_POPULATE_READ) < 0)
		return errno;
	if (madvise(stage, size_bytes, MADV_POPULATE_WRITE) < 0)
		return errno;
	memcpy(stage, piece, size_bytes);
	if (piece == range->begin)
		header_put(range, stage);
	return 0;
}

static int piece_return(const struct tdc_range *range, const struct tdc_guard *guard,
			unsigned char *stage, size_t begin_bytes, size_t size_bytes)
{
	unsigned char *piece = range->begin + begin_bytes;
	sigset_t before;
	int error = tdc_move_ask(TDC_MOVE_BACK, begin_bytes);

	if (error != 0)
		return error;
	tdc_signals_block(&before);
	error = tdc_guard_stop(guard, piece, size_bytes);
	if (error == 0) {
		error = piece_return_copy(range, piece, stage + begin_bytes, size_bytes);
		if (error == 0 && mremap(stage + begin_bytes, size_bytes, size_bytes,
					 MREMAP_MAYMOVE | MREMAP_FIXED, piece) == MAP_FAILED)
			error = errno;
		tdc_guard_release(guard, piece, size_bytes, error != 0);
	}
	tdc_signals_restore(&before);
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
			return retreat_fail(error, range, fault);
		range->shared_bytes = begin_bytes;
	}
	return 0;
}

static int unmove_copied(struct tdc_range *range, const struct tdc_backing *backing,
			 struct tdp_fault *fault)
{
	size_t stage_bytes = range->shared_bytes;
	struct tdc_guard guard;
	unsigned char *stage;
	int r;

	/* One reservation for all, so that its pieces become one map again. */
	stage = mmap(NULL, stage_bytes, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (stage == MAP_FAILED)
		return tdp_fault_errno(fault, errno, "cannot reserve %zu bytes", stage_bytes);
	r = tdc_guard_open(&guard, range->begin, stage_bytes, fault);
	if (r == 0 || backing->nobody_writes)
		r = unmove_pieces(range, &guard, stage, fault);
	tdc_guard_close(&guard);
	if (range->shared_bytes > 0)
		(void)munmap(stage, range->shared_bytes);
	return r;
}

/* ---- 2 ---- */

/* 0 or an errno. The first page comes first: it has the header. */
static int pages_take(const struct tdc_range *range)
{
	size_t page_bytes = tdp_page_bytes();

	if (madvise(range->begin, page_bytes, MADV_POPULATE_WRITE) < 0)
		return errno;
	header_put(range, range->begin);
	return madvise(range->begin, range->shared_bytes, MADV_POPULATE_WRITE) < 0 ? errno : 0;
}

static int unmove_apart(struct tdc_range *range, const struct tdc_backing *backing,
			struct tdp_fault *fault)
{
	int error = tdc_move_ask(TDC_MOVE_APART, 0);

	if (error != 0)
		return retreat_fail(error, range, fault);
	/* Locked pages would be counted twice for a moment. */
	(void)munlock(range->begin, range->shared_bytes);
	if (!range->is_apart && mmap(range->begin, range->shared_bytes, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, backing->fd,
				     (off_t)backing->offset_bytes) == MAP_FAILED)
		return retreat_fail(errno, range, fault);
	range->is_apart = true;
	range->is_marked = false;
	error = pages_take(range);
	if (error != 0)
		return retreat_fail(error, range, fault);
	range->shared_bytes = 0;
	return 0;
}

int tdc_unmove(struct tdc_range *range, const struct tdc_backing *backing, struct tdp_fault *fault)
{
	int r;

	if (range->shared_bytes == 0)
		return 0;
	r = unmove_check(range, backing, fault);
	if (r < 0)
		return r;
	if (!range->is_apart) {
		r = unmove_copied(range, backing, fault);
		if (r == TIDL_ERR_NO_MEMORY && tdc_provisions_make_room())
			r = unmove_copied(range, backing, fault);
	}
	if (range->shared_bytes > 0 && backing->fd >= 0)
		r = unmove_apart(range, backing, fault);
	return r;
}

/* ---- 3 ---- */

/* Under the moves' lock. As large as the largest page. */
static unsigned char page_copy[1 << 16];

int tdc_unmove_header(struct tdc_range *range, const struct tdc_backing *backing,
		      struct tdp_fault *fault)
{
	size_t page_bytes = tdp_page_bytes();
	sigset_t before;
	int r;

	if (range->header == NULL || range->shared_bytes == 0)
		return 0;
	r = unmove_check(range, backing, fault);
	if (r < 0)
		return r;
	r = tdc_move_ask(TDC_MOVE_HEADER, 0);
	if (r != 0)
		return retreat_fail(r, range, fault);
	tdc_signals_block(&before);
	memcpy(page_copy, range->begin, page_bytes);
	header_put(range, page_copy);
	if (mmap(range->begin, page_bytes, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		r = retreat_fail(errno, range, fault);
	else
		memcpy(range->begin, page_copy, page_bytes);
	tdc_signals_restore(&before);
	return r;
}
