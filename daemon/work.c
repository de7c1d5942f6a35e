/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A counter. Steps are counted and no clock is read, so that what is done in a turn depends on what
 * was asked alone, and not on what else the machine does.
 */
#include "daemon/work.h"

static uint64_t done_steps;
static uint64_t limit = TDD_WORK_UNLIMITED;

void tdd_work_begin(uint64_t limit_steps)
{
	done_steps = 0;
	limit = limit_steps;
}

void tdd_work_count(uint64_t steps)
{
	done_steps += steps;
}

uint64_t tdd_work_done(void)
{
	return done_steps;
}

bool tdd_work_is_over(void)
{
	return done_steps >= limit;
}
