/* SPDX-License-Identifier: Apache-2.0 */
/* Parked requests, linked to what they wait for and to whoever waits. */
#include "daemon/waiter.h"

#include <stdlib.h>

#include "daemon/publication.h"
#include "daemon/reader.h"
#include "daemon/registry.h"

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
	r = tdd_charge_init(&waiter->charge, &holder->account, TDD_QUOTA_WAITS, 1, fault);
	if (r == 0)
		r = waiter_link(waiter, spec, fault);
	if (r < 0) {
		tdd_charge_deinit(&waiter->charge);
		free(waiter);
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
	tdd_charge_deinit(&waiter->charge);
	free(waiter);
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

void tdd_waiters_wake(struct tdd_publication *publication)
{
	struct tdd_waiter *waiter, *next;

	/* The name cannot go meanwhile: it has a publication. */
	DL_FOREACH_SAFE (publication->entry->waiters, waiter, next) {
		if (publication->generation > waiter->newer_than)
			waiter->wake(waiter, publication);
	}
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
