/* SPDX-License-Identifier: Apache-2.0 */
/* Segments that come back to whoever filled them, and those that do not. */
#include "daemon/lease.h"
#include <stdio.h>

#include "daemon/limits.h"
#include "daemon/pool.h"
#include "daemon/registry.h"
#include "tests/support/leak.h"
#include "tests/unit/daemon/served.h"

TestSuite(pool, .init = tt_open_first_loop);

/* Publish a copy, as a client does that wants its segment back. */
static void publish_pooled(struct tdd_server *server, struct tt_client *client, const char *name,
			   uint64_t segment_id)
{
	struct tt_publish publish;

	tt_publish_init(&publish, name, segment_id);
	publish.message.publish.replace = true;
	publish.message.publish.hands_over = true;
	publish.message.publish.keeps_pooled = true;
	cr_assert_eq(tt_call(server, client, publish.message), 0, "%s",
		     client->reply.failure.message);
}

static void expect_news(const struct tt_client *client, uint64_t returned_id, uint64_t dropped_id)
{
	const struct tdp_published *published = &client->reply.published;

	cr_assert_eq(published->returned_count, returned_id != 0);
	cr_assert_eq(published->dropped_count, dropped_id != 0);
	if (returned_id != 0)
		cr_assert_eq(published->returned_ids[0], returned_id);
	if (dropped_id != 0)
		cr_assert_eq(published->dropped_ids[0], dropped_id);
}

static uint64_t lease(struct tdd_server *server, struct tt_client *client, const char *name,
		      enum tidl_attach attach)
{
	cr_assert_eq(tt_call(server, client, tt_get(name, attach)), 0, "%s",
		     client->reply.failure.message);
	return client->reply.granted.lease_id;
}

TT_TEST(pool, what_is_replaced_comes_back)
{
	struct tdd_server *server = tt_server_new(false);
	struct tt_client producer;
	uint64_t first, second, bytes;

	tt_join(server, &producer);
	first = tt_call_allocate(server, &producer, 128);
	publish_pooled(server, &producer, "x", first);
	expect_news(&producer, 0, 0);
	second = tt_call_allocate(server, &producer, 128);
	bytes = server->quota.broker.used[TDD_QUOTA_BYTES];
	for (int i = 0; i < 3; i++) {
		publish_pooled(server, &producer, "x", second);
		expect_news(&producer, first, 0);
		publish_pooled(server, &producer, "x", first);
		expect_news(&producer, second, 0);
	}
	cr_expect_eq(server->quota.broker.used[TDD_QUOTA_BYTES], bytes);
	/* It is an allocation again, and can be released as one. */
	tt_release_segment(&producer, second);
	tt_turn(server);
	cr_expect_null(tdd_segment_find(server->registry.segments, second));
	cr_expect_lt(server->quota.broker.used[TDD_QUOTA_BYTES], bytes);
	tt_disconnect(&producer);
	tdd_server_free(server);
}

TT_TEST(pool, who_wants_it_back_is_no_writer)
{
	struct tdd_server *server = tt_server_new(false);
	struct tt_client producer, consumer;
	struct tdp_message inspect = {.kind = TDP_MESSAGE_INSPECT, .inspect = {.name = "x"}};
	struct tdp_message open = {.kind = TDP_MESSAGE_OPEN};
	uint64_t segment_id;

	tt_join(server, &producer);
	tt_join(server, &consumer);
	segment_id = tt_call_allocate(server, &producer, 128);
	publish_pooled(server, &producer, "x", segment_id);
	lease(server, &consumer, "x", TIDL_ATTACH_COPY_ON_WRITE);
	cr_assert_eq(tt_call(server, &consumer, inspect), 0);
	cr_expect_eq(consumer.reply.inspection.holder_count, 1, "it is no holder");
	open.open.segment_id = segment_id;
	cr_expect_eq(tt_call(server, &producer, open), TIDL_ERR_PERMISSION);
	cr_expect_eq(tt_call_publish(server, &producer, "y", segment_id), TIDL_ERR_PERMISSION);
	tt_disconnect(&producer);
	tt_disconnect(&consumer);
	tdd_server_free(server);
}

TT_TEST(pool, what_is_held_comes_back_later)
{
	struct tdd_server *server = tt_server_new(false);
	struct tt_client producer, consumer;
	uint64_t first, second, lease_id;

	tt_join(server, &producer);
	tt_join(server, &consumer);
	first = tt_call_allocate(server, &producer, 128);
	publish_pooled(server, &producer, "x", first);
	lease_id = lease(server, &consumer, "x", TIDL_ATTACH_READ);
	second = tt_call_allocate(server, &producer, 128);
	publish_pooled(server, &producer, "x", second);
	expect_news(&producer, 0, 0);
	tt_release(&consumer, lease_id);
	tt_turn(server);
	cr_assert_eq(tt_call_publish(server, &producer, "y", 0), 0);
	expect_news(&producer, first, 0);
	tt_disconnect(&producer);
	tt_disconnect(&consumer);
	tdd_server_free(server);
}

