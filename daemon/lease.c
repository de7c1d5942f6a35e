/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases and allocations. Whatever ends one (a release, the end of its session) goes through
 * tdd_hold_free(), which also lets publication and segments find out whether anybody is left.
 */
#include "daemon/lease.h"

#include <stdlib.h>

#include "daemon/clock.h"
#include "daemon/limits.h"
#include "daemon/registry.h"
#include "daemon/waiter.h"
#include "daemon/work.h"

static bool hold_is_writer(const struct tdd_hold *hold)
{
	return hold->attach == TIDL_ATTACH_WRITE;
}

struct tdd_segment *tdd_hold_segment(const struct tdd_hold *hold, size_t i)
{
	return hold->publication ? hold->publication->uses[hold->uses[i].number].segment
				 : hold->segment;
}

/* Also of a hold that has only some of them. */
static void hold_give_up_stakes(struct tdd_hold *hold)
{
	for (size_t i = 0; i < hold->use_count; i++) {
		struct tdd_hold_use *use = &hold->uses[i];

		if (use->stake)
			use->stake = tdd_stake_give_up(use->stake, hold_is_writer(hold));
	}
}

static int hold_take_stakes(struct tdd_hold *hold, struct tdp_fault *fault)
{
	for (size_t i = 0; i < hold->use_count; i++) {
		struct tdd_hold_use *use = &hold->uses[i];

		use->hold = hold;
		use->stake = tdd_stake_take(hold->holder, tdd_hold_segment(hold, i),
					    hold_is_writer(hold));
		if (!use->stake) {
			hold_give_up_stakes(hold);
			return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
		}
	}
	return 0;
}

static int hold_take_reader(struct tdd_hold *hold, struct tdp_fault *fault)
{
	if (!hold->publication)
		return 0;
	hold->reader = tdd_reader_take(hold->holder, hold->publication);
	return hold->reader ? 0 : tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
}

static void hold_give_up_reader(struct tdd_hold *hold)
{
	if (hold->reader)
		hold->reader = tdd_reader_give_up(hold->reader);
}

static int hold_fill(struct tdd_hold *hold, struct tdd_hold **map, struct tdp_fault *fault)
{
	uint64_t amount = hold->use_count > 1 ? hold->use_count : 1;
	int r = tdd_charge_init(&hold->charge, &hold->holder->account, TDD_QUOTA_HOLDS, amount,
				fault);

	if (r < 0)
		return r;
	r = hold_take_reader(hold, fault);
	if (r < 0)
		return r;
	r = hold_take_stakes(hold, fault);
	if (r < 0)
		return r;
	HASH_ADD(hh, *map, id, sizeof(hold->id), hold);
	if (!hold->hh.tbl) {
		hold_give_up_stakes(hold);
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	}
	return 0;
}

/* @init tells how many uses there are; @numbers of NULL: all segments in order. */
static int hold_new(struct tdd_hold **map, const struct tdd_hold *init, const uint32_t *numbers,
		    struct tdd_hold **ret_hold, struct tdp_fault *fault)
{
	struct tdd_hold *hold = calloc(1, sizeof(*hold) + init->use_count * sizeof(hold->uses[0]));
	int r;

	if (!hold)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	*hold = *init;
	hold->since_ms = tdd_clock_ms();
	for (size_t i = 0; i < hold->use_count; i++)
		hold->uses[i].number = numbers ? numbers[i] : (uint32_t)i;
	r = hold_fill(hold, map, fault);
	if (r < 0) {
		hold_give_up_reader(hold);
		tdd_charge_deinit(&hold->charge);
		free(hold);
		return r;
	}
	*ret_hold = hold;
	return 0;
}

