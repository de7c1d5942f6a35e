/* SPDX-License-Identifier: Apache-2.0 */
/* Clients that do not read their answers, for a while or for good. */
#include <poll.h>
#include <string.h>

#include "tests/support/leak.h"
#include "tests/unit/daemon/served.h"

TestSuite(unread, .init = tt_open_first_loop);

/* Everybody else is still served. */
static void expect_alive(struct tdd_server *server, struct tt_client *client)
{
	struct tdp_message message = {.kind = TDP_MESSAGE_LIST, .list = {.pattern = "**"}};

	cr_expect_eq(tt_call(server, client, message), 0);
}

/* Until nothing more goes into the socket; the number of requests. */
static uint64_t ask_until_stuck(struct tdd_server *server, struct tt_client *client)
{
	struct tdp_message list = {.kind = TDP_MESSAGE_LIST, .list = {.pattern = "**"}};
	struct pollfd room = {.fd = client->fd, .events = POLLOUT};
	uint64_t before = client->last_request_id;

	while (poll(&room, 1, 0) == 1 && client->last_request_id < 100000) {
		tt_send(client, list);
		tt_turn(server);
	}
	return client->last_request_id - before;
}

TT_TEST(unread, requests_wait_until_answers_are_read, .timeout = 60)
{
	struct tdd_server *server = tt_server_new(false);
	struct tt_client greedy, other;
	uint64_t first_id, asked;

	tt_join(server, &other);
	tt_join(server, &greedy);
	first_id = greedy.last_request_id + 1;
	asked = ask_until_stuck(server, &greedy);
	cr_expect_eq(server->session_count, 2);
	cr_expect_eq(server->sessions->next->outbox.packet_count, TDD_OUTBOX_LONG_PACKETS);
	expect_alive(server, &other);
	for (uint64_t i = 0; i < asked; i++) {
		tt_receive_eventually(server, &greedy);
		cr_assert_eq(greedy.reply.request_id, first_id + i);
	}
	expect_alive(server, &greedy);
	tt_disconnect(&greedy);
	tt_disconnect(&other);
	tdd_server_free(server);
}

TT_TEST(unread, a_hang_up_is_seen_while_requests_wait, .timeout = 60)
{
	struct tdd_server *server = tt_server_new(false);
	struct tt_client greedy;

	tt_join(server, &greedy);
	(void)ask_until_stuck(server, &greedy);
	cr_assert_eq(server->session_count, 1);
	tt_disconnect(&greedy);
	while (server->session_count > 0)
		tt_turn(server);
	tdd_server_free(server);
}

/* What was parked is answered at once, however much is unread. */
TT_TEST(unread, a_client_that_does_not_read_is_dropped, .timeout = 60)
{
	static char metadata[TDP_METADATA_MAX_BYTES + 1];
	struct tdd_server *server = tt_server_new(false);
	struct tdp_message get = tt_get("x", TIDL_ATTACH_READ);
	struct tt_publish publish;
	struct tt_client greedy, other;

	tt_join(server, &greedy);
	tt_join(server, &other);
	get.get.wait = true;
	for (int i = 0; i < TDD_WAITS_PER_SESSION; i++) {
		tt_send(&greedy, get);
		tt_turn(server);
	}
	memset(metadata, ' ', TDP_METADATA_MAX_BYTES);
	metadata[0] = '{';
	metadata[1] = '}';
	tt_publish_init(&publish, "x", 0);
	publish.message.publish.metadata = metadata;
	cr_assert_eq(tt_call(server, &other, publish.message), 0, "%s",
		     other.reply.failure.message);
	while (server->session_count > 1)
		tt_turn(server);
	expect_alive(server, &other);
	tt_disconnect(&greedy);
	tt_disconnect(&other);
	tdd_server_free(server);
}

TT_TEST(unread, a_stopped_client_costs_nobody_anything, .timeout = 60)
{
	struct tdd_server *server = tt_server_new(false);
	struct tt_client stopped, other;
	uint64_t segment_id;

	tt_join(server, &stopped);
	tt_join(server, &other);
	segment_id = tt_call_allocate(server, &other, 100);
	cr_assert_eq(tt_call_publish(server, &other, "x", segment_id), 0);
	/* Answers with descriptors wait at the broker, one is in flight. */
	for (int i = 0; i < 5; i++)
		tt_send(&stopped, tt_get("x", TIDL_ATTACH_READ));
	tt_turn(server);
	cr_expect_eq(server->sessions->outbox.in_flight, 1);
	cr_expect_eq(server->sessions->outbox.packet_count, 4);
	expect_alive(server, &other);
	for (int i = 0; i < 5; i++) {
		tt_receive_eventually(server, &stopped);
		cr_expect_eq(stopped.fds.count, 1, "answer %d", i);
	}
	tt_disconnect(&stopped);
	tt_disconnect(&other);
	tdd_server_free(server);
}

TT_TEST(unread, the_next_answer_follows_as_soon_as_one_is_read, .timeout = 60)
{
	enum { ANSWERS = 20 };
	struct tdd_server *server = tt_server_new(false);
	struct tt_client client;

	tt_join(server, &client);
	cr_assert_eq(tt_call_publish(server, &client, "x", tt_call_allocate(server, &client, 128)),
		     0);
	for (int i = 0; i < ANSWERS; i++)
		tt_send(&client, tt_get("x", TIDL_ATTACH_READ));
	tt_turn(server);
	/* It is not the timer that sends them. */
	server->retry_ms = TDD_RETRY_MAX_MS;
	tdd_timer_start(server->retry_timer, UINT32_MAX);
	for (int i = 0; i < ANSWERS; i++) {
		cr_assert_eq(tt_receive(&client), 0, "answer %d", i);
		cr_assert_eq(client.fds.count, 1);
		tt_turn(server);
	}
	cr_expect_not(server->sessions->has_edge, "nothing is blocked any more");
	tt_disconnect(&client);
	tdd_server_free(server);
}

TT_TEST(unread, the_retry_timer_slows_down_while_nothing_moves, .timeout = 60)
{
	struct tdd_server *server = tt_server_new(false);
	struct tt_client client;

	tt_join(server, &client);
	cr_assert_eq(tt_call_publish(server, &client, "x", tt_call_allocate(server, &client, 128)),
		     0);
	tt_send(&client, tt_get("x", TIDL_ATTACH_READ));
	tt_send(&client, tt_get("x", TIDL_ATTACH_READ));
	while (server->retry_ms < TDD_RETRY_MAX_MS)
		tt_turn(server);
	tt_receive_eventually(server, &client);
	tt_receive_eventually(server, &client);
	/* Nothing is blocked any more, which it finds when it fires the next time. */
	while (tdd_timer_is_running(server->retry_timer))
		tt_turn(server);
	tt_disconnect(&client);
	tdd_server_free(server);
}
