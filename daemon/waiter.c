/* SPDX-License-Identifier: Apache-2.0 */
/* Parked requests, linked to what they wait for and to whoever waits. */
#include "daemon/waiter.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/limits.h"
#include "daemon/publication.h"
#include "daemon/reader.h"
#include "daemon/registry.h"
#include "daemon/work.h"

static int waiter_link(struct tdd_waiter *waiter, const struct tdd_waiter_spec *spec,
		       struct tdp_fault *fault)
{
	int r;

	if (spec->publication) {
		waiter->publication = spec->publication;
		DL_APPEND(waiter->publication->waiters, waiter);
		return 0;
	}
	r = tdd_registry_claim(waiter->registry, spec->owner_uid, spec->name, &waiter->entry,
			       fault);
	if (r < 0)
		return r;
	DL_APPEND(waiter->entry->waiters, waiter);
	return 0;
}

static size_t keys_bytes(const struct tdd_wanted_keys *keys)
{
	size_t size_bytes = keys->count * sizeof(keys->keys[0]);

	for (size_t i = 0; i < keys->count; i++)
		size_bytes += strlen(keys->keys[i]) + 1;
	return size_bytes;
}

/* A copy in one block: pointers, then texts. */
static int waiter_copy_keys(struct tdd_waiter *waiter, const struct tdd_wanted_keys *keys,
			    struct tdp_fault *fault)
{
	size_t size_bytes = keys_bytes(keys);
	const char **copies;
	char *text;
	int r;

	if (keys->count == 0)
		return 0;
	r = tdd_charge_init(&waiter->bytes, tdd_holder_uid_account(waiter->holder), TDD_QUOTA_BYTES,
			    size_bytes, fault);
	if (r < 0)
		return r;
	copies = malloc(size_bytes);
	if (!copies)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	text = (char *)(copies + keys->count);
	for (size_t i = 0; i < keys->count; i++) {
		copies[i] = text;
		text = stpcpy(text, keys->keys[i]) + 1;
	}
	waiter->keys = (struct tdd_wanted_keys){.count = keys->count, .keys = copies};
	return 0;
}

static int waiter_fill(struct tdd_waiter *waiter, const struct tdd_waiter_spec *spec,
		       struct tdp_fault *fault)
{
	int r = waiter_copy_keys(waiter, &spec->keys, fault);

	if (r == 0)
		r = tdd_charge_init(&waiter->charge, &waiter->holder->account, TDD_QUOTA_WAITS, 1,
				    fault);
	return r < 0 ? r : waiter_link(waiter, spec, fault);
}

static void waiter_release(struct tdd_waiter *waiter)
{
	tdd_charge_deinit(&waiter->charge);
	tdd_charge_deinit(&waiter->bytes);
	free((void *)(uintptr_t)waiter->keys.keys);
	free(waiter);
}

int tdd_waiter_park(struct tdd_registry *registry, struct tdd_holder *holder,
		    const struct tdd_waiter_spec *spec, struct tdp_fault *fault)
{
	struct tdd_waiter *waiter = calloc(1, sizeof(*waiter));
	int r;

	if (!waiter)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	waiter->request_id = spec->request_id;
	waiter->attach = spec->attach;
	waiter->newer_than = spec->newer_than;
	waiter->wake = spec->wake;
	waiter->context = spec->context;
	waiter->holder = holder;
	waiter->registry = registry;
	r = waiter_fill(waiter, spec, fault);
	if (r < 0) {
		waiter_release(waiter);
		return r;
	}
	DL_APPEND2(holder->waiters, waiter, sibling_prev, sibling_next);
	return 0;
}

struct tdd_waiter *tdd_waiter_free(struct tdd_waiter *waiter)
{
	if (!waiter)
		return NULL;
	DL_DELETE2(waiter->holder->waiters, waiter, sibling_prev, sibling_next);
	if (waiter->publication) {
		DL_DELETE(waiter->publication->waiters, waiter);
	} else {
		DL_DELETE(waiter->entry->waiters, waiter);
		tdd_registry_unclaim(waiter->registry, waiter->entry);
	}
	waiter_release(waiter);
	return NULL;
}

struct tdd_waiter *tdd_waiter_find(const struct tdd_holder *holder, uint64_t request_id)
{
	struct tdd_waiter *waiter;

	DL_FOREACH2(holder->waiters, waiter, sibling_next)
	{
		if (waiter->request_id == request_id)
			return waiter;
	}
	return NULL;
}

static uint64_t wake_steps(const struct tdd_waiter *waiter,
			   const struct tdd_publication *publication)
{
	uint64_t steps = TDD_STEPS_PER_WAKE + publication->segment_count;

	if (waiter->keys.count > 0)
		steps += (waiter->keys.count + publication->tensor_count) / TDD_ROWS_PER_WAKE_STEP;
	return steps;
}

/* False when the steps did not suffice for all. The name cannot go meanwhile: it has a publication.
 */
static bool entry_wake(const struct tdd_name *entry, uint64_t *steps, uint64_t limit)
{
	struct tdd_publication *publication = entry->current;
	struct tdd_waiter *waiter, *next;

	DL_FOREACH_SAFE (entry->waiters, waiter, next) {
		if (waiter->told_generation == publication->generation)
			continue;
		if (*steps >= limit)
			return false;
		waiter->told_generation = publication->generation;
		if (publication->generation <= waiter->newer_than)
			continue;
		*steps += wake_steps(waiter, publication);
		tdd_work_count(TDD_WORK_PER_WAKE_STEP * wake_steps(waiter, publication));
		waiter->wake(waiter, publication);
	}
	return true;
}

void tdd_waiters_wake(struct tdd_publication *publication)
{
	struct tdd_registry *registry = publication->registry;
	struct tdd_name *entry = publication->entry;

	if (entry_wake(entry, &registry->wake_steps_spent, TDD_WAKE_STEPS) || entry->is_waking)
		return;
	entry->is_waking = true;
	DL_APPEND2(registry->waking, entry, waking_prev, waking_next);
}

void tdd_waiters_stop_waking(struct tdd_registry *registry, struct tdd_name *entry)
{
	if (!entry->is_waking)
		return;
	entry->is_waking = false;
	DL_DELETE2(registry->waking, entry, waking_prev, waking_next);
}

bool tdd_waiters_turn(struct tdd_registry *registry)
{
	registry->wake_steps_spent = 0;
	while (registry->waking &&
	       entry_wake(registry->waking, &registry->wake_steps_spent, TDD_WAKE_STEPS))
		tdd_waiters_stop_waking(registry, registry->waking);
	return registry->waking != NULL;
}

bool tdd_waiters_wake_more(struct tdd_registry *registry, struct tdd_name *entry)
{
	while (entry->is_waking) {
		uint64_t steps = 0;

		if (entry_wake(entry, &steps, (uint64_t)TDD_WAKES_PER_LOOK * TDD_STEPS_PER_WAKE))
			tdd_waiters_stop_waking(registry, entry);
		else if (tdd_work_is_over())
			return false;
	}
	return true;
}

void tdd_waiters_wake_released(struct tdd_publication *publication)
{
	struct tdd_waiter *waiter, *next;

	/* One reader may be the one who waits; with two, nobody's wait is over. */
	if (publication->pins || publication->reader_count > 1)
		return;
	DL_FOREACH_SAFE (publication->waiters, waiter, next) {
		if (tdd_publication_is_released(publication, waiter->holder))
			waiter->wake(waiter, publication);
	}
}
