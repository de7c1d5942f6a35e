/* SPDX-License-Identifier: Apache-2.0 */
/* What takes long is done in parts, in order, and whoever wants little does not wait for it. */
#include <stdio.h>

#include "daemon/lease.h"
#include "daemon/registry.h"
#include "daemon/work.h"
#include "proto/mem/sealed.h"
#include "proto/wire/manifest.h"
#include "tests/support/leak.h"
#include "tests/unit/daemon/served.h"

TestSuite(turns, .init = tt_open_first_loop);

enum {
	/* More than a turn has time for. */
	LEASES = 3 * TDD_LINE_STEPS / TDD_DROP_STEPS,
	ROWS = 8192,
	TURNS_MAX = 1000
};

/* The session of whoever has joined last. */
static struct tdd_session *last_session(struct tdd_server *server)
{
	return server->sessions->prev;
}

/* Leases that the session has; the ids are those from the answer on. */
static uint64_t take_leases(struct tdd_server *server, struct tdd_session *session, int count)
{
	struct tdd_registry *registry = &server->registry;
	struct tdd_publication *publication = tdd_registry_find(registry, geteuid(), "x");
	uint64_t first = registry->last_hold_serial + 1;

	cr_assert(publication);
	for (int i = 0; i < count; i++) {
		struct tdd_lease_spec spec = {.attach = TIDL_ATTACH_READ,
					      .serial = ++registry->last_hold_serial};
		struct tdd_hold *lease;
		struct tdp_fault fault;

		cr_assert_eq(tdd_lease_new(&session->holder, publication, &spec, &lease, &fault),
			     0);
	}
	return first;
}

static uint32_t lease_count(struct tdd_server *server)
{
	const struct tdd_publication *publication =
		tdd_registry_find(&server->registry, geteuid(), "x");

	return publication ? publication->lease_count : 0;
}

static struct tdp_message list_message(void)
{
	return (struct tdp_message){.kind = TDP_MESSAGE_LIST, .list = {.pattern = "none"}};
}

/* One look at the descriptors, and what is done at the end of the turn before. */
static void one_turn(struct tdd_server *server)
{
	struct tdd_timer *timer;
	struct tdp_fault fault;

	cr_assert_eq(tdd_timer_new(server->loop, tt_stop_loop, server->loop, &timer, &fault), 0);
	tdd_timer_start(timer, 0);
	tdd_server_run(server);
	tdd_timer_free(timer);
}

/* A client that wants little is answered in the next turn, whatever else is in line. */
static void expect_prompt(struct tdd_server *server, struct tt_client *client)
{
	uint64_t request_id = tt_send(client, list_message());

	one_turn(server);
	cr_assert_eq(tt_receive(client), 0, "others have to wait");
	cr_expect_eq(client->reply.request_id, request_id);
}

static void release_all(struct tt_client *client, uint64_t first, size_t count)
{
	static uint64_t ids[LEASES];
	struct tdp_message message = {.kind = TDP_MESSAGE_RELEASE,
				      .release = {.lease_count = count, .lease_ids = ids}};

	for (size_t i = 0; i < count; i++)
		ids[i] = first + i;
	tt_post(client, message);
}

TT_TEST(turns, a_long_release)
{
	struct tdd_server *server = tt_server_new(false);
	struct tt_client client, other;
	uint32_t before;
	uint64_t first;
	int turns = 0;

	tt_join(server, &other);
	tt_join(server, &client);
	cr_assert_eq(tt_call_publish(server, &other, "x", 0), 0);
	first = take_leases(server, last_session(server), LEASES);
	release_all(&client, first, LEASES);
	tt_send(&client, list_message());
	for (before = LEASES; before > 0; before = lease_count(server), turns++) {
		expect_prompt(server, &other);
		cr_assert_leq(before - lease_count(server),
			      (TDD_LINE_STEPS + 2 * TDD_SLICE_STEPS) / TDD_DROP_STEPS);
		cr_expect(lease_count(server) == 0 || tt_receive(&client) == -EAGAIN,
			  "what was sent behind it comes behind it");
	}
	cr_expect_geq(turns, 2);
	tt_receive_eventually(server, &client);
	cr_expect_eq(client.reply.kind, TDP_MESSAGE_LISTING);
	cr_expect_null(last_session(server)->request);
	tt_disconnect(&client);
	tt_disconnect(&other);
	tdd_server_free(server);
}

