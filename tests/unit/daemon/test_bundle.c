/* SPDX-License-Identifier: Apache-2.0 */
/* Bundles through the handlers: published and attached in one call each, with lists and manifests.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/mem/sealed.h"
#include "proto/wire/manifest.h"
#include "tests/support/leak.h"
#include "tests/unit/daemon/served.h"

TestSuite(bundle, .init = tt_open_first_loop);

enum { MANY = 300 };

static const int64_t shape[] = {1};
static const int64_t strides[] = {1};

/* Tensors that each have a segment of their own. */
struct bundle {
	size_t count;
	char keys[MANY][32];
	struct tdp_segment segments[MANY];
	struct tdp_tensor tensors[MANY];
	struct tdp_message message;
};

static struct bundle bundle;

static void bundle_init(struct tdd_server *server, struct tt_client *client, size_t count)
{
	bundle.count = count;
	for (size_t i = 0; i < count; i++) {
		snprintf(bundle.keys[i], sizeof(bundle.keys[i]), "%s/%zu", i % 2 ? "odd" : "even",
			 i);
		bundle.segments[i] = (struct tdp_segment){
			.kind = TDP_SEGMENT_MEMFD, .id = tt_call_allocate(server, client, 1)};
		bundle.tensors[i] = (struct tdp_tensor){.key = bundle.keys[i],
							.segment_index = (int64_t)i,
							.dtype = {1, 8, 1},
							.ndim = 1,
							.shape = shape,
							.strides = strides};
	}
	bundle.message = (struct tdp_message){
		.kind = TDP_MESSAGE_PUBLISH,
		.publish = {.name = "bundle",
			    .access = TIDL_ACCESS_SHARED,
			    .mode = 0600,
			    .keep = 1,
			    .path = TIDL_PATH_ALLOCATED,
			    .is_bundle = true},
	};
}

static int publish_lists(struct tdd_server *server, struct tt_client *client)
{
	bundle.message.publish.segment_count = bundle.count;
	bundle.message.publish.segments = bundle.segments;
	bundle.message.publish.tensor_count = bundle.count;
	bundle.message.publish.tensors = bundle.tensors;
	return tt_call(server, client, bundle.message);
}

/* A packet with a descriptor. */
static uint64_t send_with(struct tt_client *client, struct tdp_message message, int fd)
{
	static unsigned char packed[TDP_PACKET_MAX_BYTES];
	struct tdp_fault fault;
	size_t size_bytes;

	message.request_id = ++client->last_request_id;
	message.fd_count = 1;
	cr_assert_eq(tdp_message_pack(&message, packed, sizeof(packed), &size_bytes, &fault), 0);
	tt_send_bytes(client, packed, size_bytes, &fd, 1);
	return message.request_id;
}

static int publish_manifest(struct tdd_server *server, struct tt_client *client)
{
	struct tdp_manifest manifest = {.segment_count = bundle.count,
					.segments = bundle.segments,
					.tensor_count = bundle.count,
					.tensors = bundle.tensors};
	size_t size_bytes = tdp_manifest_packed_bytes(&manifest);
	void *bytes = malloc(size_bytes);
	struct tdp_fault fault;
	int fd;

	tdp_manifest_pack(&manifest, bytes);
	cr_assert_eq(tdp_sealed_create("x", bytes, size_bytes, &fd, &fault), 0);
	free(bytes);
	bundle.message.publish.has_manifest = true;
	send_with(client, bundle.message, fd);
	close(fd);
	tt_turn(server);
	cr_assert_eq(tt_receive(client), 0);
	return client->reply.kind == TDP_MESSAGE_FAILURE ? client->reply.failure.code : 0;
}

typedef int publish_fn(struct tdd_server *server, struct tt_client *client);

static publish_fn *const ways[] = {publish_lists, publish_manifest};

