/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Milestones. Part of a publication; they own no lease. Between two of them there are never more
 * leases than when the second was set: a lease that goes hands its part on to the next one. Without
 * memory there are fewer, and walks are longer.
 */
#include "daemon/milestones.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/lease.h"
#include "daemon/limits.h"

void tdd_milestones_deinit(struct tdd_milestones *milestones)
{
	free(milestones->items);
	*milestones = (struct tdd_milestones){0};
}

/* Position of the first one above @serial. */
static uint32_t milestones_after(const struct tdd_milestones *milestones, uint64_t serial)
{
	uint32_t low = 0;
	uint32_t high = milestones->count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (milestones->items[middle].serial <= serial)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool milestones_grow(struct tdd_milestones *milestones)
{
	uint32_t capacity = milestones->capacity ? 2 * milestones->capacity : 4;
	struct tdd_milestone *items;

	if (milestones->count < milestones->capacity)
		return true;
	items = reallocarray(milestones->items, capacity, sizeof(*items));
	if (!items)
		return false;
	milestones->items = items;
	milestones->capacity = capacity;
	return true;
}

void tdd_milestones_append(struct tdd_milestones *milestones, struct tdd_hold *hold)
{
	if (++milestones->passed_count < TDD_LEASES_PER_MILESTONE || !milestones_grow(milestones))
		return;
	milestones->passed_count = 0;
	hold->is_milestone = true;
	milestones->items[milestones->count++] =
		(struct tdd_milestone){.serial = hold->serial, .hold = hold};
}

void tdd_milestones_remove(struct tdd_milestones *milestones, struct tdd_hold *hold)
{
	struct tdd_hold *next = hold->next;
	uint32_t position;

	if (!hold->is_milestone)
		return;
	position = milestones_after(milestones, hold->serial) - 1;
	if (next && !next->is_milestone) {
		next->is_milestone = true;
		milestones->items[position] =
			(struct tdd_milestone){.serial = next->serial, .hold = next};
		return;
	}
	milestones->count--;
	memmove(&milestones->items[position], &milestones->items[position + 1],
		(milestones->count - position) * sizeof(milestones->items[0]));
	if (milestones->count == 0)
		tdd_milestones_deinit(milestones);
}

struct tdd_hold *tdd_milestones_find(const struct tdd_milestones *milestones, uint64_t serial)
{
	uint32_t position = milestones_after(milestones, serial);

	return position > 0 ? milestones->items[position - 1].hold : NULL;
}
