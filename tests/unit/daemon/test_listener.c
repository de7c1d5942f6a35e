/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/listener.h"
#include "tests/support/leak.h"

struct place {
	char folder[32];
	char socket[64];
	char lock[80];
};

static void place_init(struct place *place)
{
	strcpy(place->folder, "/tmp/tidl-test-XXXXXX");
	cr_assert(mkdtemp(place->folder));
	snprintf(place->socket, sizeof(place->socket), "%s/s", place->folder);
	snprintf(place->lock, sizeof(place->lock), "%s.lock", place->socket);
}

static void place_deinit(struct place *place)
{
	unlink(place->socket);
	unlink(place->lock);
	cr_expect_eq(rmdir(place->folder), 0, "something else was left there");
}

static int try_connect(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	strcpy(address.sun_path, path);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		return fd;
	close(fd);
	return -1;
}

static bool leave(struct tdd_listener *listener)
{
	bool has_left = tdd_listener_try_leave(listener);

	tdd_listener_deinit(listener);
	return has_left;
}

static mode_t mode_of(const char *path)
{
	struct stat status;

	cr_assert_eq(lstat(path, &status), 0);
	return status.st_mode & 0777;
}

TT_TEST(listener, opens_serves_and_leaves_an_empty_lock)
{
	struct place place;
	struct tdd_listener listener;
	struct tdp_fault fault;
	struct stat status;
	int client, server;

	place_init(&place);
	cr_assert_eq(tdd_listener_open(place.socket, true, &listener, &fault), 0, "%s", fault.text);
	cr_expect_eq(mode_of(place.socket), 0600);
	client = try_connect(place.socket);
	cr_assert_geq(client, 0);
	server = tdd_listener_accept(&listener);
	cr_assert_geq(server, 0);
	cr_expect(fcntl(server, F_GETFL) & O_NONBLOCK);
	cr_expect(fcntl(server, F_GETFD) & FD_CLOEXEC);
	cr_expect_lt(tdd_listener_accept(&listener), 0);
	cr_expect(leave(&listener));
	cr_expect_lt(access(place.socket, F_OK), 0);
	cr_assert_eq(stat(place.lock, &status), 0);
	cr_expect_eq(status.st_size, 0);
	close(client);
	close(server);
	place_deinit(&place);
}

TT_TEST(listener, a_public_socket_is_for_everybody)
{
	struct place place;
	struct tdd_listener listener;
	struct tdp_fault fault;

	place_init(&place);
	cr_assert_eq(tdd_listener_open(place.socket, false, &listener, &fault), 0);
	cr_expect_eq(mode_of(place.socket), 0666);
	cr_expect(leave(&listener));
	place_deinit(&place);
}

TT_TEST(listener, a_living_socket_is_respected)
{
	struct place place;
	struct tdd_listener first, second;
	struct tdp_fault fault;
	int client;

	place_init(&place);
	cr_assert_eq(tdd_listener_open(place.socket, true, &first, &fault), 0);
	cr_expect_eq(tdd_listener_open(place.socket, true, &second, &fault), TIDL_ERR_EXISTS);
	client = try_connect(place.socket);
	cr_expect_geq(client, 0);
	close(client);
	cr_expect(leave(&first));
	place_deinit(&place);
}

TT_TEST(listener, a_dead_socket_is_replaced)
{
	struct place place;
	struct tdd_listener dead, next;
	struct tdp_fault fault;
	int client;

	place_init(&place);
	cr_assert_eq(tdd_listener_open(place.socket, true, &dead, &fault), 0);
	tdd_listener_deinit(&dead);
	cr_expect_lt(try_connect(place.socket), 0);
	cr_assert_eq(tdd_listener_open(place.socket, true, &next, &fault), 0, "%s", fault.text);
	client = try_connect(place.socket);
	cr_expect_geq(client, 0);
	close(client);
	cr_expect(leave(&next));
	place_deinit(&place);
}

