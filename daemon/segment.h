/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_SEGMENT_H
#define TDD_SEGMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/map.h"
#include "daemon/process.h"
#include "daemon/quota.h"
#include "include/tidl/tensor.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"
#include "proto/mem/memfd.h"
#include "proto/wire/message.h"

struct tdd_hold;
struct tdd_hold_use;
struct tdd_pooled;
struct tdd_publication;
struct tdd_segment;
struct tdd_stake;
struct tdd_writer_watch;

/* That a publication refers to a segment; embedded in the publication. */
struct tdd_segment_use {
	struct tdd_segment *segment;
	struct tdd_publication *publication;
	struct tdd_segment_use *prev, *next; /* segment::uses */
};

/* The last time that somebody lost the right to write a segment. */
struct tdd_departure {
	bool has_happened;
	bool is_death; /* perhaps in the middle of writing */
	int64_t pid;
};

/*
 * One block of shared memory. It lives while a publication uses it, an allocation holds it or its
 * publisher wants it back; the last of them frees it by tdd_segment_settle(). Owner, access and
 * seals belong to the segment.
 */
struct tdd_segment {
	uint64_t id;
	struct tdp_memfd_geometry geometry;
	int write_fd; /* -1: immutable */
	int read_fd;
	uint32_t creator_uid;
	struct tdd_process *creator;
	enum tidl_access access; /* 0 until first published */
	uint64_t huge_bytes;	 /* as its publisher says */
	bool is_write_granted;	 /* to another process: seals are final */
	bool may_be_mapped;	 /* by somebody whom the broker does not count */
	uint32_t listed_count;	 /* uses by listed publications */
	struct tdd_segment_use *uses;
	struct tdd_hold *allocations;
	struct tdd_pooled *pooled;   /* NULL: nobody wants it back */
	struct tdd_hold_use *leases; /* on all publications that use it, oldest first */
	struct tdd_stake *writers;   /* of holders that may write */
	struct tdd_departure last_departure;
	struct tdd_writer_watch *writer_watches;
	struct tdd_charge bytes;
	struct tdd_charge descriptors;
	uint64_t mark; /* of whoever has last looked at it, see tdd_segment_new_mark() */
	struct tdd_segment **map;
	UT_hash_handle hh; /* *map, by id */
};

/* A new memfd of @data_size_bytes, charged to @uid_account, added to @map under @id. Nobody refers
 * to it yet: give it a hold, or settle it. */
int tdd_segment_new(struct tdd_segment **map, uint64_t id, uint64_t data_size_bytes,
		    struct tdd_process *creator, struct tdd_account *uid_account,
		    struct tdd_segment **ret_segment, struct tdp_fault *fault) TDP_MUST_CHECK;

/* A number that is on no segment's mark yet: set it on some of them to know these again, as long as
 * nobody else sets marks. */
uint64_t tdd_segment_new_mark(void);

/* NULL: no such segment. */
struct tdd_segment *tdd_segment_find(struct tdd_segment *map, uint64_t id);

/*
 * Something that referred to the segment has gone: free it when it was the last, else see who pays.
 * The creator pays while it is listed or an allocation holds it, after that the uid of whoever has
 * held it longest, or, if nobody holds this part of a bundle, the bundle.
 */
void tdd_segment_settle(struct tdd_segment *segment);

/* Let the creator pay again, before it is listed once more. */
int tdd_segment_reclaim(struct tdd_segment *segment, struct tdd_account *uid_account,
			struct tdp_fault *fault) TDP_MUST_CHECK;

/* Make the seals final before another process than the creator's may write: from then on nobody
 * can turn them against a writer. */
int tdd_segment_seal_for_write(struct tdd_segment *segment, const struct tdd_process *writer,
			       struct tdp_fault *fault) TDP_MUST_CHECK;

/* Nobody writes it any more: keep the read-only descriptor alone. */
void tdd_segment_close_write(struct tdd_segment *segment);

/* For the wire, without what only an inspection tells. */
struct tdp_segment tdd_segment_view(const struct tdd_segment *segment);

/* The same with seals and inode, asked of the kernel now. */
int tdd_segment_examine(const struct tdd_segment *segment, struct tdp_segment *ret_view,
			struct tdp_fault *fault) TDP_MUST_CHECK;

#endif
