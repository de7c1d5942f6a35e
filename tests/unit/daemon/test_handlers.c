/* SPDX-License-Identifier: Apache-2.0 */
/* What requests do, by the wire: publish, get, wait, release, list, inspect, remove. */
#include <fcntl.h>
#include <stdio.h>

#include "daemon/registry.h"
#include "include/tidl/admin.h"
#include "proto/mem/memfd.h"
#include "tests/support/leak.h"
#include "tests/unit/daemon/served.h"

TestSuite(handlers, .init = tt_open_first_loop);

static uint64_t get_lease(struct tdd_server *server, struct tt_client *client, const char *name,
			  enum tidl_attach attach)
{
	cr_assert_eq(tt_call(server, client, tt_get(name, attach)), 0, "%s",
		     client->reply.failure.message);
	cr_assert_eq(client->reply.kind, TDP_MESSAGE_GRANTED);
	return client->reply.granted.lease_id;
}

static int open_mode(int fd)
{
	return fcntl(fd, F_GETFL) & O_ACCMODE;
}

TT_TEST(handlers, publish_and_get_share_one_memory)
{
	struct tdd_server *server = tt_server_new(false);
	struct tt_client producer, consumer;
	uint64_t segment_id;
	char text[6] = "";

	tt_join(server, &producer);
	tt_join(server, &consumer);
	segment_id = tt_call_allocate(server, &producer, 128);
	cr_expect_eq(open_mode(producer.fds.fds[0]), O_RDWR);
	cr_expect_eq(open_mode(producer.fds.fds[1]), O_RDONLY);
	cr_assert_eq(pwrite(producer.fds.fds[0], "hello", 6, 0), 6);
	cr_assert_eq(tt_call_publish(server, &producer, "a/x", segment_id), 0);
	cr_expect_eq(producer.reply.published.generation, 1);
	cr_expect_eq(producer.reply.published.retention, TIDL_RETENTION_PERSIST);
	cr_expect_eq(producer.reply.published.exposed_bytes, tdp_page_bytes());
	cr_expect_not(producer.reply.published.survives_restart);
	get_lease(server, &consumer, "a/x", TIDL_ATTACH_READ);
	cr_assert_eq(consumer.fds.count, 1);
	cr_expect_eq(open_mode(consumer.fds.fds[0]), O_RDONLY);
	cr_expect_eq(pread(consumer.fds.fds[0], text, 6, 0), 6);
	cr_expect_str_eq(text, "hello");
	cr_expect_eq(consumer.reply.granted.segment_owner_uid, geteuid());
	cr_expect_eq(consumer.reply.granted.tensors[0].shape[0], 8);
	cr_expect_eq(consumer.reply.granted.segments[0].id, segment_id);
	get_lease(server, &consumer, "a/x", TIDL_ATTACH_WRITE);
	cr_expect_eq(open_mode(consumer.fds.fds[0]), O_RDWR);
	tt_disconnect(&producer);
	tt_disconnect(&consumer);
	tt_turn(server);
	cr_expect_eq(tdd_registry_count(&server->registry), 1, "it persists");
	tdd_server_free(server);
}

static int call_open(struct tdd_server *server, struct tt_client *client, uint64_t segment_id,
		     uint64_t lease_id)
{
	struct tdp_message message = {.kind = TDP_MESSAGE_OPEN,
				      .open = {.segment_id = segment_id, .lease_id = lease_id}};

	return tt_call(server, client, message);
}

