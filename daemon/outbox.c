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
}

static void outbox_land(struct tdd_outbox *outbox)
{
	if (outbox->in_flight == 0)
		return;
	outbox->flight->count -= outbox->in_flight;
	outbox->in_flight = 0;
	tdd_charge_deinit(&outbox->flying);
	DL_DELETE(outbox->flight->outboxes, outbox);
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

static bool outbox_has_room(struct tdd_outbox *outbox, uint32_t fd_count)
{
	struct tdd_outbox *other, *next;

	if (outbox_fits(outbox, fd_count))
		return true;
	/* Most of them have arrived by now, but nobody has looked since. */
	DL_FOREACH_SAFE (outbox->flight->outboxes, other, next)
		outbox_look(other);
	return outbox_fits(outbox, fd_count);
}

/* Returns 0 when sent, TIDL_ERR_CLOSED, or TIDL_ERR_BUSY with `block` set. */
static int outbox_try(struct tdd_outbox *outbox, const void *bytes, size_t size_bytes,
		      const int *fds, uint32_t fd_count)
{
	int r;

	outbox->block = TDD_OUTBOX_FREE;
	if (fd_count > 0) {
		outbox_look(outbox);
		if (outbox->in_flight > 0 || !outbox_has_room(outbox, fd_count)) {
			outbox->block = TDD_OUTBOX_NEEDS_DRAIN;
			return TIDL_ERR_BUSY;
		}
	}
	r = tdp_packet_send(outbox->socket_fd, bytes, size_bytes, fds, fd_count);
	if (r == 0) {
		outbox_take_off(outbox, fd_count);
		return 0;
	}
	if (r == -EAGAIN)
		outbox->block = TDD_OUTBOX_NEEDS_ROOM;
	else if (r == -ETOOMANYREFS || r == -ENOBUFS || r == -ENOMEM)
		outbox->block = TDD_OUTBOX_NEEDS_DRAIN;
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
		outbox->block = TDD_OUTBOX_NEEDS_DRAIN;
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
	outbox->block = TDD_OUTBOX_FREE;
	return 0;
}

void tdd_outbox_deinit(struct tdd_outbox *outbox)
{
	while (outbox->packets)
		outbox_drop_first(outbox);
	outbox_land(outbox);
}
