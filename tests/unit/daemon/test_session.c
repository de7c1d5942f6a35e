/* SPDX-License-Identifier: Apache-2.0 */
/* One client's valid, odd and broken packets, and what becomes of the others meanwhile. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "daemon/disposal.h"
#include "tests/support/leak.h"
#include "tests/unit/daemon/served.h"

TestSuite(session, .init = tt_open_first_loop);

/* Everybody else is still served. */
static void expect_alive(struct tdd_server *server, struct tt_client *client)
{
	struct tdp_message message = {.kind = TDP_MESSAGE_LIST, .list = {.pattern = "**"}};

	cr_expect_eq(tt_call(server, client, message), 0);
}

TT_TEST(session, greets)
{
	struct tdd_server *server = tt_server_new(true);
	struct tt_client client;

	tt_join(server, &client);
	cr_expect_eq(client.reply.welcome.version, 1);
	cr_expect_eq(client.reply.welcome.uid, geteuid());
	cr_expect(client.reply.welcome.is_private);
	cr_expect_eq(client.reply.welcome.epoch, 1);
	cr_expect_eq(memcmp(client.reply.welcome.broker_id, server->id, sizeof(server->id)), 0);
	cr_expect_eq(client.reply.welcome.max_segment_bytes, TT_QUOTA_BYTES / 2);
	tt_disconnect(&client);
	tt_turn(server);
	cr_expect_eq(server->session_count, 0);
	tdd_server_free(server);
}

TT_TEST(session, refuses_versions_that_it_does_not_speak)
{
	struct tdd_server *server = tt_server_new(false);
	struct tt_client client;
	struct tdp_message hello = tt_hello();

	hello.hello.min_version = TDP_PROTOCOL_MAX + 1;
	hello.hello.max_version = TDP_PROTOCOL_MAX + 5;
	tt_connect(server, &client);
	tt_send(&client, hello);
	tt_expect_end(server, &client, TIDL_ERR_VERSION);
	tt_disconnect(&client);
	tdd_server_free(server);
}

TT_TEST(session, takes_a_range_that_holds_its_version)
{
	struct tdd_server *server = tt_server_new(false);
	struct tt_client client;
	struct tdp_message hello = tt_hello();

	hello.hello.max_version = UINT32_MAX;
	tt_connect(server, &client);
	cr_expect_eq(tt_call(server, &client, hello), 0);
	cr_expect_eq(client.reply.welcome.version, TDP_PROTOCOL_MAX);
	tt_disconnect(&client);
	tdd_server_free(server);
}

TT_TEST(session, a_peer_without_a_uid_is_refused_by_its_own_code)
{
	struct tdd_server *server = tt_server_new(false);
	struct tt_client client;

	server->config.overflow_uid = geteuid();
	tt_connect(server, &client);
	tt_send(&client, tt_hello());
	tt_expect_end(server, &client, TIDL_ERR_PEER_REFUSED);
	cr_expect_eq(client.reply.request_id, 1);
	tt_disconnect(&client);
	tdd_server_free(server);
}

TT_TEST(session, nothing_comes_before_hello)
{
	struct tdd_server *server = tt_server_new(false);
	struct tt_client client;
	struct tdp_message list = {.kind = TDP_MESSAGE_LIST, .list = {.pattern = "**"}};

	tt_connect(server, &client);
	/* The answer has to get through although more is unread. */
	for (int i = 0; i < 5; i++)
		tt_send(&client, list);
	tt_expect_end(server, &client, TIDL_ERR_PROTOCOL);
	tt_disconnect(&client);
	tdd_server_free(server);
}

TT_TEST(session, only_one_hello)
{
	struct tdd_server *server = tt_server_new(false);
	struct tt_client client;

	tt_join(server, &client);
	tt_send(&client, tt_hello());
	tt_expect_end(server, &client, TIDL_ERR_PROTOCOL);
	tt_disconnect(&client);
	tdd_server_free(server);
}

TT_TEST(session, garbage_ends_its_sender_alone)
{
	struct tdd_server *server = tt_server_new(false);
	struct tt_client other, client;
	unsigned char garbage[300];

	tt_join(server, &other);
	srand(1);
	for (size_t size = 1; size < sizeof(garbage); size += 7) {
		for (size_t i = 0; i < size; i++)
			garbage[i] = (unsigned char)rand();
		garbage[0] = 0xff;
		tt_join(server, &client);
		tt_send_bytes(&client, garbage, size, NULL, 0);
		tt_expect_end(server, &client, TIDL_ERR_PROTOCOL);
		tt_disconnect(&client);
	}
	expect_alive(server, &other);
	cr_expect_eq(server->session_count, 1);
	tt_disconnect(&other);
	tdd_server_free(server);
}

