/* SPDX-License-Identifier: Apache-2.0 */
/* The way out over a real socket pair: what is sent at once, what waits, and what is too much. */
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/limits.h"
#include "daemon/outbox.h"
#include "proto/wire/fdset.h"
#include "proto/wire/limits.h"
#include "proto/wire/packet.h"
#include "tests/support/leak.h"
#include "tests/unit/daemon/domain.h"

struct wire {
	struct tt_domain domain;
	struct tdd_holder holder;
	struct tdd_flight flight;
	struct tdd_outbox outbox;
	int sockets[2];
	int null; /* something to send */
};

enum { FLIGHT_CAP = 8 };

static void wire_init(struct wire *wire)
{
	tt_domain_init(&wire->domain);
	tt_holder_init(&wire->domain, &wire->holder, 1);
	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
				wire->sockets),
		     0);
	wire->null = dup(STDIN_FILENO);
	cr_assert_geq(wire->null, 0);
	tdd_flight_init(&wire->flight, FLIGHT_CAP);
	tdd_outbox_init(&wire->outbox, wire->sockets[0], &wire->holder.account, &wire->flight);
}

static void wire_deinit(struct wire *wire)
{
	tdd_outbox_deinit(&wire->outbox);
	cr_expect_eq(wire->flight.count, 0);
	cr_expect(!wire->flight.outboxes);
	cr_expect_eq(wire->holder.account.used[TDD_QUOTA_QUEUE_BYTES], 0);
	cr_expect_eq(wire->holder.account.used[TDD_QUOTA_DESCRIPTORS], 0);
	for (int i = 0; i < 2; i++)
		close(wire->sockets[i]);
	close(wire->null);
	tt_holder_end(&wire->domain, &wire->holder);
	tt_domain_deinit(&wire->domain);
}

static int send_text(struct wire *wire, const char *text, uint32_t fd_count)
{
	const int fds[4] = {wire->null, wire->null, wire->null, wire->null};

	return tdd_outbox_send(&wire->outbox, text, strlen(text), fds, fd_count);
}

/* Receive one packet and say whether it is what was expected. */
static bool arrives(struct wire *wire, const char *text, uint32_t fd_count)
{
	static char buffer[TDP_PACKET_MAX_BYTES];
	struct tdp_fdset fds;
	size_t size_bytes;
	int r = tdp_packet_receive(wire->sockets[1], buffer, &fds, &size_bytes);
	bool is_right = r == 0 && size_bytes == strlen(text) &&
			memcmp(buffer, text, size_bytes) == 0 && fds.count == fd_count;

	tdp_fdset_deinit(&fds);
	return is_right;
}

TT_TEST(outbox, sends_at_once_what_it_can)
{
	struct wire wire;

	wire_init(&wire);
	cr_assert_eq(send_text(&wire, "one", 0), 0);
	cr_assert_eq(send_text(&wire, "two", 2), 0);
	cr_expect(tdd_outbox_is_empty(&wire.outbox));
	cr_expect_eq(wire.flight.count, 2);
	cr_expect(arrives(&wire, "one", 0));
	cr_expect(arrives(&wire, "two", 2));
	wire_deinit(&wire);
}

TT_TEST(outbox, one_packet_with_descriptors_in_flight)
{
	struct wire wire;

	wire_init(&wire);
	cr_assert_eq(send_text(&wire, "a", 1), 0);
	cr_assert_eq(send_text(&wire, "b", 2), 0);
	cr_assert_eq(send_text(&wire, "c", 0), 0);
	cr_expect_eq(wire.outbox.block, TDD_OUTBOX_NEEDS_DRAIN);
	cr_expect_eq(wire.outbox.packet_count, 2, "order is kept: c waits behind b");
	cr_expect_eq(wire.holder.account.used[TDD_QUOTA_DESCRIPTORS], 2);
	cr_assert_eq(tdd_outbox_flush(&wire.outbox), 0);
	cr_expect_eq(wire.outbox.packet_count, 2, "nothing has been received yet");
	cr_expect(arrives(&wire, "a", 1));
	cr_assert_eq(tdd_outbox_flush(&wire.outbox), 0);
	cr_expect(tdd_outbox_is_empty(&wire.outbox));
	cr_expect_eq(wire.outbox.block, TDD_OUTBOX_FREE);
	cr_expect(arrives(&wire, "b", 2));
	cr_expect(arrives(&wire, "c", 0));
	wire_deinit(&wire);
}

