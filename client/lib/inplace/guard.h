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
 */
struct tdc_guard {
	int fd;		       /* userfaultfd; -1: no guard, nobody writes */
	bool needs_population; /* pages that are not there cannot be stopped (before Linux 6.4) */
};

#define TDC_GUARD_NONE ((struct tdc_guard){.fd = -1})

/*
 * Watch a range of whole pages. @is_shared: it is a map of a memfd, not private memory.
 * TIDL_ERR_COPY_NEEDED with reason GUARD where the system has no way to do it.
 */
int tdc_guard_open(struct tdc_guard *guard, void *begin, size_t size_bytes, bool is_shared,
		   struct tdp_fault *fault) TDP_MUST_CHECK;
void tdc_guard_close(struct tdc_guard *guard);

/* From here on writers wait. 0 or an errno. */
int tdc_guard_stop(const struct tdc_guard *guard, void *begin, size_t size_bytes) TDP_MUST_CHECK;

/* Writers go on, in whatever is mapped there by now. @is_kept: the pages are still the same, so the
 * protection has to be taken off. */
void tdc_guard_release(const struct tdc_guard *guard, void *begin, size_t size_bytes, bool is_kept);

#endif
