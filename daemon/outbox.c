/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way out to one client. At most one packet with descriptors is in flight; the next such packet
 * waits, and everything behind it, until SIOCOUTQ says that the client has received all. Nothing
 * here blocks, and what is queued is bounded: by packets here, by bytes and descriptors through the
 * session's account.
 */
#include "daemon/outbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "daemon/limits.h"
#include "daemon/map.h"
#include "proto/base/fault.h"
#include "proto/base/fd.h"
#include "proto/wire/fdset.h"
#include "proto/wire/packet.h"

enum { FD_FLOOR = 3 };

struct tdd_outbox_packet {
	size_t size_bytes;
	uint64_t lease_id; /* whose descriptors go with it; 0: its own */
	uint32_t fd_count;
	int *fds; /* owned copies, behind the bytes */
	struct tdd_charge queued;
	struct tdd_charge descriptors;
	struct tdd_outbox_packet *prev, *next; /* outbox::packets */
	unsigned char bytes[];
};

void tdd_flight_init(struct tdd_flight *flight, uint64_t cap)
{
	*flight = (struct tdd_flight){.cap = cap};
}

void tdd_outbox_init(struct tdd_outbox *outbox, int socket_fd, struct tdd_account *account,
		     struct tdd_flight *flight)
{
	*outbox = (struct tdd_outbox){
		.socket_fd = socket_fd,
		.account = account,
		.flight = flight,
	};
}

static void outbox_take_off(struct tdd_outbox *outbox, uint32_t fd_count)
{
	if (fd_count == 0)
		return;
	outbox->in_flight = fd_count;
	outbox->flying = (struct tdd_charge){.kind = TDD_QUOTA_FLIGHT, .amount = fd_count};
	tdd_charge_force(&outbox->flying, outbox->account);
	outbox->flight->count += fd_count;
	DL_APPEND(outbox->flight->outboxes, outbox);
	outbox->flight->outbox_count++;
}

static void outbox_land(struct tdd_outbox *outbox)
{
	if (outbox->in_flight == 0)
		return;
	outbox->flight->count -= outbox->in_flight;
	outbox->in_flight = 0;
	tdd_charge_deinit(&outbox->flying);
	DL_DELETE(outbox->flight->outboxes, outbox);
	outbox->flight->outbox_count--;
}

/* Nothing unread in the peer's queue: the descriptors have arrived. */
static void outbox_look(struct tdd_outbox *outbox)
{
	int unread_bytes = 0;

	if (outbox->in_flight == 0)
		return;
	if (ioctl(outbox->socket_fd, SIOCOUTQ, &unread_bytes) == 0 && unread_bytes > 0)
		return;
	outbox_land(outbox);
}

/* A single packet may be larger than what a broker with very few descriptors allows. */
static bool fits(uint64_t used, uint32_t fd_count, uint64_t limit)
{
	return used == 0 || used + fd_count <= limit;
}

static bool outbox_fits(const struct tdd_outbox *outbox, uint32_t fd_count)
{
	const struct tdd_account *uid = outbox->account->parent;
	uint64_t uid_limit = uid->quota->limits[TDD_ACCOUNT_UID][TDD_QUOTA_FLIGHT];

	return fits(outbox->flight->count, fd_count, outbox->flight->cap) &&
	       fits(uid->used[TDD_QUOTA_FLIGHT], fd_count, uid_limit);
}

/* Most have arrived by now, but nobody has looked since. */
static void flight_look(struct tdd_flight *flight)
{
	struct tdd_outbox *outbox = flight->outboxes;

	flight->look_count++;
	DL_DELETE(flight->outboxes, outbox);
	DL_APPEND(flight->outboxes, outbox);
	outbox_look(outbox);
}

static bool outbox_has_room(struct tdd_outbox *outbox, uint32_t fd_count)
{
	struct tdd_flight *flight = outbox->flight;

	while (!outbox_fits(outbox, fd_count)) {
		/* Each once in a turn, the one that was looked at longest ago first. */
		if (flight->look_count >= flight->outbox_count ||
		    flight->look_count >= TDD_FLIGHT_LOOKS)
			return false;
		flight_look(flight);
	}
	return true;
}