TT_TEST(outbox, an_offer_is_sent_or_left)
{
	struct wire wire;
	size_t sent = 0;
	int r;

	wire_init(&wire);
	cr_assert_eq(tdd_outbox_offer(&wire.outbox, "a", 1), 0);
	cr_assert_eq(send_text(&wire, "b", 1), 0);
	cr_expect_eq(tdd_outbox_offer(&wire.outbox, "c", 1), TIDL_ERR_BUSY);
	cr_expect_eq(wire.outbox.block, TDD_OUTBOX_NEEDS_DRAIN, "not behind descriptors");
	cr_expect(tdd_outbox_is_empty(&wire.outbox), "it is not kept");
	cr_expect(arrives(&wire, "a", 0));
	cr_expect(arrives(&wire, "b", 1));
	while ((r = tdd_outbox_offer(&wire.outbox, "d", 1)) == 0)
		sent++;
	cr_expect_eq(r, TIDL_ERR_BUSY);
	cr_expect_gt(sent, 1);
	cr_expect_eq(wire.outbox.block, TDD_OUTBOX_NEEDS_ROOM);
	cr_assert_eq(send_text(&wire, "answer", 0), 0);
	cr_expect_eq(tdd_outbox_offer(&wire.outbox, "e", 1), TIDL_ERR_BUSY, "answers go first");
	for (size_t i = 0; i < sent; i++)
		cr_expect(arrives(&wire, "d", 0));
	cr_assert_eq(tdd_outbox_flush(&wire.outbox), 0);
	cr_assert_eq(tdd_outbox_offer(&wire.outbox, "e", 1), 0);
	cr_expect(arrives(&wire, "answer", 0));
	cr_expect(arrives(&wire, "e", 0));
	wire_deinit(&wire);
}

TT_TEST(outbox, queued_descriptors_are_copies)
{
	struct wire wire;
	int pipe_fds[2];
	char byte;

	wire_init(&wire);
	cr_assert_eq(pipe(pipe_fds), 0);
	cr_assert_eq(send_text(&wire, "a", 1), 0);
	cr_assert_eq(tdd_outbox_send(&wire.outbox, "b", 1, &pipe_fds[1], 1), 0);
	close(pipe_fds[1]);
	cr_expect_eq(fcntl(pipe_fds[0], F_SETFL, O_NONBLOCK), 0);
	cr_expect_eq(read(pipe_fds[0], &byte, 1), -1, "the queue keeps the pipe open");
	tdd_outbox_deinit(&wire.outbox);
	cr_expect_eq(read(pipe_fds[0], &byte, 1), 0, "and then lets go");
	close(pipe_fds[0]);
	wire_deinit(&wire);
}

TT_TEST(outbox, all_clients_together_have_a_cap)
{
	struct wire wire;
	struct tdd_outbox others[3];
	int sockets[3][2];

	wire_init(&wire);
	for (int i = 0; i < 3; i++) {
		cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, sockets[i]), 0);
		tdd_outbox_init(&others[i], sockets[i][0], &wire.holder.account, &wire.flight);
	}
	const int fds[4] = {wire.null, wire.null, wire.null, wire.null};

	cr_assert_eq(tdd_outbox_send(&others[0], "x", 1, fds, 4), 0);
	cr_assert_eq(tdd_outbox_send(&others[1], "x", 1, fds, 4), 0);
	cr_assert_eq(tdd_outbox_send(&others[2], "x", 1, fds, 1), 0);
	cr_expect_eq(others[2].block, TDD_OUTBOX_NEEDS_DRAIN);
	cr_expect_eq(wire.flight.count, FLIGHT_CAP);
	/* Another client receives: there is room, though its own outbox has not looked. */
	wire.sockets[1] = dup3(sockets[0][1], wire.sockets[1], O_CLOEXEC);
	cr_expect(arrives(&wire, "x", 4));
	tdd_flight_turn(&wire.flight);
	cr_assert_eq(tdd_outbox_flush(&others[2]), 0);
	cr_expect(tdd_outbox_is_empty(&others[2]));
	cr_expect_eq(wire.flight.count, 5);
	for (int i = 0; i < 3; i++) {
		tdd_outbox_deinit(&others[i]);
		close(sockets[i][0]);
		close(sockets[i][1]);
	}
	wire_deinit(&wire);
}

/* Who does not read has its own packets wait, not those of other users. */
TT_TEST(outbox, one_user_has_a_part_of_it)
{
	struct wire wire;
	struct tdd_holder other;
	struct tdd_outbox more, others;
	int sockets[2][2];

	wire_init(&wire);
	tt_holder_init(&wire.domain, &other, 2);
	wire.domain.quota.limits[TDD_ACCOUNT_UID][TDD_QUOTA_FLIGHT] = FLIGHT_CAP / 2;
	for (int i = 0; i < 2; i++)
		cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, sockets[i]), 0);
	tdd_outbox_init(&more, sockets[0][0], &wire.holder.account, &wire.flight);
	tdd_outbox_init(&others, sockets[1][0], &other.account, &wire.flight);
	const int fds[4] = {wire.null, wire.null, wire.null, wire.null};

	cr_assert_eq(send_text(&wire, "x", 4), 0);
	cr_assert_eq(tdd_outbox_send(&more, "x", 1, fds, 1), 0);
	cr_expect_eq(more.block, TDD_OUTBOX_NEEDS_DRAIN);
	cr_assert_eq(tdd_outbox_send(&others, "x", 1, fds, 4), 0);
	cr_expect_eq(others.block, TDD_OUTBOX_FREE);
	cr_expect(arrives(&wire, "x", 4));
	tdd_flight_turn(&wire.flight);
	cr_assert_eq(tdd_outbox_flush(&more), 0);
	cr_expect(tdd_outbox_is_empty(&more));
	tdd_outbox_deinit(&more);
	tdd_outbox_deinit(&others);
	for (int i = 0; i < 2; i++) {
		close(sockets[i][0]);
		close(sockets[i][1]);
	}
	tt_holder_end(&wire.domain, &other);
	wire_deinit(&wire);
}

