/* SPDX-License-Identifier: Apache-2.0 */
/* Many who wait for one name: a part in each turn, all in the end, in order, and none forgotten. */
#include <stdio.h>

#include "daemon/registry.h"
#include "daemon/waiter.h"
#include "tests/support/leak.h"
#include "tests/unit/daemon/served.h"

TestSuite(waking, .init = tt_open_first_loop);

enum { WAITING = 4 * TDD_WAKE_STEPS / TDD_STEPS_PER_WAKE };

static void park_all(struct tdd_server *server, struct tt_client *client)
{
	cr_assert((int)WAITING <= (int)TDD_WAITS_PER_SESSION);
	for (int i = 0; i < WAITING; i++) {
		tt_send(client, tt_get_waiting("x"));
		if (i % TT_TURNS == TT_TURNS - 1)
			tt_turn(server);
	}
	tt_turn(server);
}

static void expect_all(struct tdd_server *server, struct tt_client *client)
{
	uint64_t first_id = client->last_request_id - WAITING + 1;

	for (int i = 0; i < WAITING; i++) {
		tt_receive_eventually(server, client);
		cr_assert_eq(client->reply.kind, TDP_MESSAGE_GRANTED);
		cr_assert_eq(client->reply.request_id, first_id + (uint64_t)i);
	}
}

TT_TEST(waking, all_are_answered_in_order)
{
	struct tdd_server *server = tt_server_new(false);
	struct tt_client waiting, publisher;

	tt_join(server, &waiting);
	tt_join(server, &publisher);
	park_all(server, &waiting);
	cr_assert_eq(tt_call_publish(server, &publisher, "x", 0), 0);
	expect_all(server, &waiting);
	cr_expect(!server->registry.waking);
	tt_disconnect(&waiting);
	tt_disconnect(&publisher);
	tdd_server_free(server);
}

/* One publish wakes no more than a turn has time for. */
TT_TEST(waking, a_part_in_each_turn)
{
	struct tdd_server *server = tt_server_new(false);
	struct tdp_message remove = {.kind = TDP_MESSAGE_REMOVE, .remove = {.name = "x"}};
	struct tt_client waiting, publisher;
	struct tt_publish publish;

	tt_join(server, &waiting);
	tt_join(server, &publisher);
	park_all(server, &waiting);
	tt_publish_init(&publish, "x", 0);
	tt_send(&publisher, publish.message);
	/* One packet is read in a turn; the name goes before all have been told. */
	tt_send(&publisher, remove);
	expect_all(server, &waiting);
	cr_expect(!server->registry.waking);
	cr_expect(!server->registry.names || !server->registry.names->waiters);
	tt_disconnect(&waiting);
	tt_disconnect(&publisher);
	tdd_server_free(server);
}

/* Rows of a bundle that are looked at for each who wants one of them. */
enum { ROWS = 1024 };

static struct tdp_message bundle_message(void)
{
	static char keys[ROWS][8];
	static struct tdp_tensor tensors[ROWS];
	static const int64_t shape[] = {0};
	static const int64_t strides[] = {1};

	for (int i = 0; i < ROWS; i++) {
		snprintf(keys[i], sizeof(keys[i]), "%d", i);
		tensors[i] = (struct tdp_tensor){.key = keys[i],
						 .segment_index = -1,
						 .dtype = {1, 8, 1},
						 .ndim = 1,
						 .shape = shape,
						 .strides = strides};
	}
	return (struct tdp_message){.kind = TDP_MESSAGE_PUBLISH,
				    .publish = {.name = "x",
						.access = TIDL_ACCESS_SHARED,
						.mode = 0600,
						.keep = 1,
						.path = TIDL_PATH_ALLOCATED,
						.is_bundle = true,
						.tensor_count = ROWS,
						.tensors = tensors}};
}

