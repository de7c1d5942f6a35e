/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_OUTBOX_H
#define TDD_OUTBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/line.h"
#include "daemon/quota.h"
#include "proto/base/attr.h"

struct tdd_outbox;
struct tdd_outbox_packet;

/*
 * Descriptors in flight (sent and not received yet) of all clients. The kernel counts them on the
 * broker's uid and refuses every send beyond RLIMIT_NOFILE, so the broker stays well below. Clients
 * who do not read keep theirs in flight, hence a quota for each uid (TDD_QUOTA_FLIGHT): beyond it
 * the uid's own packets wait, and nobody else's.
 */
struct tdd_flight {
	uint64_t cap;
	uint64_t count;
	struct tdd_outbox *outboxes; /* list of those with something in flight */
	unsigned outbox_count;
	struct tdd_line waiting;     /* those with a packet that does not fit */
	struct tdd_outbox *draining; /* list of those that wait until their own has arrived */
	bool is_full;		     /* somebody in line waits for what all have together */
	unsigned look_count;	     /* in this turn of the loop: at those in flight */
};

void tdd_flight_init(struct tdd_flight *flight, uint64_t cap);

/* A turn of the loop has ended. */
void tdd_flight_turn(struct tdd_flight *flight);

/*
 * Let those who wait try again, as many as one turn has time for: first in line first, and who has
 * sent something stands in line again for the next. @flush is what sends (tdd_outbox_flush(), and
 * what it means that it fails). True when something was sent.
 */
bool tdd_flight_retry(struct tdd_flight *flight, void (*flush)(struct tdd_outbox *outbox));

/* Is anybody left who would have to try again? */
static inline bool tdd_flight_is_blocked(const struct tdd_flight *flight)
{
	return flight->draining || !tdd_line_is_empty(&flight->waiting);
}

enum tdd_outbox_block {
	TDD_OUTBOX_FREE,
	TDD_OUTBOX_NEEDS_ROOM, /* the socket is full: go on when it is writable */
	TDD_OUTBOX_NEEDS_DRAIN /* descriptors are in flight: try again when the client has received
				  something, or later, when they are another's */
};

/*
 * The descriptors of what a lease holds, asked for when they can be sent: returns their number, or
 * a negative one when the lease has ended. @ret_fds holds TDP_PACKET_MAX_FDS; they stay their
 * owner's.
 */
typedef int (*tdd_outbox_refill_fn)(void *context, uint64_t lease_id, int *ret_fds);

/* Packets to one client, in order. Embedded in the session. */
struct tdd_outbox {
	tdd_outbox_refill_fn refill; /* set by the owner */
	void *refill_context;
	int socket_fd; /* borrowed */
	enum tdd_outbox_block block;
	uint32_t packet_count;
	uint32_t in_flight; /* descriptors of the last packet that carried any */
	struct tdd_charge flying;
	struct tdd_account *account;
	struct tdd_flight *flight;
	struct tdd_outbox_packet *packets; /* list, oldest first */
	struct tdd_outbox *prev, *next;	   /* flight::outboxes */
	struct tdd_place place;		   /* flight::waiting */
	bool is_served;			   /* it was first in line just now */
	bool is_draining;
	struct tdd_outbox *draining_prev, *draining_next; /* flight::draining */
};

void tdd_outbox_init(struct tdd_outbox *outbox, int socket_fd, struct tdd_account *account,
		     struct tdd_flight *flight);
void tdd_outbox_deinit(struct tdd_outbox *outbox);

/*
 * Send a packet, or queue it behind what is blocked. The descriptors stay the caller's; what is
 * queued keeps copies of them. Returns 0, TIDL_ERR_LIMIT (the queue is full: drop this client),
 * TIDL_ERR_NO_MEMORY, TIDL_ERR_DESCRIPTORS or TIDL_ERR_CLOSED (the peer is gone).
 */
int tdd_outbox_send(struct tdd_outbox *outbox, const void *bytes, size_t size_bytes, const int *fds,
		    uint32_t fd_count) TDP_MUST_CHECK;

/*
 * The same with the descriptors of a lease. What is queued keeps no copies, so that a thousand
 * clients who want a hundred segments each cost no more descriptors than the segments have.
 */
int tdd_outbox_send_leased(struct tdd_outbox *outbox, const void *bytes, size_t size_bytes,
			   uint64_t lease_id) TDP_MUST_CHECK;

/*
 * Send a packet without descriptors, or leave it: nothing is queued. Returns 0, TIDL_ERR_BUSY (not
 * now, look at `block`; or something is queued before it) or TIDL_ERR_CLOSED.
 */
int tdd_outbox_offer(struct tdd_outbox *outbox, const void *bytes,
		     size_t size_bytes) TDP_MUST_CHECK;

/* Send what can be sent now. Returns 0 (look at `block`) or TIDL_ERR_CLOSED. */
int tdd_outbox_flush(struct tdd_outbox *outbox) TDP_MUST_CHECK;

/* So much is unread that its client's requests should wait. */
bool tdd_outbox_is_long(const struct tdd_outbox *outbox);

static inline bool tdd_outbox_is_empty(const struct tdd_outbox *outbox)
{
	return outbox->packet_count == 0;
}

#endif