int tdd_lease_new(struct tdd_holder *holder, struct tdd_publication *publication,
		  const struct tdd_lease_spec *spec, struct tdd_hold **ret_lease,
		  struct tdp_fault *fault)
{
	struct tdd_hold init = {
		.kind = TIDL_HOLDER_LEASE,
		.attach = spec->attach,
		.id = spec->serial,
		.serial = spec->serial,
		.holder = holder,
		.publication = publication,
		.is_partial = spec->is_partial,
		.use_count = spec->is_partial ? spec->segment_count : publication->segment_count,
	};
	struct tdd_hold *lease;
	int r = hold_new(&holder->leases, &init, spec->is_partial ? spec->segment_numbers : NULL,
			 &lease, fault);

	if (r < 0)
		return r;
	tdd_work_count(TDD_PART_STEPS * lease->use_count);
	DL_APPEND(publication->leases, lease);
	tdd_milestones_append(&publication->milestones, lease);
	publication->lease_count++;
	for (size_t i = 0; i < lease->use_count; i++) {
		struct tdd_segment *segment = tdd_hold_segment(lease, i);

		DL_APPEND(segment->leases, &lease->uses[i]);
		segment->may_be_mapped |=
			hold_is_writer(lease) || holder->subject.uid != segment->creator_uid;
	}
	tdd_events_report_lease(&publication->registry->events, TDP_EVENT_LEASED, lease);
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
		.holder = holder,
		.segment = segment,
		.use_count = 1,
	};
	struct tdd_hold *allocation;
	int r = hold_new(&holder->allocations, &init, NULL, &allocation, fault);

	if (r < 0)
		return r;
	DL_APPEND(segment->allocations, allocation);
	*ret_allocation = allocation;
	return 0;
}

void tdd_allocation_stop_writing(struct tdd_hold *allocation)
{
	if (!hold_is_writer(allocation))
		return;
	tdd_stake_stop_writing(allocation->uses[0].stake);
	allocation->attach = TIDL_ATTACH_READ;
}

/* Whose connection ended may have forked as well: nobody said that it had not. */
static bool lease_may_last(const struct tdd_hold *lease)
{
	return lease->is_inherited || lease->holder->is_ending;
}

static void lease_detach(struct tdd_hold *lease)
{
	struct tdd_publication *publication = lease->publication;

	tdd_work_count(TDD_PART_STEPS * lease->use_count);
	for (size_t i = 0; i < lease->use_count; i++)
		tdd_hold_segment(lease, i)->may_be_mapped |= lease_may_last(lease);
	for (size_t i = 0; i < lease->use_count; i++)
		DL_DELETE(tdd_hold_segment(lease, i)->leases, &lease->uses[i]);
	hold_give_up_stakes(lease);
	tdd_milestones_remove(&publication->milestones, lease);
	DL_DELETE(publication->leases, lease);
	publication->lease_count--;
	HASH_DELETE(hh, lease->holder->leases, lease);
	hold_give_up_reader(lease);
	tdd_events_report_lease(&publication->registry->events, TDP_EVENT_RELEASED, lease);
	/* Not at each of thousands: only the last of this holder can have been in the way. */
	if (publication->waiters && !tdd_holder_reads(lease->holder, publication))
		tdd_waiters_wake_released(publication);
	tdd_publication_settle(publication);
}

static void allocation_detach(struct tdd_hold *allocation)
{
	struct tdd_segment *segment = allocation->segment;

	hold_give_up_stakes(allocation);
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

struct tdd_segment *tdd_hold_find_segment(const struct tdd_hold *hold, uint64_t segment_id)
{
	for (size_t i = 0; i < hold->use_count; i++) {
		if (tdd_hold_segment(hold, i)->id == segment_id)
			return tdd_hold_segment(hold, i);
	}
	return NULL;
}

bool tdd_holder_has_segment(const struct tdd_holder *holder, const struct tdd_segment *segment)
{
	return tdd_stake_find(holder, segment) != NULL;
}

const struct tdd_holder *tdd_segment_other_writer(const struct tdd_segment *segment,
						  const struct tdd_holder *holder)
{
	const struct tdd_stake *stake;

	/* A holder has one stake in it, so the second is another's. */
	DL_FOREACH (segment->writers, stake) {
		if (stake->holder != holder)
			return stake->holder;
	}
	return NULL;
}
