/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_WORK_H
#define TDD_WORK_H

#include <stdbool.h>
#include <stdint.h>

/*
 * What is being done, counted in steps of about a nanosecond by whoever does it, so that work which
 * takes long can be left for a later turn of the loop, and be put down to whoever asked for it. One
 * for the whole process, which has one thread and does one thing at a time.
 */

#define TDD_WORK_UNLIMITED UINT64_MAX

/* What a function returns that has left something for later: call it again. */
enum { TDD_WORK_LEFT = 1 };

/* A new piece of work, which should leave the rest for later after @limit_steps. */
void tdd_work_begin(uint64_t limit_steps);

void tdd_work_count(uint64_t steps);

/* Since it began. */
uint64_t tdd_work_done(void);

/* Leave the rest for later, if there is a way to do so. */
bool tdd_work_is_over(void);

#endif
