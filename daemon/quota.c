/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Accounts and charges. The quota belongs to the server; accounts of uids belong to the quota and
 * live while a charge or a session refers to them, accounts of sessions are embedded in their
 * holder. Nothing here decides what is charged: the resources do.
 */
#include "daemon/quota.h"

#include <assert.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/limits.h"

#define UNLIMITED UINT64_MAX

static const struct {
	const char *what;
	const char *advice;
} kind_texts[TDD_QUOTA_KIND_COUNT] = {
	[TDD_QUOTA_BYTES] = {"bytes of shared memory",
			     "release or remove tensors, or start tidld with a higher --quota-uid "
			     "and --quota-total"},
	[TDD_QUOTA_DESCRIPTORS] = {"descriptors in the broker",
				   "release or remove tensors, or raise RLIMIT_NOFILE of tidld"},
	[TDD_QUOTA_PUBLICATIONS] = {"publications", "remove some first"},
	[TDD_QUOTA_TENSORS] = {"published tensors", "remove some publications first"},
	[TDD_QUOTA_HOLDS] = {"leases and allocations", "release some first"},
	[TDD_QUOTA_PINS] = {"pins", "wait until some have ended"},
	[TDD_QUOTA_WAITS] = {"waiting requests", "cancel some first"},
	[TDD_QUOTA_WATCHES] = {"watches", "end some first"},
	[TDD_QUOTA_EVENTS] = {"unread events", "read them first"},
	[TDD_QUOTA_QUEUE_BYTES] = {"bytes of unread replies", "read them first"},
	[TDD_QUOTA_FLIGHT] = {"descriptors on their way", "receive them first"},
	[TDD_QUOTA_SESSIONS] = {"connections", "close some first"},
};

static void account_init(struct tdd_account *account, struct tdd_quota *quota,
			 enum tdd_account_level level, uint32_t uid, struct tdd_account *parent)
{
	memset(account, 0, sizeof(*account));
	account->level = level;
	account->uid = uid;
	account->quota = quota;
	account->parent = parent;
}

void tdd_quota_init(struct tdd_quota *quota, uint64_t total_bytes, uint64_t uid_bytes,
		    uint64_t descriptors)
{
	memset(quota, 0, sizeof(*quota));
	for (int level = 0; level < TDD_ACCOUNT_LEVEL_COUNT; level++) {
		for (int kind = 0; kind < TDD_QUOTA_KIND_COUNT; kind++)
			quota->limits[level][kind] = UNLIMITED;
	}
	uint64_t *broker = quota->limits[TDD_ACCOUNT_BROKER];
	uint64_t *uid = quota->limits[TDD_ACCOUNT_UID];
	uint64_t *session = quota->limits[TDD_ACCOUNT_SESSION];

	broker[TDD_QUOTA_BYTES] = total_bytes;
	broker[TDD_QUOTA_DESCRIPTORS] = descriptors;
	uid[TDD_QUOTA_BYTES] = uid_bytes;
	uid[TDD_QUOTA_SESSIONS] = TDD_SESSIONS_PER_UID;
	uid[TDD_QUOTA_PUBLICATIONS] = TDD_PUBLICATIONS_PER_UID;
	uid[TDD_QUOTA_TENSORS] = TDD_TENSORS_PER_UID;
	uid[TDD_QUOTA_HOLDS] = TDD_HOLDS_PER_UID;
	uid[TDD_QUOTA_PINS] = TDD_PINS_PER_UID;
	uid[TDD_QUOTA_WAITS] = TDD_WAITS_PER_UID;
	uid[TDD_QUOTA_WATCHES] = TDD_WATCHES_PER_UID;
	uid[TDD_QUOTA_EVENTS] = TDD_EVENTS_PER_UID;
	uid[TDD_QUOTA_QUEUE_BYTES] = TDD_OUTBOX_BYTES_PER_UID;
	session[TDD_QUOTA_HOLDS] = TDD_HOLDS_PER_SESSION;
	session[TDD_QUOTA_WAITS] = TDD_WAITS_PER_SESSION;
	session[TDD_QUOTA_WATCHES] = TDD_WATCHES_PER_SESSION;
	session[TDD_QUOTA_EVENTS] = TDD_EVENTS_PER_SESSION;
	session[TDD_QUOTA_QUEUE_BYTES] = TDD_OUTBOX_BYTES_PER_SESSION;
	account_init(&quota->broker, quota, TDD_ACCOUNT_BROKER, 0, NULL);
}

void tdd_quota_deinit(struct tdd_quota *quota)
{
	assert(!quota->uids);
	assert(quota->broker.ref_count == 0);
}

struct tdd_account *tdd_quota_ref_uid(struct tdd_quota *quota, uint32_t uid)
{
	struct tdd_account *account = NULL;

	HASH_FIND(hh, quota->uids, &uid, sizeof(uid), account);
	if (!account) {
		account = malloc(sizeof(*account));
		if (!account)
			return NULL;
		account_init(account, quota, TDD_ACCOUNT_UID, uid, &quota->broker);
		HASH_ADD(hh, quota->uids, uid, sizeof(account->uid), account);
		if (!account->hh.tbl) {
			free(account);
			return NULL;
		}
	}
	account->ref_count++;
	return account;
}