TT_TEST(session, truncated_messages_end_it)
{
	static unsigned char packed[TDP_PACKET_MAX_BYTES];
	struct tdd_server *server = tt_server_new(false);
	struct tt_client client;
	struct tdp_message hello = tt_hello();
	struct tdp_fault fault;
	size_t size_bytes;

	hello.request_id = 1;
	cr_assert_eq(tdp_message_pack(&hello, packed, sizeof(packed), &size_bytes, &fault), 0);
	for (size_t size = 1; size < size_bytes; size++) {
		tt_connect(server, &client);
		tt_send_bytes(&client, packed, size, NULL, 0);
		tt_expect_end(server, &client, TIDL_ERR_PROTOCOL);
		tt_disconnect(&client);
	}
	tdd_server_free(server);
}

TT_TEST(session, oversized_packets_end_it)
{
	static unsigned char large[TDP_PACKET_MAX_BYTES + 1];
	struct tdd_server *server = tt_server_new(false);
	struct tt_client client;

	tt_join(server, &client);
	cr_assert_eq(send(client.fd, large, sizeof(large), 0), sizeof(large));
	tt_expect_end(server, &client, TIDL_ERR_PROTOCOL);
	tt_disconnect(&client);
	tdd_server_free(server);
}

TT_TEST(session, messages_of_the_broker_end_it)
{
	struct tdd_server *server = tt_server_new(false);
	struct tt_client client;
	struct tdp_message done = {.kind = TDP_MESSAGE_DONE};

	tt_join(server, &client);
	tt_send(&client, done);
	tt_expect_end(server, &client, TIDL_ERR_PROTOCOL);
	tt_disconnect(&client);
	tdd_server_free(server);
}

TT_TEST(session, a_request_without_an_id_ends_it)
{
	struct tdd_server *server = tt_server_new(false);
	struct tt_client client;
	struct tdp_message list = {.kind = TDP_MESSAGE_LIST, .list = {.pattern = "**"}};

	tt_join(server, &client);
	tt_post(&client, list);
	tt_expect_end(server, &client, TIDL_ERR_PROTOCOL);
	tt_disconnect(&client);
	tdd_server_free(server);
}

TT_TEST(session, unknown_messages_are_unsupported_and_it_goes_on)
{
	/* Envelope{request_id: 5, fd_count: 0, field 1000: ""}, and one with GetStats. */
	static const unsigned char newer[] = {0x08, 0x05, 0x10, 0x00, 0xc2, 0x3e, 0x00};
	static const unsigned char unbuilt[] = {0x08, 0x06, 0x10, 0x00, 0xb2, 0x03, 0x00};
	struct tdd_server *server = tt_server_new(false);
	struct tt_client client;

	tt_join(server, &client);
	tt_send_bytes(&client, newer, sizeof(newer), NULL, 0);
	tt_send_bytes(&client, unbuilt, sizeof(unbuilt), NULL, 0);
	tt_turn(server);
	for (uint64_t id = 5; id <= 6; id++) {
		cr_assert_eq(tt_receive(&client), 0);
		cr_expect_eq(client.reply.request_id, id);
		cr_expect_eq(client.reply.failure.code, TIDL_ERR_UNSUPPORTED);
	}
	expect_alive(server, &client);
	tt_disconnect(&client);
	tdd_server_free(server);
}

static void wait_for_disposal(void)
{
	while (tdd_disposal_pending(geteuid()) > 0)
		sched_yield();
}

TT_TEST(session, descriptors_from_a_client_end_it_and_are_closed)
{
	/* An honest GET, but for what it brings. */
	static unsigned char packed[TDP_PACKET_MAX_BYTES];
	struct tdd_server *server = tt_server_new(false);
	struct tdp_message get = tt_get("x", TIDL_ATTACH_READ);
	struct tdp_fault fault;
	size_t size_bytes;
	int fds[TDP_PACKET_MAX_FDS];
	int pipe_fds[2];
	char byte;

	get.request_id = 9;
	cr_assert_eq(tdp_message_pack(&get, packed, sizeof(packed), &size_bytes, &fault), 0);
	for (uint32_t count = 1; count <= TDP_PACKET_MAX_FDS; count += 84) {
		struct tt_client client;

		cr_assert_eq(pipe(pipe_fds), 0);
		for (uint32_t i = 0; i < count; i++)
			fds[i] = pipe_fds[1];
		tt_join(server, &client);
		tt_send_bytes(&client, packed, size_bytes, fds, count);
		close(pipe_fds[1]);
		tt_expect_end(server, &client, TIDL_ERR_PROTOCOL);
		tt_disconnect(&client);
		cr_expect_eq(read(pipe_fds[0], &byte, 1), 0, "a descriptor is still open");
		close(pipe_fds[0]);
		wait_for_disposal();
	}
	tdd_server_free(server);
}

TT_TEST(session, announced_descriptors_that_do_not_come_end_it)
{
	static unsigned char packed[TDP_PACKET_MAX_BYTES];
	struct tdd_server *server = tt_server_new(false);
	struct tdp_message get = tt_get("x", TIDL_ATTACH_READ);
	struct tt_client client;
	struct tdp_fault fault;
	size_t size_bytes;

	get.request_id = 9;
	get.fd_count = 1;
	cr_assert_eq(tdp_message_pack(&get, packed, sizeof(packed), &size_bytes, &fault), 0);
	tt_join(server, &client);
	tt_send_bytes(&client, packed, size_bytes, NULL, 0);
	tt_expect_end(server, &client, TIDL_ERR_PROTOCOL);
	tt_disconnect(&client);
	tdd_server_free(server);
}