TT_TEST(handlers, what_is_held_can_be_opened_again)
{
	struct tdd_server *server = tt_server_new(false);
	struct tt_client producer, consumer;
	uint64_t segment_id, lease_id;

	tt_join(server, &producer);
	tt_join(server, &consumer);
	segment_id = tt_call_allocate(server, &producer, 128);
	cr_assert_eq(call_open(server, &producer, segment_id, 0), 0);
	cr_assert_eq(producer.reply.kind, TDP_MESSAGE_OPENED);
	cr_expect_eq(producer.reply.opened.segment.id, segment_id);
	cr_assert_eq(producer.fds.count, 2);
	cr_expect_eq(open_mode(producer.fds.fds[0]), O_RDWR);
	cr_expect_eq(open_mode(producer.fds.fds[1]), O_RDONLY);
	cr_assert_eq(tt_call_publish(server, &producer, "a/x", segment_id), 0);
	cr_expect_eq(call_open(server, &consumer, segment_id, 0), TIDL_ERR_PERMISSION);
	lease_id = get_lease(server, &consumer, "a/x", TIDL_ATTACH_READ);
	cr_expect_eq(call_open(server, &consumer, segment_id, 0), TIDL_ERR_PERMISSION);
	cr_expect_eq(call_open(server, &producer, segment_id, lease_id), TIDL_ERR_PERMISSION);
	cr_expect_eq(call_open(server, &consumer, segment_id + 1, lease_id), TIDL_ERR_PERMISSION);
	cr_assert_eq(call_open(server, &consumer, segment_id, lease_id), 0);
	cr_assert_eq(consumer.fds.count, 1);
	cr_expect_eq(open_mode(consumer.fds.fds[0]), O_RDONLY);
	lease_id = get_lease(server, &consumer, "a/x", TIDL_ATTACH_WRITE);
	cr_assert_eq(call_open(server, &consumer, segment_id, lease_id), 0);
	cr_assert_eq(consumer.fds.count, 1);
	cr_expect_eq(open_mode(consumer.fds.fds[0]), O_RDWR);
	tt_release(&consumer, lease_id);
	cr_expect_eq(call_open(server, &consumer, segment_id, lease_id), TIDL_ERR_PERMISSION);
	tt_disconnect(&producer);
	tt_disconnect(&consumer);
	tdd_server_free(server);
}

TT_TEST(handlers, tensors_without_elements_have_no_memory)
{
	struct tdd_server *server = tt_server_new(false);
	struct tdp_message inspect = {.kind = TDP_MESSAGE_INSPECT, .inspect = {.name = "empty"}};
	struct tt_client client;

	tt_join(server, &client);
	cr_assert_eq(tt_call_publish(server, &client, "empty", 0), 0, "%s",
		     client.reply.failure.message);
	cr_expect_eq(client.reply.published.exposed_bytes, 0);
	get_lease(server, &client, "empty", TIDL_ATTACH_WRITE);
	cr_expect_eq(client.fds.count, 0);
	cr_expect_eq(client.reply.granted.segment_count, 0);
	cr_expect_eq(client.reply.granted.tensors[0].segment_index, -1);
	cr_assert_eq(tt_call(server, &client, inspect), 0);
	cr_expect_eq(client.reply.inspection.holder_count, 1);
	tt_disconnect(&client);
	tdd_server_free(server);
}

TT_TEST(handlers, a_generation_is_there_or_gone)
{
	struct tdd_server *server = tt_server_new(false);
	struct tdp_message get = tt_get_waiting("x");
	struct tt_client client;
	uint64_t segment_id;

	tt_join(server, &client);
	segment_id = tt_call_allocate(server, &client, 128);
	cr_assert_eq(tt_call_publish(server, &client, "x", segment_id), 0);
	get.get.generation = 1;
	cr_expect_eq(tt_call(server, &client, get), 0);
	get.get.generation = 2;
	cr_expect_eq(tt_call(server, &client, get), TIDL_ERR_GENERATION_GONE);
	get.get.name = "y";
	cr_expect_eq(tt_call(server, &client, get), TIDL_ERR_GENERATION_GONE);
	tt_disconnect(&client);
	tdd_server_free(server);
}

TT_TEST(handlers, a_get_waits_for_its_name)
{
	struct tdd_server *server = tt_server_new(false);
	struct tt_client producer, consumer;
	uint64_t segment_id, request_id;

	tt_join(server, &producer);
	tt_join(server, &consumer);
	cr_expect_eq(tt_call(server, &consumer, tt_get("x", TIDL_ATTACH_READ)), TIDL_ERR_NOT_FOUND);
	request_id = tt_send(&consumer, tt_get_waiting("x"));
	tt_turn(server);
	cr_expect_eq(tt_receive(&consumer), -EAGAIN);
	segment_id = tt_call_allocate(server, &producer, 128);
	cr_assert_eq(tt_call_publish(server, &producer, "other", segment_id), 0);
	cr_expect_eq(tt_receive(&consumer), -EAGAIN);
	cr_assert_eq(tt_call_publish(server, &producer, "x", segment_id), 0);
	cr_assert_eq(tt_receive(&consumer), 0);
	cr_expect_eq(consumer.reply.request_id, request_id);
	cr_expect_eq(consumer.reply.kind, TDP_MESSAGE_GRANTED);
	cr_expect_eq(consumer.fds.count, 1);
	tt_disconnect(&producer);
	tt_disconnect(&consumer);
	tdd_server_free(server);
}

