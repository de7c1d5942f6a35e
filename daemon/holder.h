/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_HOLDER_H
#define TDD_HOLDER_H

#include <stdbool.h>

#include "daemon/policy.h"
#include "daemon/process.h"
#include "daemon/quota.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

struct tdd_events;
struct tdd_hold;
struct tdd_notice;
struct tdd_pooled;
struct tdd_publication;
struct tdd_reader;
struct tdd_registry;
struct tdd_stake;
struct tdd_subscription;
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
	struct tdd_hold *leases;		  /* map by lease id */
	struct tdd_hold *allocations;		  /* map by segment id */
	struct tdd_stake *stakes;		  /* map by segment id: of all its holds */
	struct tdd_reader *readers;		  /* map by generation: of its leases */
	struct tdd_publication *owned;		  /* list: retention OWNER */
	struct tdd_pooled *pooled;		  /* list: segments it wants back */
	struct tdd_waiter *waiters;		  /* list */
	struct tdd_writer_watch *writer_watches;  /* list */
	struct tdd_subscription *subscriptions;	  /* list */
	struct tdd_notice *notices;		  /* list: what they are to hear, oldest first */
	struct tdd_events *news_of;		  /* where it stands in line to be sent them */
	struct tdd_holder *news_prev, *news_next; /* events::news */
	bool said_goodbye;			  /* its end is its own will, no death */
	bool is_ending; /* what it loses from now on, it does not give back by itself */
};

/* Takes over the subject, and the references to process and account. */
void tdd_holder_init(struct tdd_holder *holder, const struct tdd_subject *subject,
		     struct tdd_process *process, struct tdd_account *uid_account);

/* Give up holds, waits and watches, as many as there is time for (daemon/work.h). What it owns is
 * removed from the registry, at once or, if it ended without goodbye, after the grace period. True
 * when nothing is left. */
bool tdd_holder_drop_some(struct tdd_holder *holder, struct tdd_registry *registry);

/* The same, all of it. */
void tdd_holder_drop_all(struct tdd_holder *holder, struct tdd_registry *registry);

/* After tdd_holder_drop_all(). */
void tdd_holder_deinit(struct tdd_holder *holder);

/* Stand in line for being sent one's notices, and leave it; both any number of times. */
void tdd_holder_put_on_news(struct tdd_holder *holder, struct tdd_events *events);
void tdd_holder_take_off_news(struct tdd_holder *holder);

static inline struct tdd_account *tdd_holder_uid_account(struct tdd_holder *holder)
{
	return holder->account.parent;
}

#endif
