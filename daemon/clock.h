/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_CLOCK_H
#define TDD_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Milliseconds of a clock that only goes forward; ages are differences of it. */
static inline uint64_t tdd_clock_ms(void)
{
	struct timespec now;

	/* The coarse clock is some milliseconds behind and costs no more than a memory read. */
	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

#endif