/* Is somebody else first in line for the same room? */
static bool outbox_is_behind(const struct tdd_outbox *outbox)
{
	const struct tdd_queue *queue = &outbox->account->parent->flight_queue;
	const struct tdd_place *first = queue->lanes[TDD_LANE_LITTLE];

	if (first && first != &outbox->place)
		return true;
	return outbox->flight->is_full && outbox->flight->waiting.queues != queue;
}

static void outbox_leave_draining(struct tdd_outbox *outbox)
{
	if (!outbox->is_draining)
		return;
	outbox->is_draining = false;
	DL_DELETE2(outbox->flight->draining, outbox, draining_prev, draining_next);
}

static void outbox_set_block(struct tdd_outbox *outbox, enum tdd_outbox_block block)
{
	struct tdd_flight *flight = outbox->flight;
	bool is_draining = block == TDD_OUTBOX_NEEDS_DRAIN && !tdd_place_is_waiting(&outbox->place);

	outbox->block = block;
	if (!is_draining)
		outbox_leave_draining(outbox);
	else if (!outbox->is_draining)
		DL_APPEND2(flight->draining, outbox, draining_prev, draining_next);
	outbox->is_draining = is_draining;
}

static void outbox_wait(struct tdd_outbox *outbox, uint32_t fd_count, bool is_first)
{
	struct tdd_flight *flight = outbox->flight;
	struct tdd_queue *queue = &outbox->account->parent->flight_queue;

	flight->is_full |= !fits(flight->count, fd_count, flight->cap);
	if (is_first)
		tdd_line_join_first(&flight->waiting, queue, TDD_LANE_LITTLE, &outbox->place);
	else
		tdd_line_join(&flight->waiting, queue, TDD_LANE_LITTLE, &outbox->place);
	outbox_set_block(outbox, TDD_OUTBOX_NEEDS_DRAIN);
}

static void outbox_stop_waiting(struct tdd_outbox *outbox)
{
	struct tdd_flight *flight = outbox->flight;

	tdd_line_leave(&flight->waiting, &outbox->place);
	if (tdd_line_is_empty(&flight->waiting))
		flight->is_full = false;
}

/* May a packet with descriptors go now? */
static bool outbox_may_go(struct tdd_outbox *outbox, uint32_t fd_count)
{
	bool was_first = outbox->is_served;

	outbox_look(outbox);
	if (outbox->in_flight > 0) {
		outbox_set_block(outbox, TDD_OUTBOX_NEEDS_DRAIN);
		return false;
	}
	if ((!was_first && outbox_is_behind(outbox)) || !outbox_has_room(outbox, fd_count)) {
		outbox_wait(outbox, fd_count, was_first);
		return false;
	}
	outbox_stop_waiting(outbox);
	return true;
}

/* Returns 0 when sent, TIDL_ERR_CLOSED, or TIDL_ERR_BUSY with `block` set. */
static int outbox_try(struct tdd_outbox *outbox, const void *bytes, size_t size_bytes,
		      const int *fds, uint32_t fd_count)
{
	int r;

	if (fd_count > 0 && !outbox_may_go(outbox, fd_count))
		return TIDL_ERR_BUSY;
	outbox_set_block(outbox, TDD_OUTBOX_FREE);
	r = tdp_packet_send(outbox->socket_fd, bytes, size_bytes, fds, fd_count);
	if (r == 0) {
		outbox_take_off(outbox, fd_count);
		return 0;
	}
	if (r == -EAGAIN)
		outbox_set_block(outbox, TDD_OUTBOX_NEEDS_ROOM);
	else if (r == -ETOOMANYREFS || r == -ENOBUFS || r == -ENOMEM)
		outbox_set_block(outbox, TDD_OUTBOX_NEEDS_DRAIN);
	else
		return TIDL_ERR_CLOSED;
	return TIDL_ERR_BUSY;
}

static int outbox_try_leased(struct tdd_outbox *outbox, const void *bytes, size_t size_bytes,
			     uint64_t lease_id)
{
	int fds[TDP_PACKET_MAX_FDS];
	int fd_count = outbox->refill(outbox->refill_context, lease_id, fds);

	/* Nobody gives back what he has not been told of yet, unless by guessing. */
	if (fd_count < 0)
		return TIDL_ERR_CLOSED;
	return outbox_try(outbox, bytes, size_bytes, fds, (uint32_t)fd_count);
}