TT_TEST(bundle, is_published_and_attached)
{
	for (size_t way = 0; way < TDP_ARRAY_LENGTH(ways); way++) {
		struct tdd_server *server = tt_server_new(false);
		struct tt_client client;
		const struct tdp_granted *granted = &client.reply.granted;

		tt_join(server, &client);
		bundle_init(server, &client, 3);
		cr_assert_eq(ways[way](server, &client), 0, "%s", client.reply.failure.message);
		cr_assert_eq(tt_call(server, &client, tt_get("bundle", TIDL_ATTACH_READ)), 0);
		cr_expect(granted->is_bundle);
		cr_expect_eq(granted->has_manifest, way == 1);
		cr_expect_eq(granted->segment_count, 3);
		cr_expect_eq(granted->tensor_count, way == 1 ? 0 : 3);
		cr_expect_eq(granted->segment_owner_uid, getuid());
		cr_expect_eq(client.fds.count, way == 1 ? 4 : 3);
		cr_expect_eq(granted->next_cursor, 0);
		tt_disconnect(&client);
		tdd_server_free(server);
	}
}

TT_TEST(bundle, comes_in_parts)
{
	for (size_t way = 0; way < TDP_ARRAY_LENGTH(ways); way++) {
		struct tdd_server *server = tt_server_new(false);
		struct tdp_message more = {.kind = TDP_MESSAGE_GET_MORE};
		struct tt_client client;
		size_t first = way == 1 ? TDP_PACKET_MAX_FDS - 1 : TDP_PACKET_MAX_FDS;
		uint64_t lease_id;

		tt_join(server, &client);
		bundle_init(server, &client, MANY);
		cr_assert_eq(ways[way](server, &client), 0, "%s", client.reply.failure.message);
		cr_assert_eq(tt_call(server, &client, tt_get("bundle", TIDL_ATTACH_READ)), 0);
		cr_assert_eq(client.reply.granted.segment_count, first);
		lease_id = client.reply.granted.lease_id;
		more.get_more.cursor = client.reply.granted.next_cursor;
		cr_assert_eq(tt_call(server, &client, more), 0);
		cr_assert_eq(client.reply.kind, TDP_MESSAGE_MORE);
		cr_expect_eq(client.reply.more.segment_count, MANY - first);
		cr_expect_eq(client.reply.more.segments[0].id, bundle.segments[first].id);
		cr_expect_eq(client.reply.more.next_cursor, 0);
		cr_expect_eq(client.fds.count, MANY - first);
		tt_release(&client, lease_id);
		cr_expect_eq(tt_call(server, &client, more), TIDL_ERR_NOT_FOUND);
		tt_disconnect(&client);
		tdd_server_free(server);
	}
}

TT_TEST(bundle, some_of_it)
{
	static const char *const keys[] = {"odd"};

	for (size_t way = 0; way < TDP_ARRAY_LENGTH(ways); way++) {
		struct tdd_server *server = tt_server_new(false);
		struct tdp_message get = tt_get("bundle", TIDL_ATTACH_READ);
		const struct tdp_granted *granted;
		struct tt_client client;

		tt_join(server, &client);
		bundle_init(server, &client, 5);
		cr_assert_eq(ways[way](server, &client), 0, "%s", client.reply.failure.message);
		get.get.key_count = 1;
		get.get.keys = keys;
		cr_assert_eq(tt_call(server, &client, get), 0);
		granted = &client.reply.granted;
		cr_assert_eq(granted->segment_count, 2);
		cr_expect_eq(granted->segments[1].id, bundle.segments[3].id);
		cr_expect_eq(granted->segment_number_count, way == 1 ? 2 : 0);
		if (way == 1)
			cr_expect_eq(granted->segment_numbers[1], 3);
		else
			cr_expect_eq(granted->tensors[1].segment_index, 1);
		tt_disconnect(&client);
		tdd_server_free(server);
	}
}

TT_TEST(bundle, refused_as_a_whole)
{
	for (size_t way = 0; way < TDP_ARRAY_LENGTH(ways); way++) {
		struct tdd_server *server = tt_server_new(false);
		struct tdp_message list = {.kind = TDP_MESSAGE_LIST, .list = {.pattern = "**"}};
		struct tt_client client;

		tt_join(server, &client);
		bundle_init(server, &client, 50);
		bundle.tensors[49].byte_offset = 1 << 20;
		cr_expect_eq(ways[way](server, &client), TIDL_ERR_LAYOUT);
		cr_expect(strstr(client.reply.failure.message, "odd/49"));
		bundle.tensors[49].byte_offset = 0;
		bundle.tensors[49].key = bundle.keys[3];
		cr_expect_eq(ways[way](server, &client), TIDL_ERR_INVALID_ARGUMENT);
		bundle.tensors[49].key = "odd";
		cr_expect_eq(ways[way](server, &client), TIDL_ERR_INVALID_ARGUMENT);
		cr_assert_eq(tt_call(server, &client, list), 0);
		cr_expect_eq(client.reply.listing.entry_count, 0);
		bundle.tensors[49].key = bundle.keys[49];
		cr_expect_eq(ways[way](server, &client), 0);
		tt_disconnect(&client);
		tdd_server_free(server);
	}
}