/* In a child: connect, leave the socket to a grandchild, and end when `go` closes. */
static void connect_fork_and_end(const char *path, const int go[2], const int hold[2])
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	char byte;

	strcpy(address.sun_path, path);
	close(go[1]);
	close(hold[1]);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		_exit(1);
	if (fork() == 0) {
		close(go[0]);
		_exit(read(hold[0], &byte, 1) != 0);
	}
	_exit(read(go[0], &byte, 1) != 0);
}

TT_TEST(session, a_dead_process_ends_it_although_its_child_has_the_socket, .timeout = 60)
{
	char folder[] = "/tmp/tidl-test-XXXXXX";
	char path[64], lock[80];
	struct tdd_server *server = tt_server_new(false);
	struct tdd_listener listener;
	struct tdp_fault fault;
	int go[2], hold[2];
	pid_t child;
	int status;

	cr_assert(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/s", folder);
	snprintf(lock, sizeof(lock), "%s.lock", path);
	cr_assert_eq(tdd_listener_open(path, false, &listener, &fault), 0);
	cr_assert_eq(tdd_server_listen(server, &listener, &fault), 0);
	cr_assert(pipe(go) == 0 && pipe(hold) == 0);
	child = fork();
	if (child == 0)
		connect_fork_and_end(path, go, hold);
	while (server->session_count == 0)
		tt_turn(server);
	close(go[1]);
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_expect_eq(status, 0);
	tt_turn(server);
	cr_expect_eq(server->session_count, 0);
	close(hold[1]);
	close(hold[0]);
	close(go[0]);
	tdd_server_stop(server);
	tdd_server_run(server);
	tdd_server_free(server);
	unlink(lock);
	cr_expect_eq(rmdir(folder), 0);
}

TT_TEST(session, too_many_connections_are_told_so)
{
	struct tdd_server *server = tt_server_new(false);
	struct tdp_fault fault;
	int sockets[2];
	struct tt_client client;

	server->quota.limits[TDD_ACCOUNT_UID][TDD_QUOTA_SESSIONS] = 1;
	tt_join(server, &client);
	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, sockets), 0);
	cr_expect_eq(tdd_server_adopt(server, sockets[1], &fault), TIDL_ERR_QUOTA);
	tt_disconnect(&client);
	client.fd = sockets[0];
	tdp_arena_init(&client.arena, TDP_UNPACK_MAX_BYTES);
	tt_expect_end(server, &client, TIDL_ERR_QUOTA);
	tt_disconnect(&client);
	tdd_server_free(server);
}

TT_TEST(session, shutdown_is_answered_before_the_end)
{
	struct tdd_server *server = tt_server_new(true);
	struct tdp_message shutdown = {.kind = TDP_MESSAGE_SHUTDOWN};
	struct tt_client client;

	tt_join(server, &client);
	tt_send(&client, shutdown);
	tdd_server_run(server);
	cr_expect_eq(server->state, TDD_SERVER_STOPPED);
	tdd_server_free(server);
	cr_assert_eq(tt_receive(&client), 0);
	cr_expect_eq(client.reply.kind, TDP_MESSAGE_DONE);
	cr_expect_eq(tt_receive(&client), -ECONNRESET);
	tt_disconnect(&client);
}

/* Whoever started a broker may need longer to connect than it would wait without clients. */
TT_TEST(session, the_first_client_is_waited_for, .timeout = 60)
{
	enum { LATER_MS = 50 };
	struct tdd_server *server = tt_server_new(true);
	char folder[] = "/tmp/tidl-test-XXXXXX";
	char path[TDP_PATH_MAX], lock[TDP_PATH_MAX + 8];
	struct tdd_listener listener;
	struct tt_client client;
	struct tdd_timer *later;
	struct tdp_fault fault;

	server->config.empty_exit_ms = 1;
	cr_assert(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/s", folder);
	snprintf(lock, sizeof(lock), "%s.lock", path);
	cr_assert_eq(tdd_listener_open(path, true, &listener, &fault), 0, "%s", fault.text);
	cr_assert_eq(tdd_timer_new(server->loop, tt_stop_loop, server->loop, &later, &fault), 0);
	cr_assert_eq(tdd_server_listen(server, &listener, &fault), 0);
	tdd_timer_start(later, LATER_MS);
	tdd_server_run(server);
	cr_expect_eq(server->state, TDD_SERVER_RUNNING);
	tt_join(server, &client);
	tt_disconnect(&client);
	tdd_server_run(server);
	cr_expect_eq(server->state, TDD_SERVER_STOPPED, "the first one has come and gone");
	tdd_timer_free(later);
	tdd_server_free(server);
	unlink(lock);
	cr_expect_eq(rmdir(folder), 0);
}