static int outbox_try_packet(struct tdd_outbox *outbox, const struct tdd_outbox_packet *packet)
{
	if (packet->lease_id != 0)
		return outbox_try_leased(outbox, packet->bytes, packet->size_bytes,
					 packet->lease_id);
	return outbox_try(outbox, packet->bytes, packet->size_bytes, packet->fds, packet->fd_count);
}

static void packet_free(struct tdd_outbox_packet *packet)
{
	for (uint32_t i = 0; i < packet->fd_count; i++)
		tdp_fd_close(packet->fds[i]);
	tdd_charge_deinit(&packet->queued);
	tdd_charge_deinit(&packet->descriptors);
	free(packet);
}

/* Copies, because what is queued may outlive the segment that it speaks of. */
static int packet_copy_fds(struct tdd_outbox_packet *packet, const int *fds, uint32_t fd_count)
{
	for (uint32_t i = 0; i < fd_count; i++) {
		int copy = fcntl(fds[i], F_DUPFD_CLOEXEC, FD_FLOOR);

		if (copy < 0)
			return TIDL_ERR_DESCRIPTORS;
		packet->fds[packet->fd_count++] = copy;
	}
	return 0;
}

static int packet_charge(struct tdd_outbox_packet *packet, struct tdd_account *account,
			 uint64_t total_bytes, uint32_t fd_count)
{
	struct tdp_fault fault;
	int r = tdd_charge_init(&packet->queued, account, TDD_QUOTA_QUEUE_BYTES, total_bytes,
				&fault);

	if (r == 0 && fd_count > 0)
		r = tdd_charge_init(&packet->descriptors, account, TDD_QUOTA_DESCRIPTORS, fd_count,
				    &fault);
	return r < 0 ? TIDL_ERR_LIMIT : 0;
}

static int outbox_queue(struct tdd_outbox *outbox, const void *bytes, size_t size_bytes,
			const int *fds, uint32_t fd_count)
{
	size_t fds_at = (size_bytes + sizeof(int) - 1) / sizeof(int) * sizeof(int);
	size_t total_bytes = sizeof(struct tdd_outbox_packet) + fds_at + fd_count * sizeof(int);
	struct tdd_outbox_packet *packet;
	int r;

	if (outbox->packet_count >= TDD_OUTBOX_PACKETS)
		return TIDL_ERR_LIMIT;
	packet = calloc(1, total_bytes);
	if (!packet)
		return TIDL_ERR_NO_MEMORY;
	packet->fds = (int *)(void *)(packet->bytes + fds_at);
	packet->size_bytes = size_bytes;
	memcpy(packet->bytes, bytes, size_bytes);
	r = packet_charge(packet, outbox->account, total_bytes, fd_count);
	if (r == 0)
		r = packet_copy_fds(packet, fds, fd_count);
	if (r < 0) {
		packet_free(packet);
		return r;
	}
	DL_APPEND(outbox->packets, packet);
	outbox->packet_count++;
	return 0;
}

int tdd_outbox_send(struct tdd_outbox *outbox, const void *bytes, size_t size_bytes, const int *fds,
		    uint32_t fd_count)
{
	int r = TIDL_ERR_BUSY;

	if (tdd_outbox_is_empty(outbox))
		r = outbox_try(outbox, bytes, size_bytes, fds, fd_count);
	if (r == TIDL_ERR_BUSY)
		r = outbox_queue(outbox, bytes, size_bytes, fds, fd_count);
	return r;
}

int tdd_outbox_send_leased(struct tdd_outbox *outbox, const void *bytes, size_t size_bytes,
			   uint64_t lease_id)
{
	int r = TIDL_ERR_BUSY;

	if (tdd_outbox_is_empty(outbox))
		r = outbox_try_leased(outbox, bytes, size_bytes, lease_id);
	if (r != TIDL_ERR_BUSY)
		return r;
	r = outbox_queue(outbox, bytes, size_bytes, NULL, 0);
	if (r == 0)
		outbox->packets->prev->lease_id = lease_id;
	return r;
}

