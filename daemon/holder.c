/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a holder: nothing that it had stays, and nothing of others changes. */
#include "daemon/holder.h"

#include <string.h>

#include "daemon/lease.h"
#include "daemon/limits.h"
#include "daemon/pool.h"
#include "daemon/publication.h"
#include "daemon/registry.h"
#include "daemon/subscription.h"
#include "daemon/waiter.h"
#include "daemon/work.h"
#include "daemon/writer_watch.h"

void tdd_holder_init(struct tdd_holder *holder, const struct tdd_subject *subject,
		     struct tdd_process *process, struct tdd_account *uid_account)
{
	memset(holder, 0, sizeof(*holder));
	holder->subject = *subject;
	holder->process = process;
	tdd_account_init_session(&holder->account, uid_account);
}

static void holder_drop_owned(struct tdd_holder *holder, struct tdd_registry *registry)
{
	bool is_death = !holder->said_goodbye && registry->owner_grace_ms > 0;

	if (is_death)
		tdd_registry_orphan(registry, holder->owned);
	else if (tdd_waiters_wake_more(registry, holder->owned->entry))
		tdd_registry_unlist(registry, holder->owned);
}

/* What hears and waits first, then names: when the holds go, memory that only they kept is freed
 * with them. False: nothing is left. */
static bool holder_drop_one(struct tdd_holder *holder, struct tdd_registry *registry)
{
	if (holder->writer_watches)
		tdd_writer_watch_free(holder->writer_watches);
	else if (holder->notices)
		/* In order of arrival, rather than those of one watch after those of another. */
		tdd_notice_drop(holder);
	else if (holder->subscriptions)
		tdd_subscription_free(holder->subscriptions);
	else if (holder->waiters)
		tdd_waiter_free(holder->waiters);
	else if (holder->owned)
		holder_drop_owned(holder, registry);
	else if (holder->leases)
		tdd_hold_free(holder->leases);
	else if (holder->allocations)
		tdd_hold_free(holder->allocations);
	else if (holder->pooled)
		tdd_pooled_free(holder->pooled);
	else
		return false;
	tdd_work_count(TDD_DROP_STEPS);
	return true;
}

bool tdd_holder_drop_some(struct tdd_holder *holder, struct tdd_registry *registry)
{
	bool has_more = true;

	holder->is_ending = true;
	while (has_more && !tdd_work_is_over())
		has_more = holder_drop_one(holder, registry);
	return !has_more;
}

void tdd_holder_drop_all(struct tdd_holder *holder, struct tdd_registry *registry)
{
	while (!tdd_holder_drop_some(holder, registry))
		tdd_work_begin(TDD_WORK_UNLIMITED);
}

void tdd_holder_deinit(struct tdd_holder *holder)
{
	tdd_account_deinit_session(&holder->account);
	tdd_subject_deinit(&holder->subject);
	holder->process = tdd_process_unref(holder->process);
}

void tdd_holder_put_on_news(struct tdd_holder *holder, struct tdd_events *events)
{
	if (holder->news_of)
		return;
	holder->news_of = events;
	DL_APPEND2(events->news, holder, news_prev, news_next);
}

void tdd_holder_take_off_news(struct tdd_holder *holder)
{
	if (!holder->news_of)
		return;
	DL_DELETE2(holder->news_of->news, holder, news_prev, news_next);
	holder->news_of = NULL;
}
