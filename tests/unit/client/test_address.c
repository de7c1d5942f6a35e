/* SPDX-License-Identifier: Apache-2.0 */
#include "client/lib/address.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/lib/deadline.h"
#include "tests/support/leak.h"

struct place {
	char folder[64];
	char runtime[80];
	char public_socket[TDP_PATH_MAX];
	char private_socket[TDP_PATH_MAX];
};

static void place_init(struct place *place)
{
	strcpy(place->folder, "/tmp/tidl-test-XXXXXX");
	cr_assert_not_null(mkdtemp(place->folder));
	(void)snprintf(place->runtime, sizeof(place->runtime), "%s/tidl", place->folder);
	(void)snprintf(place->public_socket, TDP_PATH_MAX, "%s/tidld.sock", place->runtime);
	(void)snprintf(place->private_socket, TDP_PATH_MAX, "%s/private.sock", place->runtime);
	cr_assert_eq(setenv("XDG_RUNTIME_DIR", place->folder, 1), 0);
	cr_assert_eq(unsetenv("TIDL_SOCKET"), 0);
}

static void place_deinit(const struct place *place)
{
	(void)unlink(place->public_socket);
	(void)unlink(place->private_socket);
	(void)rmdir(place->runtime);
	(void)rmdir(place->folder);
}

static int listen_on(const char *path, int type)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	cr_assert_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	cr_assert_eq(listen(fd, 1), 0);
	return fd;
}

static const struct tdc_patience endless = {.deadline = TDC_DEADLINE_NEVER};

static int search(char *ret_path, struct tdp_fault *fault)
{
	const struct tdc_patience patience = {.deadline = tdc_deadline_after(20000)};
	struct tdc_address_list list;
	int fd = -1;
	int r = tdc_address_list_init(NULL, &list, fault);

	if (r == 0)
		r = tdc_address_search(&list, &patience, &fd, ret_path, fault);
	if (r == 0)
		close(fd);
	return r;
}

TT_TEST(address, order_of_places)
{
	struct place place;
	struct tdc_address_list list;
	struct tdp_fault fault;

	place_init(&place);
	cr_assert_eq(tdc_address_list_init(NULL, &list, &fault), 0);
	cr_assert_eq(list.count, 1, "without a runtime folder only the system's is left");
	cr_assert_str_eq(list.paths[0], TDP_SYSTEM_SOCKET);
	cr_assert_eq(mkdir(place.runtime, 0700), 0);
	cr_assert_eq(tdc_address_list_init(NULL, &list, &fault), 0);
	cr_assert_eq(list.count, 3);
	cr_assert_not(list.is_given);
	cr_assert_str_eq(list.paths[0], place.public_socket);
	cr_assert_str_eq(list.paths[1], place.private_socket);
	cr_assert_str_eq(list.paths[2], TDP_SYSTEM_SOCKET);
	cr_assert_eq(setenv("TIDL_SOCKET", "/a/b", 1), 0);
	cr_assert_eq(tdc_address_list_init(NULL, &list, &fault), 0);
	cr_assert(list.is_given && list.count == 1);
	cr_assert_str_eq(list.paths[0], "/a/b");
	cr_assert_eq(tdc_address_list_init("/c/d", &list, &fault), 0);
	cr_assert(list.is_given && list.count == 1);
	cr_assert_str_eq(list.paths[0], "/c/d");
	cr_assert_eq(setenv("TIDL_SOCKET", "", 1), 0);
	cr_assert_eq(tdc_address_list_init(NULL, &list, &fault), 0);
	cr_assert_not(list.is_given, "an empty variable is none");
	cr_assert_eq(unsetenv("TIDL_SOCKET"), 0);
	place_deinit(&place);
}

TT_TEST(address, a_path_that_is_no_path)
{
	char path[TDP_PATH_MAX + 1];
	struct tdc_address_list list;
	struct tdp_fault fault;

	memset(path, 'x', sizeof(path));
	path[TDP_PATH_MAX] = '\0';
	cr_assert_eq(tdc_address_list_init(path, &list, &fault), TIDL_ERR_INVALID_ARGUMENT);
	path[TDP_PATH_MAX - 1] = '\0';
	cr_assert_eq(tdc_address_list_init(path, &list, &fault), 0);
	cr_assert_eq(tdc_address_list_init("", &list, &fault), TIDL_ERR_INVALID_ARGUMENT);
}

TT_TEST(address, a_place_where_nobody_listens_is_passed_over)
{
	struct place place;
	char path[TDP_PATH_MAX];
	struct tdp_fault fault;
	int fd;

	place_init(&place);
	cr_assert_eq(mkdir(place.runtime, 0700), 0);
	cr_assert_eq(search(path, &fault), TIDL_ERR_NO_BROKER);
	close(listen_on(place.public_socket, SOCK_SEQPACKET));
	cr_assert_eq(search(path, &fault), TIDL_ERR_NO_BROKER, "left behind by a dead broker");
	fd = listen_on(place.private_socket, SOCK_SEQPACKET);
	cr_assert_eq(search(path, &fault), 0, "%s", fault.text);
	cr_assert_str_eq(path, place.private_socket);
	close(fd);
	cr_assert_eq(unlink(place.public_socket), 0);
	fd = listen_on(place.public_socket, SOCK_SEQPACKET);
	cr_assert_eq(search(path, &fault), 0, "%s", fault.text);
	cr_assert_str_eq(path, place.public_socket);
	close(fd);
	place_deinit(&place);
}