TT_TEST(turns, the_end_of_one_that_had_much)
{
	struct tdd_server *server = tt_server_new(false);
	struct tt_client client, other;
	uint32_t left = LEASES;
	int turns = 0;

	tt_join(server, &other);
	tt_join(server, &client);
	cr_assert_eq(tt_call_publish(server, &other, "x", 0), 0);
	take_leases(server, last_session(server), LEASES);
	tt_disconnect(&client);
	while (server->session_count > 1) {
		expect_prompt(server, &other);
		cr_assert_leq(left - lease_count(server),
			      (TDD_LINE_STEPS + 2 * TDD_SLICE_STEPS) / TDD_DROP_STEPS);
		left = lease_count(server);
		cr_assert_leq(++turns, TURNS_MAX);
	}
	cr_expect_geq(turns, 2);
	cr_expect_eq(lease_count(server), 0);
	tt_disconnect(&other);
	tdd_server_free(server);
}

/* Whoever starts again in the place of one that ends finds its quota free. */
TT_TEST(turns, quota_of_one_that_ends)
{
	struct tdd_server *server = tt_server_new(false);
	uint64_t most_bytes = 1 << 20;
	struct tdp_message allocate = {.kind = TDP_MESSAGE_ALLOCATE,
				       .allocate = {.data_size_bytes = most_bytes}};
	struct tt_client client, next;

	server->quota.limits[TDD_ACCOUNT_UID][TDD_QUOTA_BYTES] = 3 * most_bytes / 2;
	tt_join(server, &next);
	tt_join(server, &client);
	cr_assert_eq(tt_call_publish(server, &next, "x", 0), 0);
	take_leases(server, last_session(server), LEASES);
	/* Allocations are given back after leases. */
	tt_call_allocate(server, &client, most_bytes);
	cr_assert_eq(tt_call(server, &next, allocate), TIDL_ERR_QUOTA);
	tt_disconnect(&client);
	one_turn(server);
	tt_send(&next, allocate);
	tt_receive_eventually(server, &next);
	cr_expect_eq(next.reply.kind, TDP_MESSAGE_ALLOCATED);
	/* With nobody left to wait for, it is as it was. */
	cr_expect_eq(tt_call(server, &next, allocate), TIDL_ERR_QUOTA);
	tt_disconnect(&next);
	tdd_server_free(server);
}

/* The name of an owner that ends can be taken before the end has come to it. */
TT_TEST(turns, names_of_an_owner_that_ends)
{
	struct tdd_server *server = tt_server_new(false);
	struct tt_client owner, next;
	struct tt_publish publish;

	tt_join(server, &next);
	tt_join(server, &owner);
	tt_publish_init(&publish, "first", 0);
	publish.message.publish.retention = TIDL_RETENTION_OWNER;
	cr_assert_eq(tt_call(server, &owner, publish.message), 0);
	cr_assert_eq(tt_call(server, &next, publish.message), TIDL_ERR_EXISTS);
	last_session(server)->holder.is_ending = true;
	cr_expect_eq(tt_call(server, &next, publish.message), 0);
	cr_expect_null(last_session(server)->holder.owned);
	last_session(server)->holder.is_ending = false;
	tt_disconnect(&owner);
	tt_disconnect(&next);
	tdd_server_free(server);
}

/* The broker may stop at any moment, and a client end. */
TT_TEST(turns, the_end_of_all_in_the_middle)
{
	for (int i = 0; i < 3; i++) {
		struct tdd_server *server = tt_server_new(false);
		struct tt_client client, other;
		uint64_t first;

		tt_join(server, &other);
		tt_join(server, &client);
		cr_assert_eq(tt_call_publish(server, &other, "x", 0), 0);
		first = take_leases(server, last_session(server), LEASES);
		if (i < 2)
			release_all(&client, first, LEASES);
		one_turn(server);
		if (i > 0) {
			tt_disconnect(&client);
			one_turn(server);
		}
		one_turn(server);
		cr_expect_gt(lease_count(server), 0);
		tdd_server_free(server);
		if (i == 0)
			tt_disconnect(&client);
		tt_disconnect(&other);
	}
}