void tdd_account_unref(struct tdd_account *account)
{
	if (!account)
		return;
	assert(account->ref_count > 0);
	account->ref_count--;
	if (account->level != TDD_ACCOUNT_UID || account->ref_count > 0)
		return;
	HASH_DELETE(hh, account->quota->uids, account);
	free(account);
}

void tdd_account_init_session(struct tdd_account *account, struct tdd_account *uid_account)
{
	account_init(account, uid_account->quota, TDD_ACCOUNT_SESSION, uid_account->uid,
		     uid_account);
}

void tdd_account_deinit_session(struct tdd_account *account)
{
	assert(account->ref_count == 0);
	tdd_account_unref(account->parent);
	account->parent = NULL;
}

/* What this charge may fill the account up to. */
static uint64_t account_limit(const struct tdd_account *account, const struct tdd_charge *charge)
{
	const struct tdd_quota *quota = account->quota;
	uint64_t limit = quota->limits[account->level][charge->kind];
	uint64_t kept;

	if (charge->kind != TDD_QUOTA_DESCRIPTORS)
		return limit;
	kept = quota->kept_descriptors[account->level][charge->claim];
	return kept < limit ? limit - kept : 0;
}

static int account_refuse(const struct tdd_account *account, const struct tdd_charge *charge,
			  struct tdp_fault *fault)
{
	uint64_t limit = account_limit(account, charge);
	uint64_t used = account->used[charge->kind];
	uint64_t amount = charge->amount;
	const char *what = kind_texts[charge->kind].what;
	const char *advice = kind_texts[charge->kind].advice;

	if (account->level == TDD_ACCOUNT_BROKER)
		return tdp_fault_set(fault, TIDL_ERR_LIMIT,
				     "the broker serves at most %" PRIu64 " %s, has %" PRIu64
				     " and would need %" PRIu64 " more: %s",
				     limit, what, used, amount, advice);
	return tdp_fault_set(fault, TIDL_ERR_QUOTA,
			     "%s of uid %" PRIu32 " may have at most %" PRIu64 " %s, has %" PRIu64
			     " and would need %" PRIu64 " more: %s",
			     account->level == TDD_ACCOUNT_UID ? "all processes" : "one connection",
			     account->uid, limit, what, used, amount, advice);
}

/* Is there room on @account and all above, as far as and without @common? */
static int account_check(const struct tdd_account *account, const struct tdd_account *common,
			 const struct tdd_charge *charge, struct tdp_fault *fault)
{
	for (; account != common; account = account->parent) {
		uint64_t limit = account_limit(account, charge);
		uint64_t used = account->used[charge->kind];

		if (used > limit || charge->amount > limit - used)
			return account_refuse(account, charge, fault);
	}
	return 0;
}

static bool account_is_above(const struct tdd_account *account, const struct tdd_account *other)
{
	while (other != account) {
		if (!other->parent)
			return false;
		other = other->parent;
	}
	return true;
}

static void charge_attach(struct tdd_charge *charge, struct tdd_account *account)
{
	charge->account = account;
	account->ref_count++;
	for (; account; account = account->parent)
		account->used[charge->kind] += charge->amount;
}

int tdd_charge_init(struct tdd_charge *charge, struct tdd_account *account,
		    enum tdd_quota_kind kind, uint64_t amount, struct tdp_fault *fault)
{
	struct tdd_charge made = {.kind = kind, .claim = charge->claim, .amount = amount};
	int r = account_check(account, NULL, &made, fault);

	if (r < 0)
		return r;
	charge_attach(&made, account);
	*charge = made;
	return 0;
}

void tdd_charge_deinit(struct tdd_charge *charge)
{
	struct tdd_account *account = charge->account;

	if (!account)
		return;
	charge->account = NULL;
	for (struct tdd_account *a = account; a; a = a->parent)
		a->used[charge->kind] -= charge->amount;
	tdd_account_unref(account);
}

void tdd_charge_reduce(struct tdd_charge *charge, uint64_t amount)
{
	charge->amount -= amount;
	for (struct tdd_account *a = charge->account; a; a = a->parent)
		a->used[charge->kind] -= amount;
}

void tdd_charge_force(struct tdd_charge *charge, struct tdd_account *account)
{
	struct tdd_charge moved = {
		.kind = charge->kind, .claim = charge->claim, .amount = charge->amount};

	if (charge->account == account)
		return;
	charge_attach(&moved, account);
	tdd_charge_deinit(charge);
	*charge = moved;
}

int tdd_charge_move(struct tdd_charge *charge, struct tdd_account *account, struct tdp_fault *fault)
{
	const struct tdd_account *common = charge->account;
	int r;

	/* What both have above them pays already. */
	while (common && !account_is_above(common, account))
		common = common->parent;
	r = account_check(account, common, charge, fault);
	if (r < 0)
		return r;
	tdd_charge_force(charge, account);
	return 0;
}
