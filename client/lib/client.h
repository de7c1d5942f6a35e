/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_CLIENT_H
#define TDC_CLIENT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "client/lib/attention.h"
#include "client/lib/conn.h"
#include "client/lib/inplace/listed.h"
#include "client/lib/interrupt.h"
#include "client/lib/outbound.h"
#include "client/lib/pool.h"
#include "client/lib/segtable.h"
#include "include/tidl/client.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

struct tdc_call;
struct tdc_moved;
struct tidl_watch;

/*
 *   OPEN --broker gone, protocol broken--> BROKEN
 *   OPEN, BROKEN --fork(), in the child--> FORKED --next call connects--> OPEN
 *   any --tidl_close(), tidl_disconnect()--> CLOSED
 */
enum tdc_client_state {
	TDC_CLIENT_STATE_OPEN,
	TDC_CLIENT_STATE_FORKED,
	TDC_CLIENT_STATE_BROKEN, /* `broken` says why; for good */
	TDC_CLIENT_STATE_CLOSED,
};

/*
 * The object behind every tensor and export too, counted, so that those outlive tidl_disconnect().
 *
 * `lock` is held for short stretches only: never across a call that can block, a framework's
 * deleter or the interrupt handler. The registry of clients (fork.h) is locked before it.
 */
struct tidl_client {
	atomic_size_t refs; /* the user's, and one for each tensor */

	/* Set before the client is shared, constant afterwards. */
	struct tdc_interrupt interrupt;
	char client_name[TDP_CLIENT_NAME_MAX_BYTES + 1];
	int64_t answer_timeout_ms; /* see call.h */

	pthread_mutex_t lock; /* guards everything below */
	enum tdc_client_state state;
	uint64_t era; /* counts connections, so that nothing of an older one is released here */
	struct tdc_link link;
	struct tidl_broker_info broker;
	struct tdp_fault broken;
	unsigned char *packet; /* one packet, going out or just come in */

	uint64_t next_request_id;
	struct tdc_call *calls;
	struct tdc_call *leader; /* the one that watches the socket for all */
	size_t orphan_count;	 /* requests whose callers went away before the answer */
	size_t arrived_count;	 /* calls with a part of an answer that nobody has taken */

	struct tdc_attention attention;
	struct tdc_outbound outbound;
	struct tidl_watch *watches;
	struct tdc_segtable segments;
	struct tdc_pool pool;
	uint64_t fork_count;	 /* of this process since the client was made */
	struct tdc_moved *moved; /* shared where it lay (inplace/moved.h) */
	struct tdc_listed listed;

	/* Guarded by the registry's lock. */
	struct tidl_client *prev, *next;
};

/* A client over a link that is ready; the link is taken over on success. */
int tdc_client_new(struct tdc_link *link, const char *client_name, struct tidl_client **ret_client,
		   struct tdp_fault *fault) TDP_MUST_CHECK;

struct tidl_client *tdc_client_ref(struct tidl_client *client);
struct tidl_client *tdc_client_unref(struct tidl_client *client);

/* End the connection, whatever its state, and every call in flight. Never blocks. */
void tdc_client_end(struct tidl_client *client);

/* The same when no other call runs: its descriptors go, too. */
void tdc_client_close(struct tidl_client *client);

void tdc_client_lock(struct tidl_client *client);
void tdc_client_unlock(struct tidl_client *client);

/*
 * Lock a client that is connected; in a forked child connect first. On failure the lock is not
 * held.
 */
int tdc_client_lock_open(struct tidl_client *client, struct tdp_fault *fault) TDP_MUST_CHECK;

/* Why a client that is not open cannot be used. Client locked. */
int tdc_client_refuse(const struct tidl_client *client, struct tdp_fault *fault) TDP_MUST_CHECK;

/* The connection is over: every call in flight ends with @reason. Client locked. */
void tdc_client_break(struct tidl_client *client, const struct tdp_fault *reason);

/* In the child, between fork() and its return: nothing of the parent's connection is left. Locked.
 */
void tdc_client_become_child(struct tidl_client *client);

const char *tdc_client_state_name(enum tdc_client_state state);

#endif
