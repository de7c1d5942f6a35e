/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_WAITER_H
#define TDD_WAITER_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/holder.h"
#include "daemon/quota.h"
#include "daemon/selection.h"
#include "include/tidl/tensor.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

struct tdd_name;
struct tdd_publication;
struct tdd_registry;
struct tdd_waiter;

/* What was waited for may be so: answer and free the waiter, or go on waiting. For a publication
 * that is released there is no going on: it may be gone next. */
typedef void (*tdd_waiter_fn)(struct tdd_waiter *waiter, struct tdd_publication *publication);

/*
 * A request that is parked: until a name has a publication, a later one than some, or until a
 * publication is released. Owned by its holder. The broker keeps no time: the client gives a wait
 * up when it wants to.
 */
struct tdd_waiter {
	uint64_t request_id;
	enum tidl_attach attach;
	uint64_t newer_than;	     /* generations up to this one do not count */
	uint64_t told_generation;    /* the last one that it was woken for */
	struct tdd_wanted_keys keys; /* owned; in one block */
	struct tdd_holder *holder;
	struct tdd_registry *registry;
	struct tdd_name *entry;		     /* what it waits for, or */
	struct tdd_publication *publication; /* what has to be released */
	tdd_waiter_fn wake;
	void *context;
	struct tdd_charge charge;
	struct tdd_charge bytes;			/* of the keys */
	struct tdd_waiter *prev, *next;			/* name::waiters, publication::waiters */
	struct tdd_waiter *sibling_prev, *sibling_next; /* holder::waiters */
};

/* What the caller knows of a waiter before it is parked. */
struct tdd_waiter_spec {
	uint32_t owner_uid;
	const char *name;
	struct tdd_publication *publication; /* NULL: wait for the name */
	uint64_t request_id;
	enum tidl_attach attach;
	uint64_t newer_than;
	struct tdd_wanted_keys keys; /* borrowed and copied */
	tdd_waiter_fn wake;
	void *context;
};

int tdd_waiter_park(struct tdd_registry *registry, struct tdd_holder *holder,
		    const struct tdd_waiter_spec *spec, struct tdp_fault *fault) TDP_MUST_CHECK;

/* Returns NULL. */
struct tdd_waiter *tdd_waiter_free(struct tdd_waiter *waiter);

/* NULL: the holder does not wait by this id. */
struct tdd_waiter *tdd_waiter_find(const struct tdd_holder *holder, uint64_t request_id);

/*
 * Wake all that wait for the publication's name, the longest waiting first: as many as one turn of
 * the loop has time for, and the rest in the turns that follow.
 */
void tdd_waiters_wake(struct tdd_publication *publication);

/* A turn of the loop has ended. True when there are more to wake in the next one. */
bool tdd_waiters_turn(struct tdd_registry *registry);

/* The name is about to go: those that were left for later now, as many as there is time for
 * (daemon/work.h). False when some are still left, so that it should not go yet. */
bool tdd_waiters_wake_more(struct tdd_registry *registry, struct tdd_name *entry);

/* The name goes. */
void tdd_waiters_stop_waking(struct tdd_registry *registry, struct tdd_name *entry);

/* A lease or a pin has gone: wake those for whom the publication is released by that. */
void tdd_waiters_wake_released(struct tdd_publication *publication);

#endif
