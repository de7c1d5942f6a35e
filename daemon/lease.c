/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases and allocations. Whatever ends one (a release, the end of its session) goes through
 * tdd_hold_free(), which also lets publication and segments find out whether anybody is left.
 */
#include "daemon/lease.h"

#include <stdlib.h>

#include "daemon/clock.h"

static int hold_new(struct tdd_holder *holder, struct tdd_hold **map, const struct tdd_hold *init,
		    struct tdd_hold **ret_hold, struct tdp_fault *fault)
{
	struct tdd_hold *hold = malloc(sizeof(*hold));
	int r;

	if (!hold)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	*hold = *init;
	hold->holder = holder;
	hold->since_ms = tdd_clock_ms();
	r = tdd_charge_init(&hold->charge, &holder->account, TDD_QUOTA_HOLDS, 1, fault);
	if (r < 0) {
		free(hold);
		return r;
	}
	HASH_ADD(hh, *map, id, sizeof(hold->id), hold);
	if (!hold->hh.tbl) {
		tdd_charge_deinit(&hold->charge);
		free(hold);
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	}
	*ret_hold = hold;
	return 0;
}

static void lease_count_writes(const struct tdd_hold *lease, bool is_added)
{
	const struct tdd_publication *publication = lease->publication;

	if (lease->attach != TIDL_ATTACH_WRITE)
		return;
	for (size_t i = 0; i < publication->segment_count; i++) {
		struct tdd_segment *segment = publication->uses[i].segment;

		if (is_added)
			segment->write_lease_count++;
		else
			segment->write_lease_count--;
	}
}

int tdd_lease_new(struct tdd_holder *holder, struct tdd_publication *publication,
		  enum tidl_attach attach, uint64_t serial, struct tdd_hold **ret_lease,
		  struct tdp_fault *fault)
{
	struct tdd_hold init = {
		.kind = TIDL_HOLDER_LEASE,
		.attach = attach,
		.id = serial,
		.serial = serial,
		.publication = publication,
	};
	struct tdd_hold *lease;
	int r = hold_new(holder, &holder->leases, &init, &lease, fault);

	if (r < 0)
		return r;
	DL_APPEND(publication->leases, lease);
	publication->lease_count++;
	lease_count_writes(lease, true);
	*ret_lease = lease;
	return 0;
}

int tdd_allocation_new(struct tdd_holder *holder, struct tdd_segment *segment, uint64_t serial,
		       struct tdd_hold **ret_allocation, struct tdp_fault *fault)
{
	struct tdd_hold init = {
		.kind = TIDL_HOLDER_ALLOCATION,
		.attach = TIDL_ATTACH_WRITE,
		.id = segment->id,
		.serial = serial,
		.segment = segment,
	};
	struct tdd_hold *allocation;
	int r = hold_new(holder, &holder->allocations, &init, &allocation, fault);

	if (r < 0)
		return r;
	DL_APPEND(segment->allocations, allocation);
	*ret_allocation = allocation;
	return 0;
}

static void lease_detach(struct tdd_hold *lease)
{
	struct tdd_publication *publication = lease->publication;

	lease_count_writes(lease, false);
	DL_DELETE(publication->leases, lease);
	publication->lease_count--;
	HASH_DELETE(hh, lease->holder->leases, lease);
	tdd_publication_settle(publication);
}

static void allocation_detach(struct tdd_hold *allocation)
{
	struct tdd_segment *segment = allocation->segment;

	DL_DELETE(segment->allocations, allocation);
	HASH_DELETE(hh, allocation->holder->allocations, allocation);
	tdd_segment_settle(segment);
}

struct tdd_hold *tdd_hold_free(struct tdd_hold *hold)
{
	if (!hold)
		return NULL;
	tdd_charge_deinit(&hold->charge);
	if (hold->kind == TIDL_HOLDER_LEASE)
		lease_detach(hold);
	else
		allocation_detach(hold);
	free(hold);
	return NULL;
}

struct tdd_hold *tdd_lease_find(const struct tdd_holder *holder, uint64_t lease_id)
{
	struct tdd_hold *lease = NULL;

	HASH_FIND(hh, holder->leases, &lease_id, sizeof(lease_id), lease);
	return lease;
}

struct tdd_hold *tdd_allocation_find(const struct tdd_holder *holder, uint64_t segment_id)
{
	struct tdd_hold *allocation = NULL;

	HASH_FIND(hh, holder->allocations, &segment_id, sizeof(segment_id), allocation);
	return allocation;
}

bool tdd_holder_has_segment(const struct tdd_holder *holder, const struct tdd_segment *segment)
{
	struct tdd_segment_use *use;
	struct tdd_hold *lease;

	if (tdd_allocation_find(holder, segment->id))
		return true;
	DL_FOREACH (segment->uses, use) {
		DL_FOREACH (use->publication->leases, lease) {
			if (lease->holder == holder)
				return true;
		}
	}
	return false;
}

const struct tdd_hold *tdd_segment_other_writer(const struct tdd_segment *segment,
						const struct tdd_holder *holder)
{
	struct tdd_segment_use *use;
	struct tdd_hold *hold;

	DL_FOREACH (segment->allocations, hold) {
		if (hold->holder != holder)
			return hold;
	}
	if (segment->write_lease_count == 0)
		return NULL;
	DL_FOREACH (segment->uses, use) {
		DL_FOREACH (use->publication->leases, hold) {
			if (hold->attach == TIDL_ATTACH_WRITE && hold->holder != holder)
				return hold;
		}
	}
	return NULL;
}
