/* SPDX-License-Identifier: Apache-2.0 */
/* Clients who all want more descriptors than may be on their way at once. */
#include "tests/support/leak.h"
#include "tests/unit/daemon/served.h"

TestSuite(flight, .init = tt_open_first_loop);

enum { CLIENTS = 3, GETS = 6 };

/* Each reads as soon as something is there. The number of the client whose turn it was. */
static int next_arrival(struct tdd_server *server, struct tt_client *clients)
{
	for (;;) {
		for (int i = 0; i < CLIENTS; i++) {
			if (tt_receive(&clients[i]) == 0) {
				cr_assert_eq(clients[i].fds.count, 1);
				return i;
			}
		}
		tt_turn(server);
	}
}

/* With room for one packet alone, the first in the list of sessions is not always the next. */
TT_TEST(flight, all_have_their_turn)
{
	struct tdd_server *server = tt_server_new(true);
	struct tt_client clients[CLIENTS];
	int counts[CLIENTS] = {0};
	uint64_t segment_id;

	for (int i = 0; i < CLIENTS; i++)
		tt_join(server, &clients[i]);
	segment_id = tt_call_allocate(server, &clients[0], 4096);
	cr_assert_eq(tt_call_publish(server, &clients[0], "x", segment_id), 0);
	server->flight.cap = 1;
	for (int n = 0; n < GETS; n++) {
		for (int i = 0; i < CLIENTS; i++)
			tt_send(&clients[i], tt_get("x", TIDL_ATTACH_READ));
	}
	tt_turn(server);
	cr_assert_eq(server->flight.count, 1);
	for (int n = 0; n < GETS * CLIENTS; n++) {
		int least = counts[0];

		counts[next_arrival(server, clients)]++;
		for (int i = 0; i < CLIENTS; i++)
			least = counts[i] < least ? counts[i] : least;
		for (int i = 0; i < CLIENTS; i++)
			cr_expect_leq(counts[i], least + 1, "client %d is ahead", i);
	}
	tt_turn(server);
	cr_expect(!tdd_flight_is_blocked(&server->flight));
	for (int i = 0; i < CLIENTS; i++)
		tt_disconnect(&clients[i]);
	tdd_server_free(server);
}

/* Who comes anew has to stand in line, too. */
TT_TEST(flight, newcomers_do_not_overtake)
{
	struct tdd_server *server = tt_server_new(true);
	struct tt_client clients[CLIENTS];
	uint64_t segment_id;

	for (int i = 0; i < CLIENTS; i++)
		tt_join(server, &clients[i]);
	segment_id = tt_call_allocate(server, &clients[0], 4096);
	cr_assert_eq(tt_call_publish(server, &clients[0], "x", segment_id), 0);
	server->flight.cap = 1;
	for (int i = 0; i < CLIENTS - 1; i++) {
		tt_send(&clients[i], tt_get("x", TIDL_ATTACH_READ));
		tt_turn(server);
	}
	/* The first has received its descriptor, and nobody has looked. */
	cr_assert_eq(tt_receive(&clients[0]), 0);
	tt_send(&clients[2], tt_get("x", TIDL_ATTACH_READ));
	cr_expect_eq(next_arrival(server, clients), 1);
	cr_expect_eq(next_arrival(server, clients), 2);
	for (int i = 0; i < CLIENTS; i++)
		tt_disconnect(&clients[i]);
	tdd_server_free(server);
}
