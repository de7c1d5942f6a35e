/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_INPLACE_GUARD_H
#define TDC_INPLACE_GUARD_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/base/attr.h"
#include "proto/base/fault.h"

/*
 * Stops threads that write into a range while its pages are exchanged: at their next store there
 * they wait, and go on when the piece is released. Readers go on. A system call that writes there
 * meanwhile fails with EFAULT, since the kernel lets ordinary users stop no system calls.
 *
 * There is one descriptor for it in a process, kept as long as anything is shared: by the time that
 * the memory becomes private again, the process may be at its limit of them, or forbidden to make
 * any. All with the moves locked (move.h).
 */
struct tdc_guard {
	int fd; /* borrowed; -1: no guard, nobody writes */
	void *begin;
	size_t size_bytes;
};

#define TDC_GUARD_NONE ((struct tdc_guard){.fd = -1})

/* Have the descriptor, or try again: 0 or an errno. And let go of it: what a child has inherited
 * would stop its parent's threads. */
int tdc_guard_prepare(void);
void tdc_guard_drop(void);

/*
 * Watch a range of whole pages, private ones or a memfd's. TIDL_ERR_COPY_NEEDED with reason GUARD
 * where the system has no way to do it; TIDL_ERR_DESCRIPTORS, _NO_MEMORY.
 */
int tdc_guard_open(struct tdc_guard *guard, void *begin, size_t size_bytes,
		   struct tdp_fault *fault) TDP_MUST_CHECK;
void tdc_guard_close(struct tdc_guard *guard);

/* From here on writers wait. 0 or an errno. */
int tdc_guard_stop(const struct tdc_guard *guard, void *begin, size_t size_bytes) TDP_MUST_CHECK;

/* Writers go on, in whatever is mapped there by now. @is_kept: the pages are still the same, so the
 * protection has to be taken off. */
void tdc_guard_release(const struct tdc_guard *guard, void *begin, size_t size_bytes, bool is_kept);

#endif