TT_TEST(bundle, what_is_no_manifest_ends_the_session)
{
	struct tdd_server *server = tt_server_new(false);
	struct tt_client client;
	int ends[2];

	tt_join(server, &client);
	bundle_init(server, &client, 1);
	bundle.message.publish.has_manifest = true;
	cr_assert_eq(pipe(ends), 0);
	send_with(&client, bundle.message, ends[1]);
	close(ends[1]);
	tt_expect_end(server, &client, TIDL_ERR_PROTOCOL);
	/* Closed by a thread of its own: end of file once that is done. */
	cr_expect_eq(read(ends[0], &(char){0}, 1), 0);
	close(ends[0]);
	tt_disconnect(&client);
	tdd_server_free(server);
}

TT_TEST(bundle, live_as_a_whole_or_not_at_all)
{
	struct tdd_server *server = tt_server_new(false);
	struct tt_client client;
	const struct tdd_segment *segments[3];

	tt_join(server, &client);
	bundle_init(server, &client, 3);
	bundle.message.publish.access = TIDL_ACCESS_LIVE;
	for (int i = 0; i < 3; i++)
		segments[i] = tdd_segment_find(server->registry.segments, bundle.segments[i].id);
	cr_assert_eq(fcntl(segments[2]->write_fd, F_ADD_SEALS, F_SEAL_SEAL), 0);
	cr_expect_eq(publish_lists(server, &client), TIDL_ERR_ACCESS);
	cr_expect_not(fcntl(segments[0]->read_fd, F_GET_SEALS) & F_SEAL_SEAL);
	bundle.count = 2;
	cr_expect_eq(publish_lists(server, &client), 0);
	cr_expect(fcntl(segments[1]->read_fd, F_GET_SEALS) & F_SEAL_SEAL);
	tt_disconnect(&client);
	tdd_server_free(server);
}

/* Together they want more descriptors than may be in flight, and than the broker may have. */
TT_TEST(bundle, for_many_who_wait)
{
	enum { WAITING = 60, SEGMENTS = 100 };
	struct tdd_server *server = tt_server_new(false);
	struct tt_client *waiting = calloc(WAITING, sizeof(*waiting));
	struct tt_client client;

	cr_assert_gt(WAITING * SEGMENTS, TT_DESCRIPTOR_LIMIT);
	tt_join(server, &client);
	for (int i = 0; i < WAITING; i++) {
		tt_join(server, &waiting[i]);
		tt_send(&waiting[i], tt_get_waiting("bundle"));
	}
	bundle_init(server, &client, SEGMENTS);
	cr_assert_eq(publish_manifest(server, &client), 0);
	for (int i = 0; i < WAITING; i++) {
		tt_receive_eventually(server, &waiting[i]);
		cr_assert_eq(waiting[i].reply.kind, TDP_MESSAGE_GRANTED);
		cr_assert_eq(waiting[i].fds.count, SEGMENTS + 1);
		tt_disconnect(&waiting[i]);
	}
	free(waiting);
	tt_disconnect(&client);
	tdd_server_free(server);
}

/* What the broker keeps of a manifest is one descriptor, whatever becomes of the publish. */
TT_TEST(bundle, a_trial_leaves_nothing)
{
	struct tdd_server *server = tt_server_new(false);
	struct tdp_message list = {.kind = TDP_MESSAGE_LIST, .list = {.pattern = "**"}};
	struct tt_client client;

	tt_join(server, &client);
	bundle_init(server, &client, 3);
	bundle.message.publish.check_only = true;
	cr_assert_eq(publish_manifest(server, &client), 0);
	cr_expect_eq(client.reply.kind, TDP_MESSAGE_DONE);
	cr_assert_eq(tt_call(server, &client, list), 0);
	cr_expect_eq(client.reply.listing.entry_count, 0);
	tt_disconnect(&client);
	tdd_server_free(server);
}