/* Looking for a part takes time for each row; the name goes when all have been answered. */
TT_TEST(waking, parts_of_bundles_by_their_rows)
{
	static const char *const keys[] = {"7"};
	struct tdd_server *server = tt_server_new(false);
	struct tdp_message remove = {.kind = TDP_MESSAGE_REMOVE, .remove = {.name = "x"}};
	struct tdp_message get = tt_get_waiting("x");
	struct tt_client waiting, publisher;

	tt_join(server, &waiting);
	tt_join(server, &publisher);
	get.get.key_count = 1;
	get.get.keys = keys;
	for (int i = 0; i < WAITING; i++) {
		tt_send(&waiting, get);
		if (i % TT_TURNS == TT_TURNS - 1)
			tt_turn(server);
	}
	tt_turn(server);
	tt_send(&publisher, bundle_message());
	tt_send(&publisher, remove);
	tt_turn(server);
	cr_assert(server->registry.names && server->registry.names->current, "it is still there");
	cr_expect(server->registry.waking);
	expect_all(server, &waiting);
	tt_receive_eventually(server, &publisher);
	cr_expect_eq(publisher.reply.kind, TDP_MESSAGE_PUBLISHED);
	tt_receive_eventually(server, &publisher);
	cr_expect_eq(publisher.reply.kind, TDP_MESSAGE_DONE);
	cr_expect(!server->registry.names);
	tt_disconnect(&waiting);
	tt_disconnect(&publisher);
	tdd_server_free(server);
}

/* Who is left over goes with its connection, and the name with the rest. */
TT_TEST(waking, ends_with_those_who_wait)
{
	struct tdd_server *server = tt_server_new(false);
	struct tt_client waiting, publisher;
	struct tt_publish publish;

	tt_join(server, &waiting);
	tt_join(server, &publisher);
	park_all(server, &waiting);
	tt_publish_init(&publish, "x", 0);
	tt_send(&publisher, publish.message);
	tt_disconnect(&waiting);
	tt_turn(server);
	cr_expect(!server->registry.waking);
	cr_assert_eq(tt_receive(&publisher), 0);
	cr_expect_eq(publisher.reply.kind, TDP_MESSAGE_PUBLISHED);
	tt_disconnect(&publisher);
	tdd_server_free(server);
}

/* Those who want something later are passed over, and told of the next one. */
TT_TEST(waking, for_a_later_generation)
{
	struct tdd_server *server = tt_server_new(false);
	struct tdp_message get = tt_get_waiting("x");
	struct tt_client waiting, publisher;
	struct tt_publish publish;

	tt_join(server, &waiting);
	tt_join(server, &publisher);
	get.get.newer_than = 1;
	for (int i = 0; i < 10; i++)
		tt_send(&waiting, get);
	tt_publish_init(&publish, "x", 0);
	publish.message.publish.replace = true;
	cr_assert_eq(tt_call(server, &publisher, publish.message), 0);
	cr_assert_eq(publisher.reply.published.generation, 1);
	tt_turn(server);
	cr_expect_eq(tt_receive(&waiting), -EAGAIN);
	cr_assert_eq(tt_call(server, &publisher, publish.message), 0);
	for (int i = 0; i < 10; i++) {
		tt_receive_eventually(server, &waiting);
		cr_expect_eq(waiting.reply.granted.generation, 2);
	}
	tt_disconnect(&waiting);
	tt_disconnect(&publisher);
	tdd_server_free(server);
}

/* Who waits for the release of what is gone by then, and ends in the same turn. */
TT_TEST(waking, nobody_waits_for_what_is_gone)
{
	struct tdd_server *server = tt_server_new(false);
	struct tdp_message remove = {.kind = TDP_MESSAGE_REMOVE, .remove = {.name = "x"}};
	struct tdp_message wait = {.kind = TDP_MESSAGE_WAIT,
				   .wait = {.name = "x", .released = true}};
	struct tt_client waiting, holding;
	uint64_t lease_id;

	tt_join(server, &waiting);
	tt_join(server, &holding);
	cr_assert_eq(tt_call_publish(server, &holding, "x", 0), 0);
	cr_assert_eq(tt_call(server, &holding, tt_get("x", TIDL_ATTACH_READ)), 0);
	lease_id = holding.reply.granted.lease_id;
	tt_send(&waiting, wait);
	tt_turn(server);
	cr_assert_eq(tt_call(server, &holding, remove), 0);
	/* The loop sees both in this order. */
	cr_assert_eq(shutdown(waiting.fd, SHUT_RDWR), 0);
	tt_release(&holding, lease_id);
	tt_turn(server);
	cr_expect_eq(server->session_count, 1);
	cr_expect(tdd_registry_is_empty(&server->registry));
	tt_disconnect(&waiting);
	tt_disconnect(&holding);
	tdd_server_free(server);
}