/* How a consumer lets go of what it has attached, and whether the memory can be used again. */
enum parting { PARTS_BY_RELEASE, PARTS_AFTER_FORK, PARTS_BY_ITS_END, PARTING_COUNT };

static void part(struct tdd_server *server, struct tt_client *consumer, uint64_t lease_id,
		 enum parting parting)
{
	struct tdp_message inherited = {
		.kind = TDP_MESSAGE_RELEASE,
		.release = {.inherited_count = 1, .inherited_lease_ids = &lease_id}};

	if (parting == PARTS_BY_RELEASE)
		tt_release(consumer, lease_id);
	else if (parting == PARTS_AFTER_FORK)
		tt_post(consumer, inherited);
	tt_turn(server);
	tt_disconnect(consumer);
	tt_turn(server);
}

TT_TEST(pool, memory_that_somebody_may_see_is_dropped)
{
	for (int parting = 0; parting < PARTING_COUNT; parting++) {
		struct tdd_server *server = tt_server_new(false);
		struct tt_client producer, consumer;
		uint64_t segment_id, lease_id;

		tt_join(server, &producer);
		tt_join(server, &consumer);
		segment_id = tt_call_allocate(server, &producer, 128);
		publish_pooled(server, &producer, "x", segment_id);
		lease_id = lease(server, &consumer, "x", TIDL_ATTACH_READ);
		part(server, &consumer, lease_id, (enum parting)parting);
		publish_pooled(server, &producer, "x", tt_call_allocate(server, &producer, 128));
		if (parting == PARTS_BY_RELEASE)
			expect_news(&producer, segment_id, 0);
		else
			expect_news(&producer, 0, segment_id);
		cr_expect_eq(tdd_segment_find(server->registry.segments, segment_id) != NULL,
			     parting == PARTS_BY_RELEASE);
		tt_disconnect(&producer);
		tdd_server_free(server);
	}
}

TT_TEST(pool, memory_that_somebody_wrote_is_dropped)
{
	struct tdd_server *server = tt_server_new(false);
	struct tt_client producer, consumer;
	uint64_t segment_id;

	tt_join(server, &producer);
	tt_join(server, &consumer);
	segment_id = tt_call_allocate(server, &producer, 128);
	publish_pooled(server, &producer, "x", segment_id);
	tt_release(&consumer, lease(server, &consumer, "x", TIDL_ATTACH_WRITE));
	tt_turn(server);
	publish_pooled(server, &producer, "x", tt_call_allocate(server, &producer, 128));
	expect_news(&producer, 0, segment_id);
	tt_disconnect(&producer);
	tt_disconnect(&consumer);
	tdd_server_free(server);
}

TT_TEST(pool, no_more_than_so_many)
{
	struct tdd_server *server = tt_server_new(false);
	struct tt_client producer;
	uint64_t segment_id = 0;
	char name[16];

	tt_join(server, &producer);
	for (int i = 0; i <= TDD_POOL_PER_SESSION; i++) {
		(void)snprintf(name, sizeof(name), "x%d", i);
		segment_id = tt_call_allocate(server, &producer, 128);
		publish_pooled(server, &producer, name, segment_id);
		if (i < TDD_POOL_PER_SESSION)
			expect_news(&producer, 0, 0);
	}
	expect_news(&producer, 0, segment_id);
	cr_expect_eq(tdd_registry_count(&server->registry), TDD_POOL_PER_SESSION + 1,
		     "it is published all the same");
	/* Given up one by one, or with the connection. */
	tt_release_segment(&producer, segment_id - 1);
	tt_turn(server);
	publish_pooled(server, &producer, "y", tt_call_allocate(server, &producer, 128));
	expect_news(&producer, 0, 0);
	tt_disconnect(&producer);
	tt_turn(server);
	cr_expect_eq(tdd_registry_count(&server->registry), TDD_POOL_PER_SESSION + 2);
	tdd_server_free(server);
}

TT_TEST(pool, only_what_was_allocated)
{
	struct tdd_server *server = tt_server_new(false);
	struct tt_client producer, consumer;
	uint64_t segment_id;

	tt_join(server, &producer);
	tt_join(server, &consumer);
	segment_id = tt_call_allocate(server, &producer, 128);
	cr_assert_eq(tt_call_publish(server, &producer, "x", segment_id), 0);
	lease(server, &consumer, "x", TIDL_ATTACH_READ);
	publish_pooled(server, &consumer, "y", segment_id);
	expect_news(&consumer, 0, segment_id);
	tt_disconnect(&producer);
	tt_disconnect(&consumer);
	tdd_server_free(server);
}
