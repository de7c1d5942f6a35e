/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_WAITERS_H
#define TDC_WAITERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/lib/reply.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

struct tdc_ready;
struct tdp_control;
struct tidl_client;
struct tidl_watch;

/*
 * A GET that no thread waits for may be answered in parts. Whoever receives one leaves it to the
 * next dispatch, which maps it and asks for the next; the call is not done meanwhile.
 *
 *	AWAITED --all but the last part--> ARRIVED --dispatch--> TAKEN --asked for the next-->
 *AWAITED
 */
enum tdc_call_part {
	TDC_PART_NONE, /* one answer, which ends the call */
	TDC_PART_AWAITED,
	TDC_PART_ARRIVED, /* in `reply`; nothing is in flight */
	TDC_PART_TAKEN, /* some thread is at it, without the lock; who ends the call tells nobody */
};

/*
 * One request in flight. Lives on its caller's stack, or in what stands for it when no thread
 * waits; everything in it is guarded by the client's lock. Done when `is_done`, with `result` 0 and
 * the answer in `reply`, or an error in `fault`.
 */
struct tdc_call {
	uint64_t request_id;
	bool is_wait;	/* the broker may hold the answer back: to be cancelled at the deadline */
	bool is_linked; /* in the client's list */
	bool is_sent;
	bool is_done;
	int result;
	int given_up; /* TIDL_ERR_TIMEOUT or _INTERRUPTED once the caller wants no more */
	int wake_fd;  /* eventfd of a call that follows; -1 until it first has to */
	int64_t deadline;
	struct tdc_reply *reply; /* never NULL; swapped with the receiver's */
	struct tdp_fault *fault;
	const int *fds; /* to be sent with it; borrowed */
	uint32_t fd_count;
	struct tidl_watch *opened; /* becomes a watch when the answer comes */
	struct tidl_watch *watch;  /* no request: waits for an event of this */
	struct tdc_ready *ready;   /* no thread waits: tell this; NULL: one does */
	enum tdc_call_part part;
	const struct tdp_control *sleepers; /* wake who sleeps on this page; NULL: nobody */
	unsigned char *unsent; /* without a thread: the packet, until the socket takes it */
	size_t unsent_bytes;
	struct tdc_call *prev, *next;
};

/* All of these: client locked. */

void tdc_waiters_link(struct tidl_client *client, struct tdc_call *call);

/* Takes the call out; when it was the leader, another one is woken to lead. */
void tdc_waiters_unlink(struct tidl_client *client, struct tdc_call *call);

/* Stop watching the socket for all, and wake another call to do it. */
void tdc_waiters_resign(struct tidl_client *client, struct tdc_call *call);

struct tdc_call *tdc_waiters_find(struct tidl_client *client, uint64_t request_id);

/* An answer is in place: the end of a call, unless there is more to come. */
void tdc_waiters_answered(struct tidl_client *client, struct tdc_call *call);

/* The end of one call: 0 when its reply is in place. Wakes its thread, or an event loop. */
void tdc_waiters_end(struct tidl_client *client, struct tdc_call *call, int result);

/* The end of all, for one reason. */
void tdc_waiters_end_all(struct tidl_client *client, const struct tdp_fault *reason);

/* In a forked child: the other threads are gone, the calling one learns that its call is. */
void tdc_waiters_forget_all(struct tidl_client *client);

#endif