TT_TEST(listener, a_file_is_not_taken_for_a_socket)
{
	struct place place;
	struct tdd_listener listener;
	struct tdp_fault fault;
	int fd;

	place_init(&place);
	fd = open(place.socket, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	cr_assert_geq(fd, 0);
	close(fd);
	cr_expect_eq(tdd_listener_open(place.socket, true, &listener, &fault),
		     TIDL_ERR_WRONG_SOCKET);
	cr_expect_eq(access(place.socket, F_OK), 0, "it was somebody's file");
	place_deinit(&place);
}

TT_TEST(listener, another_kind_of_socket_is_left_alone)
{
	struct place place;
	struct tdd_listener listener;
	struct tdp_fault fault;
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int stream = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	place_init(&place);
	strcpy(address.sun_path, place.socket);
	cr_assert_eq(bind(stream, (struct sockaddr *)&address, sizeof(address)), 0);
	cr_assert_eq(listen(stream, 1), 0);
	cr_expect_eq(tdd_listener_open(place.socket, true, &listener, &fault),
		     TIDL_ERR_WRONG_SOCKET);
	close(stream);
	place_deinit(&place);
}

TT_TEST(listener, leaves_only_under_the_start_lock)
{
	struct place place;
	struct tdd_listener listener;
	struct tdp_fault fault;
	int lock, client;

	place_init(&place);
	cr_assert_eq(tdd_listener_open(place.socket, true, &listener, &fault), 0);
	lock = open(place.lock, O_RDWR | O_CLOEXEC);
	cr_assert_eq(flock(lock, LOCK_EX), 0);
	cr_expect_not(tdd_listener_try_leave(&listener));
	client = try_connect(place.socket);
	cr_expect_geq(client, 0, "it has to go on listening meanwhile");
	cr_assert_eq(flock(lock, LOCK_UN), 0);
	cr_expect(leave(&listener));
	char byte;
	cr_expect_leq(recv(client, &byte, 1, 0), 0, "the late comer has to be turned off");
	close(client);
	close(lock);
	place_deinit(&place);
}

TT_TEST(listener, removes_no_socket_but_its_own)
{
	struct place place;
	struct tdd_listener first, second;
	struct tdp_fault fault;
	int client;

	place_init(&place);
	cr_assert_eq(tdd_listener_open(place.socket, true, &first, &fault), 0);
	unlink(place.socket);
	cr_assert_eq(tdd_listener_open(place.socket, true, &second, &fault), 0);
	cr_expect(leave(&first));
	client = try_connect(place.socket);
	cr_expect_geq(client, 0, "the second one's socket was removed");
	close(client);
	cr_expect(leave(&second));
	place_deinit(&place);
}

TT_TEST(listener, paths_become_absolute)
{
	char path[TDP_PATH_MAX];
	char longest[200];
	struct tdp_fault fault;

	cr_assert_eq(chdir("/tmp"), 0);
	cr_assert_eq(tdd_listener_choose_path("x/s", false, path, &fault), 0);
	cr_expect_str_eq(path, "/tmp/x/s");
	cr_assert_eq(tdd_listener_choose_path("/run/s", false, path, &fault), 0);
	cr_expect_str_eq(path, "/run/s");
	memset(longest, 'x', sizeof(longest));
	longest[0] = '/';
	longest[sizeof(longest) - 1] = '\0';
	cr_expect_eq(tdd_listener_choose_path(longest, false, path, &fault), TIDL_ERR_LIMIT);
	cr_expect_eq(tdd_listener_choose_path(longest + 1, false, path, &fault), TIDL_ERR_LIMIT);
	longest[TDP_PATH_MAX - 1] = '\0';
	cr_expect_eq(tdd_listener_choose_path(longest, false, path, &fault), 0);
}

TT_TEST(listener, activation_needs_our_pid_and_one_socket)
{
	struct tdd_listener listener;
	struct tdp_fault fault;
	char pid[16];

	cr_expect_not(tdd_listener_is_activated());
	setenv("LISTEN_FDS", "1", 1);
	setenv("LISTEN_PID", "1", 1);
	cr_expect_not(tdd_listener_is_activated());
	snprintf(pid, sizeof(pid), "%d", getpid());
	setenv("LISTEN_PID", pid, 1);
	cr_expect(tdd_listener_is_activated());
	setenv("LISTEN_FDS", "2", 1);
	cr_expect_eq(tdd_listener_adopt(&listener, &fault), TIDL_ERR_INVALID_ARGUMENT);
	cr_expect(!getenv("LISTEN_PID") && !getenv("LISTEN_FDS"));
}
