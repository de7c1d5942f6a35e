/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a holder: nothing that it had stays, and nothing of others changes. */
#include "daemon/holder.h"

#include <string.h>

#include "daemon/lease.h"
#include "daemon/publication.h"
#include "daemon/registry.h"
#include "daemon/waiter.h"
#include "daemon/writer_watch.h"

void tdd_holder_init(struct tdd_holder *holder, const struct tdd_subject *subject,
		     struct tdd_process *process, struct tdd_account *uid_account)
{
	memset(holder, 0, sizeof(*holder));
	holder->subject = *subject;
	holder->process = process;
	tdd_account_init_session(&holder->account, uid_account);
}

void tdd_holder_drop_all(struct tdd_holder *holder, struct tdd_registry *registry)
{
	struct tdd_hold *hold, *next;

	holder->is_ending = true;
	while (holder->writer_watches)
		tdd_writer_watch_free(holder->writer_watches);
	while (holder->waiters)
		tdd_waiter_free(holder->waiters);
	/* Names first: when the holds go, memory that only they kept is freed with them. */
	while (holder->owned)
		tdd_registry_unlist(registry, holder->owned);
	HASH_ITER (hh, holder->leases, hold, next)
		tdd_hold_free(hold);
	HASH_ITER (hh, holder->allocations, hold, next)
		tdd_hold_free(hold);
}

void tdd_holder_deinit(struct tdd_holder *holder)
{
	tdd_account_deinit_session(&holder->account);
	tdd_subject_deinit(&holder->subject);
	holder->process = tdd_process_unref(holder->process);
}