TT_TEST(address, a_socket_of_another_kind_ends_the_search)
{
	struct place place;
	char path[TDP_PATH_MAX];
	struct tdp_fault fault;
	int stream;
	int other;

	place_init(&place);
	cr_assert_eq(mkdir(place.runtime, 0700), 0);
	stream = listen_on(place.public_socket, SOCK_STREAM);
	other = listen_on(place.private_socket, SOCK_SEQPACKET);
	cr_assert_eq(search(path, &fault), TIDL_ERR_WRONG_SOCKET);
	cr_assert_not_null(strstr(fault.text, place.public_socket));
	close(stream);
	close(other);
	place_deinit(&place);
}

TT_TEST(address, a_plain_file_is_no_socket)
{
	struct place place;
	struct tdp_fault fault;
	int fd = -1;

	place_init(&place);
	cr_assert_eq(mkdir(place.runtime, 0700), 0);
	close(open(place.public_socket, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	cr_assert_eq(tdc_address_connect(place.public_socket, &endless, &fd, &fault),
		     TIDL_ERR_WRONG_SOCKET);
	cr_assert_eq(fd, -1);
	place_deinit(&place);
}

/* In a child, since it gives up its rights. */
static int connect_as(uid_t uid, const char *path)
{
	struct tdp_fault fault;
	int fd;

	if (setresuid(uid, uid, uid) < 0)
		return 0;
	return tdc_address_connect(path, &endless, &fd, &fault);
}

enum { SOME_UID = 4242, OTHER_UID = 4243 };

static void assert_child(pid_t pid, int expected)
{
	int status;

	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFEXITED(status));
	cr_assert_eq(WEXITSTATUS(status), -expected);
}

TT_TEST(address, a_place_that_refuses_access_is_an_error)
{
	struct place place;
	int fd;
	pid_t pid;

	if (geteuid() != 0)
		cr_skip_test("only root can become somebody else");
	place_init(&place);
	cr_assert_eq(mkdir(place.runtime, 0755), 0);
	cr_assert_eq(chmod(place.folder, 0755), 0);
	fd = listen_on(place.public_socket, SOCK_SEQPACKET);
	cr_assert_eq(chmod(place.public_socket, 0600), 0);
	pid = fork();
	if (pid == 0)
		_exit(-connect_as(SOME_UID, place.public_socket));
	assert_child(pid, TIDL_ERR_PERMISSION);
	/* A broker of root's is trusted by everybody. */
	cr_assert_eq(chmod(place.public_socket, 0666), 0);
	pid = fork();
	if (pid == 0)
		_exit(-connect_as(SOME_UID, place.public_socket));
	assert_child(pid, 0);
	close(fd);
	place_deinit(&place);
}

TT_TEST(address, a_broker_of_somebody_else_is_not_trusted)
{
	struct place place;
	struct tdp_fault fault;
	int ready[2];
	int fd = -1;
	char byte;
	pid_t pid;

	if (geteuid() != 0)
		cr_skip_test("only root can become somebody else");
	place_init(&place);
	cr_assert_eq(mkdir(place.runtime, 0777), 0);
	cr_assert_eq(chmod(place.runtime, 0777), 0);
	cr_assert_eq(chmod(place.folder, 0755), 0);
	cr_assert_eq(pipe2(ready, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		if (setresuid(OTHER_UID, OTHER_UID, OTHER_UID) < 0)
			_exit(1);
		(void)listen_on(place.public_socket, SOCK_SEQPACKET);
		if (write(ready[1], "", 1) != 1)
			_exit(1);
		(void)pause();
		_exit(0);
	}
	cr_assert_eq(read(ready[0], &byte, 1), 1);
	cr_assert_eq(tdc_address_connect(place.public_socket, &endless, &fd, &fault),
		     TIDL_ERR_BROKER_UNTRUSTED);
	cr_assert_not_null(strstr(fault.text, "4243"));
	cr_assert_eq(kill(pid, SIGKILL), 0);
	cr_assert_eq(waitpid(pid, NULL, 0), pid);
	close(ready[0]);
	close(ready[1]);
	place_deinit(&place);
}

TT_TEST(address, a_full_queue_ends_in_a_time_out)
{
	struct place place;
	struct tdp_fault fault;
	int fds[8];
	int listener;
	int count = 0;
	int r = 0;

	place_init(&place);
	cr_assert_eq(mkdir(place.runtime, 0700), 0);
	listener = listen_on(place.public_socket, SOCK_SEQPACKET);
	while (count < 8 && r == 0) {
		const struct tdc_patience patience = {.deadline = tdc_deadline_after(20)};

		r = tdc_address_connect(place.public_socket, &patience, &fds[count], &fault);
		if (r == 0)
			count++;
	}
	cr_assert_eq(r, TIDL_ERR_TIMEOUT);
	while (count > 0)
		close(fds[--count]);
	close(listener);
	place_deinit(&place);
}