TT_TEST(handlers, a_cancelled_wait_is_answered_once)
{
	struct tdd_server *server = tt_server_new(false);
	struct tt_client client;
	struct tdp_message cancel = {.kind = TDP_MESSAGE_CANCEL};
	uint64_t segment_id;

	tt_join(server, &client);
	cancel.cancel.request_id = tt_send(&client, tt_get_waiting("x"));
	tt_post(&client, cancel);
	tt_post(&client, cancel);
	tt_turn(server);
	cr_assert_eq(tt_receive(&client), 0);
	cr_expect_eq(client.reply.request_id, cancel.cancel.request_id);
	cr_expect_eq(client.reply.failure.code, TIDL_ERR_CANCELLED);
	segment_id = tt_call_allocate(server, &client, 128);
	cr_assert_eq(tt_call_publish(server, &client, "x", segment_id), 0);
	cr_expect_eq(tt_receive(&client), -EAGAIN);
	tt_disconnect(&client);
	tdd_server_free(server);
}

TT_TEST(handlers, the_dead_do_not_wait)
{
	struct tdd_server *server = tt_server_new(false);
	struct tt_client producer, consumer;
	uint64_t segment_id;

	tt_join(server, &producer);
	tt_join(server, &consumer);
	tt_send(&consumer, tt_get_waiting("x"));
	tt_disconnect(&consumer);
	tt_turn(server);
	segment_id = tt_call_allocate(server, &producer, 128);
	cr_expect_eq(tt_call_publish(server, &producer, "x", segment_id), 0);
	tt_disconnect(&producer);
	tdd_server_free(server);
}

TT_TEST(handlers, copy_on_write_needs_that_nobody_else_writes)
{
	struct tdd_server *server = tt_server_new(false);
	struct tt_client producer, consumer;
	uint64_t segment_id;

	tt_join(server, &producer);
	tt_join(server, &consumer);
	segment_id = tt_call_allocate(server, &producer, 128);
	cr_assert_eq(tt_call_publish(server, &producer, "x", segment_id), 0);
	cr_expect_eq(tt_call(server, &consumer, tt_get("x", TIDL_ATTACH_COPY_ON_WRITE)),
		     TIDL_ERR_BUSY);
	tt_release_segment(&producer, segment_id);
	tt_turn(server);
	get_lease(server, &consumer, "x", TIDL_ATTACH_COPY_ON_WRITE);
	cr_expect_eq(open_mode(consumer.fds.fds[0]), O_RDONLY);
	tt_disconnect(&producer);
	tt_disconnect(&consumer);
	tdd_server_free(server);
}

TT_TEST(handlers, releases_of_what_is_not_held_are_ignored)
{
	struct tdd_server *server = tt_server_new(false);
	struct tt_client thief, owner;
	uint64_t segment_id, lease_id;

	tt_join(server, &owner);
	tt_join(server, &thief);
	segment_id = tt_call_allocate(server, &owner, 128);
	cr_assert_eq(tt_call_publish(server, &owner, "x", segment_id), 0);
	lease_id = get_lease(server, &owner, "x", TIDL_ATTACH_READ);
	for (int i = 0; i < 2; i++) {
		tt_release(&thief, lease_id);
		tt_release_segment(&thief, segment_id);
		tt_release(&thief, 0);
		tt_release(&thief, UINT64_MAX);
	}
	tt_turn(server);
	cr_expect_eq(server->quota.broker.used[TDD_QUOTA_HOLDS], 2);
	/* Only who holds it publishes it, whatever number it guesses. */
	cr_expect_eq(tt_call_publish(server, &thief, "y", segment_id), TIDL_ERR_PERMISSION);
	tt_release(&owner, lease_id);
	tt_release(&owner, lease_id);
	tt_release_segment(&owner, segment_id);
	tt_turn(server);
	cr_expect_eq(server->quota.broker.used[TDD_QUOTA_HOLDS], 0);
	tt_disconnect(&owner);
	tt_disconnect(&thief);
	tdd_server_free(server);
}

TT_TEST(handlers, the_end_of_a_session_returns_everything)
{
	struct tdd_server *server = tt_server_new(false);
	struct tt_client client;
	struct tt_publish publish;
	uint64_t segment_id;

	tt_join(server, &client);
	segment_id = tt_call_allocate(server, &client, 128);
	tt_publish_init(&publish, "mine", segment_id);
	publish.message.publish.retention = TIDL_RETENTION_OWNER;
	cr_assert_eq(tt_call(server, &client, publish.message), 0);
	cr_expect_eq(client.reply.published.retention, TIDL_RETENTION_OWNER);
	get_lease(server, &client, "mine", TIDL_ATTACH_WRITE);
	tt_send(&client, tt_get_waiting("never"));
	tt_disconnect(&client);
	tt_turn(server);
	cr_expect_eq(server->session_count, 0);
	cr_expect_eq(tdd_registry_count(&server->registry), 0);
	cr_expect(!server->registry.segments && !server->registry.names);
	for (int kind = 0; kind < TDD_QUOTA_KIND_COUNT; kind++)
		cr_expect_eq(server->quota.broker.used[kind], 0, "kind %d", kind);
	tdd_server_free(server);
}

