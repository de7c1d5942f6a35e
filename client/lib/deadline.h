/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_DEADLINE_H
#define TDC_DEADLINE_H

#include <limits.h>
#include <stdint.h>
#include <time.h>

/* Points in time on the monotonic clock, in milliseconds. */

#define TDC_DEADLINE_NEVER INT64_MAX

static inline int64_t tdc_now_ms(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* @timeout_ms from now; negative: never. */
static inline int64_t tdc_deadline_after(int64_t timeout_ms)
{
	int64_t deadline;

	if (timeout_ms < 0 || __builtin_add_overflow(tdc_now_ms(), timeout_ms, &deadline))
		return TDC_DEADLINE_NEVER;
	return deadline;
}

/* What is left, in the form that poll() takes: -1 for ever, 0 passed. One millisecond is added
 * because the clock was rounded down: poll() must not wake before the deadline. */
static inline int tdc_deadline_poll_ms(int64_t deadline)
{
	int64_t left;

	if (deadline == TDC_DEADLINE_NEVER)
		return -1;
	left = deadline - tdc_now_ms();
	if (left <= 0)
		return 0;
	return left < INT_MAX ? (int)left + 1 : INT_MAX;
}

#endif
