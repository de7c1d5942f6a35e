/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_INPLACE_MOVE_H
#define TDC_INPLACE_MOVE_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/lib/inplace/maps.h"
#include "client/lib/inplace/range.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

/* Where a range is moved to. */
struct tdc_backing {
	int fd;		       /* read-write; borrowed; on the way back of use, -1: none */
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
 * What has been moved of it, back to private memory. Nobody else has had it: so malloc's header is
 * what the owner has made of it meanwhile, and should even this fail, the owner goes on with pages
 * that nobody else has. The range cannot be moved any more after it.
 */
void tdc_move_undo(struct tdc_range *range, const struct tdc_backing *backing);

/*
 * Make the first page a map of its own, of the same file. The kernel resizes no two maps at once,
 * so realloc() of a block of its own, which is an mremap(), makes another block and copies, instead
 * of going on into what lies behind in the segment and past its end. And another map of the segment
 * that comes to lie where the owner has freed the range is not taken for it. MADV_RANDOM means
 * nothing for a single page. False where there is no more room for maps.
 */
bool tdc_range_mark(struct tdc_range *range) TDP_MUST_CHECK;

/* Moves of one process come one after another, and a fork() between them. */
void tdc_moves_lock(void);
void tdc_moves_unlock(void);

/* While writers are stopped no handler may run that writes. */
void tdc_signals_block(sigset_t *ret_before);
void tdc_signals_restore(const sigset_t *before);

/* What can fail by itself. */
enum tdc_move_step {
	TDC_MOVE_THERE,	 /* a piece */
	TDC_MOVE_BACK,	 /* a piece */
	TDC_MOVE_APART,	 /* all that is left; piece 0 */
	TDC_MOVE_HEADER, /* the page with malloc's header; piece 0 */
};

/* Tests only: asked before each step, pieces numbered from 0, whether it is to fail, and how
 * (errno). */
typedef int (*tdc_move_hook_fn)(enum tdc_move_step step, size_t piece);
extern tdc_move_hook_fn tdc_move_hook;
int tdc_move_ask(enum tdc_move_step step, size_t offset_bytes);

#endif
