/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_WAIT_H
#define TDC_WAIT_H

#include <stdint.h>

#include "client/lib/interrupt.h"
#include "proto/base/attr.h"

/* How long to wait while connecting, and who may end it sooner. */
struct tdc_patience {
	int64_t deadline;
	struct tdc_interrupt interrupt;
};

/*
 * Wait until @fd is readable or at its end. Returns 0, TIDL_ERR_TIMEOUT, TIDL_ERR_INTERRUPTED, or
 * TIDL_ERR_SYSTEM with errno set; the caller knows what it waited for and finds the sentence.
 */
int tdc_wait_readable(int fd, const struct tdc_patience *patience) TDP_MUST_CHECK;

#endif