TT_TEST(handlers, allocations_are_bounded)
{
	struct tdd_server *server = tt_server_new(false);
	struct tdp_message allocate = {.kind = TDP_MESSAGE_ALLOCATE};
	struct tt_client client;

	tt_join(server, &client);
	cr_expect_eq(tt_call(server, &client, allocate), TIDL_ERR_INVALID_ARGUMENT);
	allocate.allocate.data_size_bytes = TT_QUOTA_BYTES;
	cr_expect_eq(tt_call(server, &client, allocate), TIDL_ERR_QUOTA);
	allocate.allocate.data_size_bytes = UINT64_MAX;
	cr_expect_eq(tt_call(server, &client, allocate), TIDL_ERR_LIMIT);
	cr_expect_eq(server->quota.broker.used[TDD_QUOTA_BYTES], 0);
	tt_disconnect(&client);
	tdd_server_free(server);
}

TT_TEST(handlers, listings_come_in_pages_and_in_order)
{
	struct tdd_server *server = tt_server_new(false);
	struct tdp_message list = {.kind = TDP_MESSAGE_LIST, .list = {.pattern = "n/*"}};
	struct tt_client client;
	uint64_t last = 0;
	size_t count = 0;
	char name[16];

	tt_join(server, &client);
	for (int i = 0; i < 150; i++) {
		snprintf(name, sizeof(name), "%s/%d", i % 3 ? "n" : "m", i);
		cr_assert_eq(tt_call_publish(server, &client, name, 0), 0);
	}
	do {
		cr_assert_eq(tt_call(server, &client, list), 0);
		for (size_t i = 0; i < client.reply.listing.entry_count; i++) {
			const struct tdp_list_entry *entry = &client.reply.listing.entries[i];

			cr_expect_gt(entry->generation, last);
			cr_expect_eq(entry->name[0], 'n');
			last = entry->generation;
			count++;
		}
		list.list.cursor = client.reply.listing.next_cursor;
	} while (list.list.cursor != 0);
	cr_expect_eq(count, 100);
	list.list.cursor = 0;
	list.list.has_owner = true;
	list.list.owner_uid = 4711;
	cr_assert_eq(tt_call(server, &client, list), 0);
	cr_expect_eq(client.reply.listing.entry_count, 0);
	list.list.pattern = "a//b";
	cr_expect_eq(tt_call(server, &client, list), TIDL_ERR_NAME_INVALID);
	tt_disconnect(&client);
	tdd_server_free(server);
}

TT_TEST(handlers, an_inspection_pages_through_all_holders)
{
	struct tdd_server *server = tt_server_new(false);
	struct tdp_message inspect = {.kind = TDP_MESSAGE_INSPECT, .inspect = {.name = "x"}};
	struct tt_client client;
	uint64_t segment_id;
	size_t leases = 0, allocations = 0, segments = 0;

	tt_join(server, &client);
	segment_id = tt_call_allocate(server, &client, 128);
	cr_assert_eq(tt_call_publish(server, &client, "x", segment_id), 0);
	for (int i = 0; i < 100; i++)
		get_lease(server, &client, "x", TIDL_ATTACH_READ);
	do {
		const struct tdp_inspection *inspection = &client.reply.inspection;

		cr_assert_eq(tt_call(server, &client, inspect), 0);
		segments += inspection->segment_count;
		for (size_t i = 0; i < inspection->segment_count; i++) {
			cr_expect_neq(inspection->segments[i].inode, 0);
			cr_expect_eq(inspection->segments[i].seals & F_SEAL_SHRINK, F_SEAL_SHRINK);
		}
		cr_expect(inspection->is_write_protected);
		cr_expect_not(inspection->is_same_uid_write_protected);
		for (size_t i = 0; i < inspection->holder_count; i++) {
			leases += inspection->holders[i].kind == TIDL_HOLDER_LEASE;
			allocations += inspection->holders[i].kind == TIDL_HOLDER_ALLOCATION;
			cr_expect_eq(inspection->holders[i].process.pid, getpid());
			cr_expect(inspection->holders[i].process.is_connected);
		}
		if (inspect.inspect.holder_cursor != 0)
			cr_expect_eq(inspection->tensor_count, 0);
		inspect.inspect.generation = inspection->generation;
		inspect.inspect.holder_cursor = inspection->next_holder_cursor;
	} while (inspect.inspect.holder_cursor != 0);
	cr_expect_eq(leases, 100);
	cr_expect_eq(allocations, 1);
	cr_expect_eq(segments, 1);
	inspect.inspect.generation = 77;
	cr_expect_eq(tt_call(server, &client, inspect), TIDL_ERR_GENERATION_GONE);
	inspect.inspect = (struct tdp_inspect){.name = "nothing"};
	cr_expect_eq(tt_call(server, &client, inspect), TIDL_ERR_NOT_FOUND);
	tt_disconnect(&client);
	tdd_server_free(server);
}

