/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_WAITER_H
#define TDD_WAITER_H

#include <stdint.h>

#include "daemon/holder.h"
#include "daemon/quota.h"
#include "include/tidl/tensor.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

struct tdd_name;
struct tdd_publication;
struct tdd_registry;

/*
 * A request that is parked until a name is published. Owned by its holder. The broker keeps no
 * time: the client gives a wait up when it wants to.
 */
struct tdd_waiter {
	uint64_t request_id;
	enum tidl_attach attach;
	struct tdd_holder *holder;
	struct tdd_registry *registry;
	struct tdd_name *entry; /* what it waits for */
	/* The name has a new publication: answer and free the waiter, or go on waiting. */
	void (*wake)(struct tdd_waiter *waiter, struct tdd_publication *publication);
	void *context;
	struct tdd_charge charge;
	struct tdd_waiter *prev, *next;			/* name::waiters */
	struct tdd_waiter *sibling_prev, *sibling_next; /* holder::waiters */
};

/* What the caller knows of a waiter before it is parked. */
struct tdd_waiter_spec {
	uint32_t owner_uid;
	const char *name;
	uint64_t request_id;
	enum tidl_attach attach;
	void (*wake)(struct tdd_waiter *waiter, struct tdd_publication *publication);
	void *context;
};

int tdd_waiter_park(struct tdd_registry *registry, struct tdd_holder *holder,
		    const struct tdd_waiter_spec *spec, struct tdp_fault *fault) TDP_MUST_CHECK;

/* Returns NULL. */
struct tdd_waiter *tdd_waiter_free(struct tdd_waiter *waiter);

/* NULL: the holder does not wait by this id. */
struct tdd_waiter *tdd_waiter_find(const struct tdd_holder *holder, uint64_t request_id);

/* Wake all that wait for the publication's name, the longest waiting first. */
void tdd_waiters_wake(struct tdd_publication *publication);

#endif
