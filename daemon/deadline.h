/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_DEADLINE_H
#define TDD_DEADLINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/attr.h"

struct tdd_deadline;

/* What ends by itself, the next one first. Whoever owns it looks at the clock; nothing here does.
 */
struct tdd_timeline {
	struct tdd_deadline **slots; /* a binary heap */
	size_t count;		     /* set */
	size_t reserved;	     /* could be set */
	size_t capacity;
};

/*
 * A moment at which something ends; embedded in that. It has room in the timeline from the start,
 * so that setting it cannot fail.
 */
struct tdd_deadline {
	struct tdd_timeline *timeline; /* NULL: not in use */
	void (*expire)(struct tdd_deadline *deadline);
	uint64_t at_ms;
	size_t slot; /* SIZE_MAX: not set */
};

/* All deadlines must be gone. */
void tdd_timeline_deinit(struct tdd_timeline *timeline);

/* When the next one ends; UINT64_MAX: never. */
uint64_t tdd_timeline_next_ms(const struct tdd_timeline *timeline);

/* Let those end whose time has come, as many as there is time for (daemon/work.h). Each is cleared,
 * then told. */
void tdd_timeline_expire(struct tdd_timeline *timeline, uint64_t now_ms);

/* Returns 0 or TIDL_ERR_NO_MEMORY. */
int tdd_deadline_init(struct tdd_deadline *deadline, struct tdd_timeline *timeline,
		      void (*expire)(struct tdd_deadline *deadline)) TDP_MUST_CHECK;
/* A zeroed one is allowed. */
void tdd_deadline_deinit(struct tdd_deadline *deadline);

/* Set it, or move it. */
void tdd_deadline_set(struct tdd_deadline *deadline, uint64_t at_ms);
void tdd_deadline_clear(struct tdd_deadline *deadline);
bool tdd_deadline_is_set(const struct tdd_deadline *deadline);

/* A moment @delay_ms after @now_ms, or the last one there is. */
static inline uint64_t tdd_deadline_after(uint64_t now_ms, uint64_t delay_ms)
{
	return delay_ms < UINT64_MAX - now_ms ? now_ms + delay_ms : UINT64_MAX;
}

/* What is left of it at @now_ms. */
uint64_t tdd_deadline_left_ms(const struct tdd_deadline *deadline, uint64_t now_ms);

#endif