TT_TEST(handlers, the_publisher_is_remembered_when_it_has_gone)
{
	struct tdd_server *server = tt_server_new(false);
	struct tdp_message inspect = {.kind = TDP_MESSAGE_INSPECT, .inspect = {.name = "x"}};
	struct tt_client producer, other;

	tt_join(server, &producer);
	tt_join(server, &other);
	cr_assert_eq(tt_call_publish(server, &producer, "x", 0), 0);
	tt_disconnect(&producer);
	tt_turn(server);
	cr_assert_eq(tt_call(server, &other, inspect), 0);
	cr_expect_str_eq(other.reply.inspection.publisher.name, "test");
	cr_expect_not(other.reply.inspection.publisher.is_connected);
	tt_disconnect(&other);
	tdd_server_free(server);
}

TT_TEST(handlers, removing_a_name_leaves_readers_alone)
{
	struct tdd_server *server = tt_server_new(false);
	struct tdp_message remove = {.kind = TDP_MESSAGE_REMOVE, .remove = {.name = "x"}};
	struct tt_client producer, consumer;
	uint64_t segment_id, lease_id;

	tt_join(server, &producer);
	tt_join(server, &consumer);
	segment_id = tt_call_allocate(server, &producer, 128);
	cr_assert_eq(tt_call_publish(server, &producer, "x", segment_id), 0);
	lease_id = get_lease(server, &consumer, "x", TIDL_ATTACH_READ);
	cr_assert_eq(tt_call(server, &producer, remove), 0);
	cr_expect_eq(tt_call(server, &producer, remove), TIDL_ERR_NOT_FOUND);
	cr_expect_eq(tt_call(server, &consumer, tt_get("x", TIDL_ATTACH_READ)), TIDL_ERR_NOT_FOUND);
	tt_release_segment(&producer, segment_id);
	tt_turn(server);
	cr_expect(server->registry.segments != NULL);
	tt_release(&consumer, lease_id);
	tt_turn(server);
	cr_expect(!server->registry.segments);
	tt_disconnect(&producer);
	tt_disconnect(&consumer);
	tdd_server_free(server);
}

TT_TEST(handlers, ten_thousand_cycles_leave_nothing, .timeout = 100)
{
	struct tdd_server *server = tt_server_new(false);
	struct tt_client client;
	int descriptors = tt_descriptor_count();

	tt_join(server, &client);
	descriptors = tt_descriptor_count();
	for (int i = 0; i < 10000; i++) {
		struct tdp_message allocate = {.kind = TDP_MESSAGE_ALLOCATE,
					       .allocate = {.data_size_bytes = 64}};
		struct tt_publish publish;

		cr_assert_eq(tt_call(server, &client, allocate), 0);
		uint64_t segment_id = client.reply.allocated.segment.id;

		tt_publish_init(&publish, "x", segment_id);
		publish.shape[0] = 1;
		publish.message.publish.replace = true;
		cr_assert_eq(tt_call(server, &client, publish.message), 0);
		tt_release(&client, get_lease(server, &client, "x", TIDL_ATTACH_READ));
		tt_release_segment(&client, segment_id);
	}
	struct tdp_message remove = {.kind = TDP_MESSAGE_REMOVE, .remove = {.name = "x"}};

	cr_assert_eq(tt_call(server, &client, remove), 0);
	cr_expect_eq(tt_descriptor_count(), descriptors);
	cr_expect_eq(server->quota.broker.used[TDD_QUOTA_BYTES], 0);
	cr_expect_eq(server->quota.broker.used[TDD_QUOTA_HOLDS], 0);
	tt_disconnect(&client);
	tdd_server_free(server);
}
