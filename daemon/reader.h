/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_READER_H
#define TDD_READER_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/map.h"
#include "proto/base/attr.h"

struct tdd_holder;
struct tdd_publication;

/*
 * That one holder has leases on one publication, however many, or is about to have one. So that one
 * look tells whether anybody else has.
 */
struct tdd_reader {
	struct tdd_holder *holder;
	struct tdd_publication *publication; /* counts its readers */
	uint64_t generation;
	uint32_t lease_count;
	UT_hash_handle hh; /* holder::readers, by generation */
};

/* One lease more; NULL without memory. */
struct tdd_reader *tdd_reader_take(struct tdd_holder *holder,
				   struct tdd_publication *publication) TDP_MUST_CHECK;

/* That lease has gone; the reader ends with its last. Returns NULL. */
struct tdd_reader *tdd_reader_give_up(struct tdd_reader *reader);

/* The same for one that was taken without a lease, to look through the publication: whoever waits
 * for its release is told, and it ends unless somebody else has it. Returns NULL. */
struct tdd_reader *tdd_reader_leave(struct tdd_reader *reader);

/* Has this holder a lease on it? */
bool tdd_holder_reads(const struct tdd_holder *holder, const struct tdd_publication *publication);

/* Does nobody but @holder have a lease or a pin on it? */
bool tdd_publication_is_released(const struct tdd_publication *publication,
				 const struct tdd_holder *holder);

#endif
