/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_LEASE_H
#define TDD_LEASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/holder.h"
#include "daemon/map.h"
#include "daemon/publication.h"
#include "daemon/quota.h"
#include "daemon/reader.h"
#include "daemon/segment.h"
#include "daemon/stake.h"
#include "include/tidl/admin.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

/* That a hold keeps a segment; embedded in the hold. */
struct tdd_hold_use {
	struct tdd_hold *hold;
	struct tdd_stake *stake;
	uint32_t number;		  /* of the segment in the publication's list */
	struct tdd_hold_use *prev, *next; /* segment::leases; not for allocations */
};

/*
 * A hold: that one holder keeps memory alive. A lease holds a publication, an allocation a segment;
 * both are the same thing in all else. Owned by the holder.
 */
struct tdd_hold {
	enum tidl_holder_kind kind;
	enum tidl_attach attach;
	bool is_milestone; /* one of publication::milestones */
	bool is_inherited; /* a forked child may have its map for longer */
	uint64_t id;	   /* of the lease; of the segment for an allocation */
	uint64_t serial;   /* broker-wide, in order of birth; a lease's id */
	uint64_t since_ms;
	struct tdd_holder *holder;
	struct tdd_publication *publication; /* of a lease */
	struct tdd_reader *reader;	     /* of a lease */
	struct tdd_segment *segment;	     /* of an allocation */
	struct tdd_charge charge;
	struct tdd_hold *prev, *next; /* publication::leases or segment::allocations */
	UT_hash_handle hh;	      /* holder::leases or holder::allocations, by id */
	bool is_partial;	      /* a lease that leaves out some segments of a bundle */
	size_t use_count;
	struct tdd_hold_use uses[]; /* one for each segment */
};

/* What a lease is to hold. */
struct tdd_lease_spec {
	enum tidl_attach attach;
	uint64_t serial; /* the lease's id */
	bool is_partial; /* only these segments of the publication; else all of them */
	size_t segment_count;
	const uint32_t *segment_numbers; /* rising */
};

int tdd_lease_new(struct tdd_holder *holder, struct tdd_publication *publication,
		  const struct tdd_lease_spec *spec, struct tdd_hold **ret_lease,
		  struct tdp_fault *fault) TDP_MUST_CHECK;

int tdd_allocation_new(struct tdd_holder *holder, struct tdd_segment *segment, uint64_t serial,
		       struct tdd_hold **ret_allocation, struct tdp_fault *fault) TDP_MUST_CHECK;

/* The memory can be written no more, by this hold either. */
void tdd_allocation_stop_writing(struct tdd_hold *allocation);

/* Give it up; frees what nobody else needs. Returns NULL. */
struct tdd_hold *tdd_hold_free(struct tdd_hold *hold);

/* NULL: this holder has no such hold. */
struct tdd_hold *tdd_lease_find(const struct tdd_holder *holder, uint64_t lease_id);
struct tdd_hold *tdd_allocation_find(const struct tdd_holder *holder, uint64_t segment_id);

/* The segment that use @i is of. */
struct tdd_segment *tdd_hold_segment(const struct tdd_hold *hold, size_t i);

/* The segment with this id if the hold keeps it, else NULL. */
struct tdd_segment *tdd_hold_find_segment(const struct tdd_hold *hold, uint64_t segment_id);

/* Does the holder keep the segment, by allocation or by lease? */
bool tdd_holder_has_segment(const struct tdd_holder *holder, const struct tdd_segment *segment);

/* Somebody else than @holder who can write the segment; NULL: nobody. */
const struct tdd_holder *tdd_segment_other_writer(const struct tdd_segment *segment,
						  const struct tdd_holder *holder);

#endif
