/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deadlines in a binary heap. The timeline belongs to the registry, each deadline to what it ends.
 * Room is reserved when a deadline is made: some are set at the death of a client, when nobody is
 * left who could be told that there is no memory.
 */
#include "daemon/deadline.h"

#include <assert.h>
#include <stdlib.h>

#include "daemon/limits.h"
#include "daemon/work.h"
#include "include/tidl/error.h"

enum { CAPACITY_MIN = 64 };

#define NO_SLOT SIZE_MAX

void tdd_timeline_deinit(struct tdd_timeline *timeline)
{
	assert(timeline->reserved == 0);
	free(timeline->slots);
	*timeline = (struct tdd_timeline){0};
}

uint64_t tdd_timeline_next_ms(const struct tdd_timeline *timeline)
{
	return timeline->count > 0 ? timeline->slots[0]->at_ms : UINT64_MAX;
}

static int timeline_resize(struct tdd_timeline *timeline, size_t capacity)
{
	struct tdd_deadline **slots =
		reallocarray(timeline->slots, capacity, sizeof(struct tdd_deadline *));

	if (!slots)
		return TIDL_ERR_NO_MEMORY;
	timeline->slots = slots;
	timeline->capacity = capacity;
	return 0;
}

static void timeline_put(struct tdd_timeline *timeline, size_t slot, struct tdd_deadline *deadline)
{
	timeline->slots[slot] = deadline;
	deadline->slot = slot;
}

static void timeline_rise(struct tdd_timeline *timeline, struct tdd_deadline *deadline)
{
	size_t slot = deadline->slot;

	while (slot > 0 && timeline->slots[(slot - 1) / 2]->at_ms > deadline->at_ms) {
		timeline_put(timeline, slot, timeline->slots[(slot - 1) / 2]);
		slot = (slot - 1) / 2;
	}
	timeline_put(timeline, slot, deadline);
}

static void timeline_sink(struct tdd_timeline *timeline, struct tdd_deadline *deadline)
{
	size_t slot = deadline->slot;
	size_t child;

	while ((child = 2 * slot + 1) < timeline->count) {
		if (child + 1 < timeline->count &&
		    timeline->slots[child + 1]->at_ms < timeline->slots[child]->at_ms)
			child++;
		if (timeline->slots[child]->at_ms >= deadline->at_ms)
			break;
		timeline_put(timeline, slot, timeline->slots[child]);
		slot = child;
	}
	timeline_put(timeline, slot, deadline);
}

void tdd_timeline_expire(struct tdd_timeline *timeline, uint64_t now_ms)
{
	while (tdd_timeline_next_ms(timeline) <= now_ms && !tdd_work_is_over()) {
		struct tdd_deadline *deadline = timeline->slots[0];

		tdd_work_count(TDD_DROP_STEPS);
		tdd_deadline_clear(deadline);
		deadline->expire(deadline);
	}
}

int tdd_deadline_init(struct tdd_deadline *deadline, struct tdd_timeline *timeline,
		      void (*expire)(struct tdd_deadline *deadline))
{
	size_t capacity = timeline->capacity ? 2 * timeline->capacity : CAPACITY_MIN;

	if (timeline->reserved == timeline->capacity && timeline_resize(timeline, capacity) < 0)
		return TIDL_ERR_NO_MEMORY;
	timeline->reserved++;
	*deadline = (struct tdd_deadline){.timeline = timeline, .expire = expire, .slot = NO_SLOT};
	return 0;
}

void tdd_deadline_deinit(struct tdd_deadline *deadline)
{
	struct tdd_timeline *timeline = deadline->timeline;

	if (!timeline)
		return;
	tdd_deadline_clear(deadline);
	deadline->timeline = NULL;
	timeline->reserved--;
	/* Giving memory back may fail, which does no harm. */
	if (timeline->capacity > CAPACITY_MIN && timeline->reserved < timeline->capacity / 4)
		(void)(timeline_resize(timeline, timeline->capacity / 2) == 0);
}

void tdd_deadline_set(struct tdd_deadline *deadline, uint64_t at_ms)
{
	struct tdd_timeline *timeline = deadline->timeline;

	tdd_deadline_clear(deadline);
	deadline->at_ms = at_ms;
	assert(timeline->count < timeline->reserved);
	timeline_put(timeline, timeline->count++, deadline);
	timeline_rise(timeline, deadline);
}

void tdd_deadline_clear(struct tdd_deadline *deadline)
{
	struct tdd_timeline *timeline = deadline->timeline;
	struct tdd_deadline *last;

	if (!tdd_deadline_is_set(deadline))
		return;
	last = timeline->slots[--timeline->count];
	if (last != deadline) {
		timeline_put(timeline, deadline->slot, last);
		timeline_rise(timeline, last);
		timeline_sink(timeline, last);
	}
	deadline->slot = NO_SLOT;
}

bool tdd_deadline_is_set(const struct tdd_deadline *deadline)
{
	return deadline->timeline && deadline->slot != NO_SLOT;
}

uint64_t tdd_deadline_left_ms(const struct tdd_deadline *deadline, uint64_t now_ms)
{
	if (!tdd_deadline_is_set(deadline) || deadline->at_ms <= now_ms)
		return 0;
	return deadline->at_ms - now_ms;
}
