/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_WRITER_WATCH_H
#define TDD_WRITER_WATCH_H

#include <stdint.h>

#include "daemon/holder.h"
#include "daemon/quota.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

struct tdd_segment;

/*
 * A request that is parked until a writer of a segment has gone: who waits for steps learns that
 * they will not come. Owned by its holder, and ends with the holder's last hold on the segment.
 */
struct tdd_writer_watch {
	uint64_t request_id;
	struct tdd_holder *holder;
	struct tdd_segment *segment;
	/* Called when the watch has ended, with why; it is freed by then. */
	void (*answer)(void *context, uint64_t request_id, const struct tdp_fault *reason);
	void *context;
	struct tdd_charge charge;
	struct tdd_writer_watch *prev, *next;		      /* segment::writer_watches */
	struct tdd_writer_watch *sibling_prev, *sibling_next; /* holder::writer_watches */
};

/* What the caller knows of a watch before it is parked. */
struct tdd_writer_watch_spec {
	struct tdd_segment *segment; /* the holder holds it */
	uint64_t request_id;
	void (*answer)(void *context, uint64_t request_id, const struct tdp_fault *reason);
	void *context;
};

/* TIDL_ERR_WRITER_GONE when nobody but @holder can write the segment, though somebody could. */
int tdd_writer_watch_park(struct tdd_holder *holder, const struct tdd_writer_watch_spec *spec,
			  struct tdp_fault *fault) TDP_MUST_CHECK;

/* End without an answer. NULL is allowed. Returns NULL. */
struct tdd_writer_watch *tdd_writer_watch_free(struct tdd_writer_watch *watch);

/* NULL: the holder watches nothing by this id. */
struct tdd_writer_watch *tdd_writer_watch_find(const struct tdd_holder *holder,
					       uint64_t request_id);

/* 0 when somebody else than @holder can write the segment, else TIDL_ERR_WRITER_GONE. */
int tdd_writer_check(const struct tdd_segment *segment, const struct tdd_holder *holder,
		     struct tdp_fault *fault) TDP_MUST_CHECK;

/* @holder can write the segment no more: tell whom that concerns. */
void tdd_writer_left(struct tdd_segment *segment, const struct tdd_holder *holder);

/* Wake who sleeps on the segment's control page, to look into their sockets. */
void tdd_writer_wake(const struct tdd_segment *segment);

/* @holder has nothing of the segment any more: its watches end with CANCELLED. */
void tdd_writer_watches_cancel(struct tdd_segment *segment, const struct tdd_holder *holder);

#endif
