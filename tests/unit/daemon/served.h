/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_UNIT_DAEMON_SERVED_H
#define TT_UNIT_DAEMON_SERVED_H

#include <criterion/criterion.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/limits.h"
#include "daemon/log.h"
#include "daemon/loop.h"
#include "daemon/policy.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "proto/base/arena.h"
#include "proto/wire/fdset.h"
#include "proto/wire/limits.h"
#include "proto/wire/message.h"
#include "proto/wire/packet.h"

/*
 * A server without a listener, and clients at the other ends of socket pairs, all in one process.
 * The loop runs one turn at a time, when the test says so. All clients have this process's uid.
 */
struct tt_client {
	int fd;
	uint64_t last_request_id;
	/* The last answer. */
	struct tdp_message reply;
	struct tdp_fdset fds;
	struct tdp_arena arena;
	unsigned char buffer[TDP_PACKET_MAX_BYTES];
};

enum { TT_QUOTA_BYTES = 64 << 20, TT_DESCRIPTOR_LIMIT = 4096, TT_TURNS = 8 };

/* libuv opens a pipe for signals with the first loop of a process and keeps it. Run this as the
 * suite's .init, so that no test is blamed for it. */
static inline void tt_open_first_loop(void)
{
	struct tdd_loop *loop;
	struct tdp_fault fault;

	cr_assert_eq(tdd_loop_new(&loop, &fault), 0);
	tdd_loop_free(loop);
}

static inline struct tdd_server *tt_server_new(bool is_private)
{
	struct tdd_server_config config = {
		.is_private = is_private,
		.quota_total_bytes = TT_QUOTA_BYTES,
		.quota_uid_bytes = TT_QUOTA_BYTES / 2,
		.descriptor_limit = TT_DESCRIPTOR_LIMIT,
		.admin_gid = TDD_GID_NONE,
		.overflow_uid = 65534,
	};
	struct tdd_server *server;
	struct tdp_fault fault;

	tdd_log_set_level(TDD_LOG_ERROR);
	cr_assert_eq(tdd_server_new(&config, &server, &fault), 0, "%s", fault.text);
	return server;
}

static inline void tt_stop_loop(void *loop)
{
	tdd_loop_stop(loop);
}

/* A timer that is due stops the loop before it waits: each run is one look at the descriptors. */
static inline void tt_turn(struct tdd_server *server)
{
	struct tdd_timer *timer;
	struct tdp_fault fault;

	cr_assert_eq(tdd_timer_new(server->loop, tt_stop_loop, server->loop, &timer, &fault), 0);
	for (int i = 0; i < TT_TURNS; i++) {
		tdd_timer_start(timer, 0);
		tdd_server_run(server);
	}
	tdd_timer_free(timer);
}

static inline void tt_connect(struct tdd_server *server, struct tt_client *client)
{
	struct tdp_fault fault;
	int sockets[2];

	memset(client, 0, sizeof(*client));
	tdp_arena_init(&client->arena, TDP_UNPACK_MAX_BYTES);
	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets),
		     0);
	client->fd = sockets[0];
	cr_assert_eq(tdd_server_adopt(server, sockets[1], &fault), 0, "%s", fault.text);
}

static inline void tt_disconnect(struct tt_client *client)
{
	tdp_fdset_deinit(&client->fds);
	tdp_fdset_init(&client->fds);
	tdp_arena_deinit(&client->arena);
	close(client->fd);
}

static inline void tt_send_bytes(struct tt_client *client, const void *bytes, size_t size_bytes,
				 const int *fds, uint32_t fd_count)
{
	cr_assert_eq(tdp_packet_send(client->fd, bytes, size_bytes, fds, fd_count), 0);
}

/* Send; @request_id 0 asks for the next free one. One-way messages: see tt_post(). */
static inline uint64_t tt_send(struct tt_client *client, struct tdp_message message)
{
	static unsigned char packed[TDP_PACKET_MAX_BYTES];
	struct tdp_fault fault;
	size_t size_bytes;

	if (message.request_id == 0)
		message.request_id = ++client->last_request_id;
	cr_assert_eq(tdp_message_pack(&message, packed, sizeof(packed), &size_bytes, &fault), 0,
		     "%s", fault.text);
	tt_send_bytes(client, packed, size_bytes, NULL, 0);
	return message.request_id;
}

static inline void tt_post(struct tt_client *client, struct tdp_message message)
{
	static unsigned char packed[TDP_PACKET_MAX_BYTES];
	struct tdp_fault fault;
	size_t size_bytes;

	message.request_id = 0;
	cr_assert_eq(tdp_message_pack(&message, packed, sizeof(packed), &size_bytes, &fault), 0);
	tt_send_bytes(client, packed, size_bytes, NULL, 0);
}

/* Receive into client->reply. Returns 0 or a negative errno. */
static inline int tt_receive(struct tt_client *client)
{
	struct tdp_fault fault;
	size_t size_bytes;
	int r;

	tdp_fdset_deinit(&client->fds);
	tdp_arena_deinit(&client->arena);
	tdp_arena_init(&client->arena, TDP_UNPACK_MAX_BYTES);
	r = tdp_packet_receive(client->fd, client->buffer, &client->fds, &size_bytes);
	if (r < 0)
		return r;
	cr_assert_eq(tdp_message_unpack(&client->arena, client->buffer, size_bytes, &client->reply,
					&fault),
		     0, "%s", fault.text);
	cr_assert_eq(client->reply.fd_count, client->fds.count);
	return 0;
}

