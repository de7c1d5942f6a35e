/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_HOLDER_H
#define TDD_HOLDER_H

#include <stdbool.h>

#include "daemon/policy.h"
#include "daemon/process.h"
#include "daemon/quota.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

struct tdd_hold;
struct tdd_publication;
struct tdd_registry;
struct tdd_stake;
struct tdd_waiter;
struct tdd_writer_watch;

/*
 * What a session is to the domain: somebody with rights and an account who holds memory, waits for
 * names and owns publications. Embedded in the session; everything it has ends with it.
 */
struct tdd_holder {
	struct tdd_subject subject;
	struct tdd_process *process;
	struct tdd_account account;
	struct tdd_hold *leases;		 /* map by lease id */
	struct tdd_hold *allocations;		 /* map by segment id */
	struct tdd_stake *stakes;		 /* map by segment id: of all its holds */
	struct tdd_publication *owned;		 /* list: retention OWNER */
	struct tdd_waiter *waiters;		 /* list */
	struct tdd_writer_watch *writer_watches; /* list */
	bool is_ending; /* what it loses from now on, it does not give back by itself */
};

/* Takes over the subject, and the references to process and account. */
void tdd_holder_init(struct tdd_holder *holder, const struct tdd_subject *subject,
		     struct tdd_process *process, struct tdd_account *uid_account);

/* Give up all holds and waits, and remove what it owns from the registry. */
void tdd_holder_drop_all(struct tdd_holder *holder, struct tdd_registry *registry);

/* After tdd_holder_drop_all(). */
void tdd_holder_deinit(struct tdd_holder *holder);

static inline struct tdd_account *tdd_holder_uid_account(struct tdd_holder *holder)
{
	return holder->account.parent;
}

#endif