/* ---- bundles with many rows ---- */

static int manifest_new(uint64_t segment_id)
{
	static char keys[ROWS][16];
	static struct tdp_tensor tensors[ROWS];
	static const int64_t shape[] = {1}, strides[] = {1};
	struct tdp_segment segment = {.kind = TDP_SEGMENT_MEMFD, .id = segment_id};
	struct tdp_manifest manifest = {
		.segment_count = 1, .segments = &segment, .tensor_count = ROWS, .tensors = tensors};
	struct tdp_fault fault;
	size_t size_bytes;
	void *bytes;
	int fd;

	for (int i = 0; i < ROWS; i++) {
		snprintf(keys[i], sizeof(keys[i]), "a/%d", i);
		tensors[i] = (struct tdp_tensor){.key = keys[i],
						 .dtype = {1, 8, 1},
						 .ndim = 1,
						 .shape = shape,
						 .strides = strides};
	}
	size_bytes = tdp_manifest_packed_bytes(&manifest);
	bytes = malloc(size_bytes);
	cr_assert(bytes);
	tdp_manifest_pack(&manifest, bytes);
	cr_assert_eq(tdp_sealed_create("m", bytes, size_bytes, &fd, &fault), 0);
	free(bytes);
	return fd;
}

static uint64_t send_manifest(struct tt_client *client, uint64_t segment_id)
{
	struct tdp_message message = {.kind = TDP_MESSAGE_PUBLISH,
				      .request_id = ++client->last_request_id,
				      .fd_count = 1,
				      .publish = {.name = "big",
						  .access = TIDL_ACCESS_SHARED,
						  .mode = 0600,
						  .keep = 1,
						  .path = TIDL_PATH_ALLOCATED,
						  .is_bundle = true,
						  .has_manifest = true}};
	unsigned char packed[512];
	struct tdp_fault fault;
	size_t size_bytes;
	int fd = manifest_new(segment_id);

	cr_assert_eq(tdp_message_pack(&message, packed, sizeof(packed), &size_bytes, &fault), 0);
	tt_send_bytes(client, packed, size_bytes, &fd, 1);
	close(fd);
	return message.request_id;
}

/* Until @client has been answered; the turns that it took. */
static int turns_to_answer(struct tdd_server *server, struct tt_client *client,
			   struct tt_client *other)
{
	int turns = 0;

	while (tt_receive(client) == -EAGAIN) {
		expect_prompt(server, other);
		cr_assert_leq(++turns, TURNS_MAX);
	}
	return turns;
}

static void publish_big(struct tdd_server *server, struct tt_client *client,
			struct tt_client *other)
{
	uint64_t segment_id = tt_call_allocate(server, client, 4096);
	uint64_t request_id = send_manifest(client, segment_id);

	cr_expect_geq(turns_to_answer(server, client, other), 2);
	cr_assert_eq(client->reply.kind, TDP_MESSAGE_PUBLISHED, "%s",
		     client->reply.failure.message);
	cr_expect_eq(client->reply.request_id, request_id);
}

static struct tdp_message get_part(const char *const *key)
{
	struct tdp_message message = tt_get("big", TIDL_ATTACH_READ);

	message.get.key_count = 1;
	message.get.keys = key;
	return message;
}

TT_TEST(turns, a_bundle_and_a_part_of_it)
{
	static const char *const key[] = {"a/7"}, *const missing[] = {"b"};
	struct tdd_server *server = tt_server_new(false);
	struct tt_client client, other;

	tt_join(server, &other);
	tt_join(server, &client);
	publish_big(server, &client, &other);
	tt_send(&client, get_part(key));
	tt_send(&client, get_part(missing));
	cr_expect_geq(turns_to_answer(server, &client, &other), 2);
	cr_assert_eq(client.reply.kind, TDP_MESSAGE_GRANTED, "%s", client.reply.failure.message);
	turns_to_answer(server, &client, &other);
	cr_expect_eq(client.reply.failure.code, TIDL_ERR_NOT_FOUND);
	tt_disconnect(&client);
	tt_disconnect(&other);
	tdd_server_free(server);
}