int tdd_outbox_offer(struct tdd_outbox *outbox, const void *bytes, size_t size_bytes)
{
	if (!tdd_outbox_is_empty(outbox))
		return TIDL_ERR_BUSY;
	/* Behind descriptors that may still be on their way it would look like them. */
	outbox_look(outbox);
	if (outbox->in_flight > 0) {
		outbox_set_block(outbox, TDD_OUTBOX_NEEDS_DRAIN);
		return TIDL_ERR_BUSY;
	}
	return outbox_try(outbox, bytes, size_bytes, NULL, 0);
}

bool tdd_outbox_is_long(const struct tdd_outbox *outbox)
{
	return outbox->packet_count >= TDD_OUTBOX_LONG_PACKETS ||
	       outbox->account->used[TDD_QUOTA_QUEUE_BYTES] >= TDD_OUTBOX_LONG_BYTES;
}

static void outbox_drop_first(struct tdd_outbox *outbox)
{
	struct tdd_outbox_packet *packet = outbox->packets;

	DL_DELETE(outbox->packets, packet);
	outbox->packet_count--;
	packet_free(packet);
}

int tdd_outbox_flush(struct tdd_outbox *outbox)
{
	while (outbox->packets) {
		int r = outbox_try_packet(outbox, outbox->packets);

		if (r == TIDL_ERR_BUSY)
			return 0;
		if (r < 0)
			return r;
		outbox_drop_first(outbox);
	}
	outbox_set_block(outbox, TDD_OUTBOX_FREE);
	return 0;
}

void tdd_outbox_deinit(struct tdd_outbox *outbox)
{
	while (outbox->packets)
		outbox_drop_first(outbox);
	outbox_land(outbox);
	outbox_stop_waiting(outbox);
	outbox_set_block(outbox, TDD_OUTBOX_FREE);
}

/* ---- trying again ---- */

void tdd_flight_turn(struct tdd_flight *flight)
{
	flight->look_count = 0;
}

/* True when it has sent something. */
static bool outbox_retry(struct tdd_outbox *outbox, void (*flush)(struct tdd_outbox *outbox))
{
	uint32_t packet_count = outbox->packet_count;

	flush(outbox);
	return outbox->packet_count < packet_count;
}

/* Who waits for room. Of a uid that cannot send anything more, nobody can. */
static bool flight_retry_waiting(struct tdd_flight *flight, unsigned limit,
				 void (*flush)(struct tdd_outbox *outbox))
{
	bool has_moved = false;
	unsigned blocked_count = 0, queue_count = 0;
	struct tdd_queue *queue;

	DL_COUNT(flight->waiting.queues, queue, queue_count);
	flight->is_full = false;
	while (limit-- > 0 && blocked_count < queue_count && !flight->is_full) {
		struct tdd_place *place = tdd_line_next(&flight->waiting);
		struct tdd_outbox *outbox;

		if (!place)
			break;
		outbox = TDP_CONTAINER_OF(place, struct tdd_outbox, place);
		outbox->is_served = true;
		has_moved |= outbox_retry(outbox, flush);
		outbox->is_served = false;
		blocked_count = tdd_place_is_waiting(place) ? blocked_count + 1 : 0;
	}
	return has_moved;
}

static bool flight_retry_draining(struct tdd_flight *flight, unsigned limit,
				  void (*flush)(struct tdd_outbox *outbox))
{
	struct tdd_outbox *last = flight->draining ? flight->draining->draining_prev : NULL;
	bool has_moved = false;

	while (limit-- > 0 && flight->draining) {
		struct tdd_outbox *outbox = flight->draining;

		/* If it still has to wait it is the last one of the list now. */
		outbox_leave_draining(outbox);
		has_moved |= outbox_retry(outbox, flush);
		if (outbox == last)
			break;
	}
	return has_moved;
}

bool tdd_flight_retry(struct tdd_flight *flight, void (*flush)(struct tdd_outbox *outbox))
{
	bool has_moved = flight_retry_draining(flight, TDD_RETRIES_PER_TURN, flush);

	return flight_retry_waiting(flight, TDD_RETRIES_PER_TURN, flush) || has_moved;
}
