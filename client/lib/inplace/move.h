/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_INPLACE_MOVE_H
#define TDC_INPLACE_MOVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/lib/inplace/maps.h"
#include "client/lib/inplace/range.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

/* Where a range is moved to. */
struct tdc_backing {
	int fd;		       /* read-write; borrowed; not needed for the way back */
	uint64_t offset_bytes; /* of the range's begin in it; a multiple of the page size */
	bool nobody_writes;    /* the caller vouches for that, so a guard is not needed */
	struct tdc_map file;   /* what the kernel shows for it */
};

/* The file's identity, for later. @fd is known to be memory. */
int tdc_backing_identify(struct tdc_backing *backing, struct tdp_fault *fault) TDP_MUST_CHECK;

/*
 * Put the memfd's pages under the range, piece by piece, with the content that it has. The pointer
 * stays, and no write of another thread is lost, or the caller has vouched that there is none. On
 * failure the range is private again, with the content that it has by then. Must not run at the
 * same time as another move or a fork() (tdc_moves_lock()).
 *
 * TIDL_ERR_COPY_NEEDED with a reason, TIDL_ERR_NO_MEMORY, _SYSTEM.
 */
int tdc_move(struct tdc_range *range, const struct tdc_backing *backing,
	     struct tdp_fault *fault) TDP_MUST_CHECK;

/*
 * The way back: private pages with the content that the memfd's have. malloc's header is the one
 * that was saved. Goes from the end to the begin; after a failure it can be tried again and goes on
 * where it stopped. What is no map of the memfd any more (freed by its owner) is left alone:
 * TIDL_ERR_RELEASED.
 */
int tdc_unmove(struct tdc_range *range, const struct tdc_backing *backing,
	       struct tdp_fault *fault) TDP_MUST_CHECK;

/*
 * Make the first page a map of its own, of the same file. The kernel resizes no two maps at once,
 * so realloc() of a block of its own, which is an mremap(), makes another block and copies, instead
 * of going on into what lies behind in the segment and past its end. And another map of the segment
 * that comes to lie where the owner has freed the range is not taken for it. MADV_RANDOM means
 * nothing for a single page.
 */
void tdc_range_mark(struct tdc_range *range);

/* Are the first @size_bytes of it still those that were moved? */
bool tdc_range_is_there(const struct tdc_maps *maps, const struct tdc_range *range,
			size_t size_bytes, const struct tdc_map *file);

/* Moves of one process come one after another, and a fork() between them. */
void tdc_moves_lock(void);
void tdc_moves_unlock(void);

/* Tests only: asked before each piece, numbered from 0, whether it is to fail, and how (errno). */
typedef int (*tdc_move_hook_fn)(size_t piece, bool is_back);
extern tdc_move_hook_fn tdc_move_hook;

#endif
