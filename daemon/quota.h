/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_QUOTA_H
#define TDD_QUOTA_H

#include <stdint.h>

#include "daemon/line.h"
#include "daemon/map.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

/*
 * Who uses how much. Accounts form a tree: the whole broker, each uid, each session of it. A charge
 * is embedded in the resource that it pays for, counts on its account and on all above, and is
 * given back by the resource's destructor, so that freeing a thing cannot forget its quota.
 */

enum tdd_quota_kind {
	TDD_QUOTA_BYTES,	/* segments, and what the broker remembers of publications */
	TDD_QUOTA_DESCRIPTORS,	/* open in the broker */
	TDD_QUOTA_PUBLICATIONS, /* listed, or replaced and still held */
	TDD_QUOTA_TENSORS,	/* in all publications */
	TDD_QUOTA_HOLDS,	/* leases and allocations, by segments */
	TDD_QUOTA_PINS,
	TDD_QUOTA_WAITS, /* parked requests */
	TDD_QUOTA_WATCHES,
	TDD_QUOTA_EVENTS,      /* not sent yet */
	TDD_QUOTA_QUEUE_BYTES, /* replies not read yet */
	TDD_QUOTA_FLIGHT,      /* descriptors sent and not received yet */
	TDD_QUOTA_SESSIONS,
	TDD_QUOTA_KIND_COUNT
};

enum tdd_account_level {
	TDD_ACCOUNT_BROKER,
	TDD_ACCOUNT_UID,
	TDD_ACCOUNT_SESSION,
	TDD_ACCOUNT_LEVEL_COUNT
};

/* Who may use the last descriptors: memory leaves some for connections, and those some for the ones
 * that can put things right. */
enum tdd_quota_claim {
	TDD_CLAIM_MEMORY,
	TDD_CLAIM_SESSION,
	TDD_CLAIM_ADMIN, /* a session of the broker's own uid or of root */
	TDD_QUOTA_CLAIM_COUNT
};

struct tdd_account {
	enum tdd_account_level level;
	uint32_t uid;	    /* of levels UID and SESSION */
	uint32_t ref_count; /* charges and accounts below */
	struct tdd_quota *quota;
	struct tdd_account *parent; /* NULL: the broker's */
	uint64_t used[TDD_QUOTA_KIND_COUNT];
	struct tdd_debt debt;	       /* of the turns of the loop; of levels UID and SESSION */
	struct tdd_queue flight_queue; /* of level UID: what it has to send and has to wait */
	struct tdd_queue queue;	       /* of level UID: its sessions that wait for a turn */
	struct tdd_ends ends;	       /* of level UID: of its sessions */
	UT_hash_handle hh;	       /* quota::uids */
};

struct tdd_quota {
	uint64_t limits[TDD_ACCOUNT_LEVEL_COUNT][TDD_QUOTA_KIND_COUNT];
	/* Descriptors that a claim leaves to the ones after it. */
	uint64_t kept_descriptors[TDD_ACCOUNT_LEVEL_COUNT][TDD_QUOTA_CLAIM_COUNT];
	struct tdd_account broker;
	struct tdd_account *uids; /* owned; an account goes with its last reference */
};

struct tdd_charge {
	struct tdd_account *account; /* NULL: nothing is charged */
	enum tdd_quota_kind kind;
	enum tdd_quota_claim claim; /* of descriptors; set it before the charge is made */
	uint64_t amount;
};

/* The limits of limits.h, with @total_bytes and @uid_bytes for memory and @descriptors for the
 * whole broker. */
void tdd_quota_init(struct tdd_quota *quota, uint64_t total_bytes, uint64_t uid_bytes,
		    uint64_t descriptors);

/* Every charge and account must be gone. */
void tdd_quota_deinit(struct tdd_quota *quota);

/* The account of a uid, with one reference more; NULL without memory. */
struct tdd_account *tdd_quota_ref_uid(struct tdd_quota *quota, uint32_t uid) TDP_MUST_CHECK;
void tdd_account_unref(struct tdd_account *account);

/* An account below @uid_account, whose reference it takes over. */
void tdd_account_init_session(struct tdd_account *account, struct tdd_account *uid_account);
void tdd_account_deinit_session(struct tdd_account *account);

/*
 * Charge @amount. Returns 0, TIDL_ERR_QUOTA (of the uid or the session) or TIDL_ERR_LIMIT (of the
 * whole broker); the fault says who uses how much and what to do.
 */
int tdd_charge_init(struct tdd_charge *charge, struct tdd_account *account,
		    enum tdd_quota_kind kind, uint64_t amount,
		    struct tdp_fault *fault) TDP_MUST_CHECK;

/* Give back; a zeroed charge is allowed. */
void tdd_charge_deinit(struct tdd_charge *charge);

/* Part of what is charged has gone. */
void tdd_charge_reduce(struct tdd_charge *charge, uint64_t amount);

/* Let another account pay, as above; the charge stays where it was on failure. */
int tdd_charge_move(struct tdd_charge *charge, struct tdd_account *account,
		    struct tdp_fault *fault) TDP_MUST_CHECK;

/* The same without asking: the memory is in use already, whatever the limit. */
void tdd_charge_force(struct tdd_charge *charge, struct tdd_account *account);

#endif