/* For answers that wait for a timer of the server. */
static inline void tt_receive_eventually(struct tdd_server *server, struct tt_client *client)
{
	int r;

	while ((r = tt_receive(client)) == -EAGAIN)
		tt_turn(server);
	cr_assert_eq(r, 0);
}

/* Send, let the server work, receive. The answer's code for a failure, else 0. */
static inline int tt_call(struct tdd_server *server, struct tt_client *client,
			  struct tdp_message message)
{
	uint64_t request_id = tt_send(client, message);

	tt_turn(server);
	cr_assert_eq(tt_receive(client), 0, "%s was not answered", tdp_message_name(message.kind));
	cr_assert_eq(client->reply.request_id, request_id);
	return client->reply.kind == TDP_MESSAGE_FAILURE ? client->reply.failure.code : 0;
}

static inline struct tdp_message tt_hello(void)
{
	return (struct tdp_message){
		.kind = TDP_MESSAGE_HELLO,
		.hello = {.min_version = TDP_PROTOCOL_MIN,
			  .max_version = TDP_PROTOCOL_MAX,
			  .client_name = "test",
			  .command = "",
			  .cgroup = ""},
	};
}

static inline void tt_join(struct tdd_server *server, struct tt_client *client)
{
	tt_connect(server, client);
	cr_assert_eq(tt_call(server, client, tt_hello()), 0);
	cr_assert_eq(client->reply.kind, TDP_MESSAGE_WELCOME);
}

static inline uint64_t tt_call_allocate(struct tdd_server *server, struct tt_client *client,
					uint64_t size_bytes)
{
	struct tdp_message message = {.kind = TDP_MESSAGE_ALLOCATE,
				      .allocate = {.data_size_bytes = size_bytes}};

	cr_assert_eq(tt_call(server, client, message), 0, "%s", client->reply.failure.message);
	cr_assert_eq(client->reply.kind, TDP_MESSAGE_ALLOCATED);
	cr_assert_eq(client->fds.count, 2);
	return client->reply.allocated.segment.id;
}

/* What a test may change before it sends a PUBLISH. */
struct tt_publish {
	int64_t shape[4];
	int64_t strides[4];
	struct tdp_segment segment;
	struct tdp_tensor tensor;
	struct tdp_message message;
};

/* 8 x 4 of float32 at the start of the segment; @segment_id 0: an empty tensor. */
static inline void tt_publish_init(struct tt_publish *publish, const char *name,
				   uint64_t segment_id)
{
	memset(publish, 0, sizeof(*publish));
	publish->shape[0] = segment_id ? 8 : 0;
	publish->shape[1] = 4;
	publish->strides[0] = 4;
	publish->strides[1] = 1;
	publish->segment = (struct tdp_segment){.kind = TDP_SEGMENT_MEMFD, .id = segment_id};
	publish->tensor = (struct tdp_tensor){
		.key = "",
		.segment_index = segment_id ? 0 : -1,
		.dtype = {2, 32, 1},
		.ndim = 2,
		.shape = publish->shape,
		.strides = publish->strides,
	};
	publish->message = (struct tdp_message){
		.kind = TDP_MESSAGE_PUBLISH,
		.publish = {.name = name,
			    .segment_count = segment_id ? 1 : 0,
			    .segments = &publish->segment,
			    .tensor_count = 1,
			    .tensors = &publish->tensor,
			    .access = TIDL_ACCESS_SHARED,
			    .mode = 0600,
			    .keep = 1,
			    .path = TIDL_PATH_ALLOCATED},
	};
}

static inline int tt_call_publish(struct tdd_server *server, struct tt_client *client,
				  const char *name, uint64_t segment_id)
{
	struct tt_publish publish;

	tt_publish_init(&publish, name, segment_id);
	return tt_call(server, client, publish.message);
}

static inline struct tdp_message tt_get(const char *name, enum tidl_attach attach)
{
	return (struct tdp_message){.kind = TDP_MESSAGE_GET,
				    .get = {.name = name, .attach = attach}};
}

static inline struct tdp_message tt_get_waiting(const char *name)
{
	struct tdp_message message = tt_get(name, TIDL_ATTACH_READ);

	message.get.wait = true;
	return message;
}

static inline void tt_release(struct tt_client *client, uint64_t lease_id)
{
	struct tdp_message message = {.kind = TDP_MESSAGE_RELEASE,
				      .release = {.lease_count = 1, .lease_ids = &lease_id}};

	tt_post(client, message);
}

static inline void tt_release_segment(struct tt_client *client, uint64_t segment_id)
{
	struct tdp_message message = {.kind = TDP_MESSAGE_RELEASE,
				      .release = {.segment_count = 1, .segment_ids = &segment_id}};

	tt_post(client, message);
}

/* The server has ended the connection with this code, and nothing else follows. */
static inline void tt_expect_end(struct tdd_server *server, struct tt_client *client, int code)
{
	tt_turn(server);
	cr_assert_eq(tt_receive(client), 0, "the end came without a word");
	cr_expect_eq(client->reply.kind, TDP_MESSAGE_FAILURE);
	cr_expect_eq(client->reply.failure.code, code, "got %s: %s",
		     tdp_error_name(client->reply.failure.code), client->reply.failure.message);
	cr_expect_eq(tt_receive(client), -ECONNRESET);
}

#endif
