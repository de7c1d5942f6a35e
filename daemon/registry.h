/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_REGISTRY_H
#define TDD_REGISTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/deadline.h"
#include "daemon/events.h"
#include "daemon/index.h"
#include "daemon/map.h"
#include "daemon/segment.h"
#include "include/tidl/tensor.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

struct tdd_publication;
struct tdd_subscription;
struct tdd_waiter;

/*
 * A name in the namespace of a uid. It exists while it has a publication, somebody waits for it or
 * watches it alone, or it is claimed.
 */
struct tdd_name {
	struct tdd_publication *current; /* NULL: none */
	struct tdd_publication *kept;	 /* list: replaced and listed by number, newest first */
	uint32_t kept_count;
	struct tdd_waiter *waiters;
	bool is_waking; /* some of them have not been told of `current` yet */
	struct tdd_name *waking_prev, *waking_next; /* registry::waking */
	struct tdd_subscription *subscriptions;	    /* to this name and no other */
	UT_hash_handle hh;			    /* registry::names, by uid and text */
	uint32_t key_bytes;
	uint32_t owner_uid; /* the key begins here */
	char text[];	    /* not terminated */
};

/* All that is published, and the counters that ids come from; none of them ever repeats. */
struct tdd_registry {
	struct tdd_name *names;
	struct tdd_index index; /* what names stand for now */
	struct tdd_index alive; /* the same, and what is kept, leased or pinned */
	struct tdd_timeline timeline;
	struct tdd_events events;
	struct tdd_name *waking;   /* list */
	uint64_t wake_steps_spent; /* in this turn of the loop */
	uint64_t owner_grace_ms;   /* between the death of an owner and the end of what it owned */
	struct tdd_segment *segments; /* map by id */
	uint64_t last_generation;
	uint64_t last_segment_id;
	uint64_t last_hold_serial;
};

void tdd_registry_init(struct tdd_registry *registry);

/* Remove everything; sessions and their holds must be gone. */
void tdd_registry_deinit(struct tdd_registry *registry);

/* What is published as @name of @owner_uid; NULL: nothing. */
struct tdd_publication *tdd_registry_find(const struct tdd_registry *registry, uint32_t owner_uid,
					  const char *name);

/* Generation @generation of that name, listed or not; NULL: it has gone, or never was. */
struct tdd_publication *tdd_registry_find_generation(const struct tdd_registry *registry,
						     uint32_t owner_uid, const char *name,
						     uint64_t generation);

/* NULL: nothing is known of it. */
struct tdd_name *tdd_registry_find_name(const struct tdd_registry *registry, uint32_t owner_uid,
					const char *name);

/* The name, made when it does not exist, and room to list a publication under it. Give it back by
 * tdd_registry_unclaim() unless it was listed. */
int tdd_registry_claim(struct tdd_registry *registry, uint32_t owner_uid, const char *name,
		       struct tdd_name **ret_entry, struct tdp_fault *fault) TDP_MUST_CHECK;
void tdd_registry_unclaim(struct tdd_registry *registry, struct tdd_name *entry);

/* Give the publication its generation and the name. Of those that had it before, the last
 * @keep - 1 stay listed by number, the others are unlisted. Cannot fail. */
void tdd_registry_list(struct tdd_registry *registry, struct tdd_name *entry,
		       struct tdd_publication *publication, uint32_t keep);

/* Take it out: nobody finds it any more. Those who wait for it should have been woken before
 * (tdd_waiters_wake_more()), or wait for the next one. With what a name stands for go its kept
 * ones. Frees it unless a lease or a pin holds it. */
void tdd_registry_unlist(struct tdd_registry *registry, struct tdd_publication *publication);

/* Its owner has died: what the owner owned ends with the grace period. */
void tdd_registry_orphan(struct tdd_registry *registry, struct tdd_publication *publication);

/* Nothing is published, kept, leased or pinned. */
static inline bool tdd_registry_is_empty(const struct tdd_registry *registry)
{
	return tdd_index_count(&registry->alive) == 0;
}

static inline size_t tdd_registry_count(const struct tdd_registry *registry)
{
	return tdd_index_count(&registry->index);
}

#endif