/* ---- descriptors of leases ---- */

static bool has_lease;

static int refill(void *context, uint64_t lease_id, int *ret_fds)
{
	const struct wire *wire = context;

	cr_assert_eq(lease_id, 7);
	ret_fds[0] = ret_fds[1] = wire->null;
	return has_lease ? 2 : -1;
}

TT_TEST(outbox, keeps_no_copies_of_what_a_lease_holds)
{
	struct wire wire;

	wire_init(&wire);
	wire.outbox.refill = refill;
	wire.outbox.refill_context = &wire;
	has_lease = true;
	cr_assert_eq(tdd_outbox_send_leased(&wire.outbox, "one", 3, 7), 0);
	cr_assert_eq(tdd_outbox_send_leased(&wire.outbox, "two", 3, 7), 0);
	cr_expect_not(tdd_outbox_is_empty(&wire.outbox));
	cr_expect_eq(wire.holder.account.used[TDD_QUOTA_DESCRIPTORS], 0);
	cr_expect(arrives(&wire, "one", 2));
	cr_assert_eq(tdd_outbox_flush(&wire.outbox), 0);
	cr_expect(arrives(&wire, "two", 2));
	wire_deinit(&wire);
}

TT_TEST(outbox, a_lease_that_ends_before_it_was_told_of)
{
	struct wire wire;

	wire_init(&wire);
	wire.outbox.refill = refill;
	wire.outbox.refill_context = &wire;
	has_lease = true;
	cr_assert_eq(tdd_outbox_send_leased(&wire.outbox, "one", 3, 7), 0);
	cr_assert_eq(tdd_outbox_send_leased(&wire.outbox, "two", 3, 7), 0);
	has_lease = false;
	cr_expect(arrives(&wire, "one", 2));
	cr_expect_eq(tdd_outbox_flush(&wire.outbox), TIDL_ERR_CLOSED);
	wire_deinit(&wire);
}

TT_TEST(outbox, a_full_socket_waits_for_room)
{
	struct wire wire;
	int sent = 0;

	wire_init(&wire);
	while (wire.outbox.block == TDD_OUTBOX_FREE && sent < 100000) {
		cr_assert_eq(send_text(&wire, "x", 0), 0);
		sent++;
	}
	cr_assert_eq(wire.outbox.block, TDD_OUTBOX_NEEDS_ROOM);
	cr_expect_eq(wire.outbox.packet_count, 1);
	for (int i = 0; i < sent - 1; i++)
		cr_assert(arrives(&wire, "x", 0));
	cr_expect_not(arrives(&wire, "x", 0));
	cr_assert_eq(tdd_outbox_flush(&wire.outbox), 0);
	cr_expect(arrives(&wire, "x", 0));
	wire_deinit(&wire);
}

TT_TEST(outbox, a_client_that_does_not_read_is_dropped)
{
	struct wire wire;
	int sent = 0;
	int r;

	wire_init(&wire);
	while ((r = send_text(&wire, "x", 0)) == 0 && sent < 100000)
		sent++;
	cr_expect_eq(r, TIDL_ERR_LIMIT);
	cr_expect_eq(wire.outbox.packet_count, TDD_OUTBOX_PACKETS);
	wire_deinit(&wire);
}

TT_TEST(outbox, queued_bytes_are_bounded)
{
	static char large[TDP_PACKET_MAX_BYTES];
	struct wire wire;
	int sent = 0;
	int r;

	wire_init(&wire);
	memset(large, 'x', sizeof(large));
	while ((r = tdd_outbox_send(&wire.outbox, large, sizeof(large), NULL, 0)) == 0)
		sent++;
	cr_expect_eq(r, TIDL_ERR_LIMIT);
	cr_expect_lt(sent, TDD_OUTBOX_PACKETS);
	cr_expect_leq(wire.holder.account.used[TDD_QUOTA_QUEUE_BYTES],
		      TDD_OUTBOX_BYTES_PER_SESSION);
	wire_deinit(&wire);
}

TT_TEST(outbox, a_peer_that_is_gone_is_noticed)
{
	struct wire wire;

	wire_init(&wire);
	shutdown(wire.sockets[1], SHUT_RDWR);
	cr_expect_eq(send_text(&wire, "x", 1), TIDL_ERR_CLOSED);
	wire_deinit(&wire);
}