/* What was asked for before the name went is granted, and is not released meanwhile. */
TT_TEST(turns, a_name_that_goes_while_somebody_looks)
{
	static const char *const key[] = {"a/7"};
	struct tdp_message remove = {.kind = TDP_MESSAGE_REMOVE, .remove = {.name = "big"}};
	struct tdp_message wait = {.kind = TDP_MESSAGE_WAIT,
				   .wait = {.name = "big", .released = true}};
	struct tdd_server *server = tt_server_new(false);
	struct tt_client client, other, owner;
	uint64_t lease_id;

	tt_join(server, &other);
	tt_join(server, &owner);
	tt_join(server, &client);
	publish_big(server, &owner, &other);
	tt_send(&client, get_part(key));
	one_turn(server);
	cr_assert(last_session(server)->request);
	tt_send(&other, wait);
	tt_send(&owner, remove);
	one_turn(server);
	one_turn(server);
	cr_assert(last_session(server)->request);
	cr_expect_eq(tt_receive(&other), -EAGAIN, "it is not released");
	tt_receive_eventually(server, &client);
	cr_assert_eq(client.reply.kind, TDP_MESSAGE_GRANTED);
	lease_id = client.reply.granted.lease_id;
	cr_expect_eq(tt_receive(&other), -EAGAIN, "nor now");
	tt_release(&client, lease_id);
	tt_receive_eventually(server, &other);
	cr_expect_eq(other.reply.kind, TDP_MESSAGE_WAITED);
	/* And if the one who looks ends, it is released too. */
	tt_receive_eventually(server, &owner);
	publish_big(server, &owner, &other);
	tt_send(&client, get_part(key));
	one_turn(server);
	tt_send(&other, wait);
	tt_send(&owner, remove);
	tt_disconnect(&client);
	tt_receive_eventually(server, &other);
	cr_expect_eq(other.reply.kind, TDP_MESSAGE_WAITED);
	tt_receive_eventually(server, &owner);
	tt_disconnect(&owner);
	tt_disconnect(&other);
	tdd_server_free(server);
}

/* Its memory gets another access while the manifest is being read. */
TT_TEST(turns, access_that_changes_meanwhile)
{
	struct tdd_server *server = tt_server_new(false);
	struct tt_client client, second, other;
	struct tt_publish publish;
	uint64_t segment_id;

	tt_join(server, &other);
	tt_join(server, &client);
	tt_join(server, &second);
	segment_id = tt_call_allocate(server, &client, 4096);
	cr_assert_eq(tt_call_publish(server, &client, "x", segment_id), 0);
	/* The second may publish it as well, once it has a lease. */
	cr_assert_eq(tt_call(server, &second, tt_get("x", TIDL_ATTACH_READ)), 0);
	tdd_segment_find(server->registry.segments, segment_id)->access = 0;
	send_manifest(&client, segment_id);
	one_turn(server);
	tt_publish_init(&publish, "y", segment_id);
	publish.message.publish.access = TIDL_ACCESS_LIVE;
	cr_expect_eq(tt_call(server, &second, publish.message), 0, "%s",
		     second.reply.failure.message);
	tt_receive_eventually(server, &client);
	cr_expect_eq(client.reply.failure.code, TIDL_ERR_ACCESS);
	tt_disconnect(&client);
	tt_disconnect(&second);
	tt_disconnect(&other);
	tdd_server_free(server);
}

/* ---- debts ---- */

/* Who asks for more than others is served as fast, as long as others want nothing. */
TT_TEST(turns, no_debt_keeps_anybody_waiting_for_nothing)
{
	struct tdd_server *server = tt_server_new(false);
	struct tt_client client, other;

	tt_join(server, &other);
	tt_join(server, &client);
	tdd_turns_charge(&server->turns, last_session(server),
			 (uint64_t)TDD_DEBT_TURNS * TDD_UID_TURN_STEPS);
	cr_expect(tdd_turns_must_wait(&server->turns, last_session(server)));
	for (int i = 0; i < 4; i++) {
		tt_send(&client, list_message());
		one_turn(server);
		one_turn(server);
		cr_expect_eq(tt_receive(&client), 0);
	}
	tt_disconnect(&client);
	tt_disconnect(&other);
	tdd_server_free(server);
}
