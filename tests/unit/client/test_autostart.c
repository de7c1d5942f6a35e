/* SPDX-License-Identifier: Apache-2.0 */
/* Starting a private broker, from processes in every state. */
#include "client/lib/autostart.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/lib/deadline.h"
#include "tests/support/leak.h"
#include "tests/unit/client/support/broker.h"

static int connect_anywhere(struct tidl_client **ret_client)
{
	struct tidl_connect_options options = {.size = sizeof(options), .timeout_ms = 30000};

	return tidl_connect(&options, ret_client);
}

static void assert_child(pid_t pid)
{
	int status;

	cr_assert_geq(pid, 0);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", status);
}

TT_TEST(autostart, starts_one_and_finds_it_again, .timeout = 60)
{
	struct tt_broker broker;
	struct tidl_client *first, *second;
	const struct tidl_broker_info *info;

	tt_broker_prepare(&broker);
	cr_assert_eq(connect_anywhere(&first), 0, "%s", tidl_last_error());
	info = tidl_broker(first);
	cr_assert_str_eq(info->address, broker.address);
	cr_assert(info->is_private);
	cr_assert_eq(info->uid, geteuid());
	cr_assert_eq(info->protocol, 1);
	cr_assert_str_eq(info->version, TIDL_VERSION);
	cr_assert_eq(connect_anywhere(&second), 0);
	cr_assert_eq(memcmp(info->id, tidl_broker(second)->id, sizeof(info->id)), 0);
	cr_assert_eq(tt_broker_find(&broker), 1);
	tidl_disconnect(first);
	tidl_disconnect(second);
	tt_broker_stop(&broker);
}

TT_TEST(autostart, what_a_killed_broker_left_is_used_again, .timeout = 60)
{
	struct tt_broker broker;
	struct tidl_client *client;
	struct stat status;

	tt_broker_start(&broker);
	tt_broker_kill(&broker);
	cr_assert_eq(stat(broker.address, &status), 0, "the socket is left");
	cr_assert_eq(connect_anywhere(&client), 0, "%s", tidl_last_error());
	cr_assert_eq(tt_broker_find(&broker), 1);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

enum { STARTERS = 8 };

static void *starter_main(void *argument)
{
	struct tidl_client *client = NULL;

	if (connect_anywhere(&client) == 0)
		memcpy(argument, tidl_broker(client)->id, 16);
	tidl_disconnect(client);
	return NULL;
}

TT_TEST(autostart, many_threads_at_once_get_one_broker, .timeout = 120)
{
	static const unsigned char nothing[16];
	struct tt_broker broker;
	unsigned char ids[STARTERS][16] = {{0}};
	pthread_t threads[STARTERS];

	tt_broker_prepare(&broker);
	for (size_t i = 0; i < STARTERS; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, starter_main, ids[i]), 0);
	for (size_t i = 0; i < STARTERS; i++)
		cr_assert_eq(pthread_join(threads[i], NULL), 0);
	cr_assert_neq(memcmp(ids[0], nothing, 16), 0);
	for (size_t i = 1; i < STARTERS; i++)
		cr_assert_eq(memcmp(ids[0], ids[i], 16), 0);
	cr_assert_eq(tt_broker_find(&broker), 1);
	tt_broker_stop(&broker);
}

TT_TEST(autostart, many_processes_at_once_get_one_broker, .timeout = 120)
{
	struct tt_broker broker;
	struct tidl_client *client;
	pid_t pids[STARTERS];

	tt_broker_prepare(&broker);
	for (size_t i = 0; i < STARTERS; i++) {
		pids[i] = fork();
		if (pids[i] == 0)
			_exit(connect_anywhere(&client) == 0 ? 0 : 1);
	}
	for (size_t i = 0; i < STARTERS; i++)
		assert_child(pids[i]);
	cr_assert_eq(tt_broker_find(&broker), 1);
	tt_broker_stop(&broker);
}

TT_TEST(autostart, with_closed_standard_descriptors, .timeout = 60)
{
	struct tt_broker broker;
	pid_t pid;

	tt_broker_prepare(&broker);
	pid = fork();
	if (pid == 0) {
		struct tidl_client *client;
		struct tidl_listing *listing;

		close(0);
		close(1);
		close(2);
		if (connect_anywhere(&client) != 0)
			_exit(1);
		if (tidl_fd(client) <= 2)
			_exit(2);
		/* What others print goes nowhere, not to the broker. */
		if (fcntl(1, F_GETFD) >= 0 || fcntl(2, F_GETFD) >= 0)
			_exit(3);
		if (tidl_list(client, NULL, &listing) != 0)
			_exit(4);
		_exit(0);
	}
	assert_child(pid);
	cr_assert_eq(tt_broker_find(&broker), 1);
	tt_broker_stop(&broker);
}

TT_TEST(autostart, with_children_ignored, .timeout = 60)
{
	struct tt_broker broker;
	struct tidl_client *client;

	tt_broker_prepare(&broker);
	(void)signal(SIGCHLD, SIG_IGN);
	cr_assert_eq(connect_anywhere(&client), 0, "%s", tidl_last_error());
	(void)signal(SIGCHLD, SIG_DFL);
	cr_assert_eq(waitpid(-1, NULL, WNOHANG), -1, "no child is left");
	tidl_disconnect(client);
	cr_assert_eq(tt_broker_find(&broker), 1);
	tt_broker_stop(&broker);
}

TT_TEST(autostart, leaves_no_child_behind, .timeout = 60)
{
	struct tt_broker broker;

	tt_broker_start(&broker);
	cr_assert_eq(waitpid(-1, NULL, WNOHANG), -1);
	tt_broker_stop(&broker);
}

TT_TEST(autostart, the_starters_output_ends_with_the_starter, .timeout = 60)
{
	struct tt_broker broker;
	int output[2];
	char byte;
	pid_t pid;

	tt_broker_prepare(&broker);
	/* Without close-on-exec, as a shell makes them. */
	cr_assert_eq(pipe(output), 0);
	pid = fork();
	if (pid == 0) {
		struct tidl_client *client;

		(void)dup2(output[1], 1);
		(void)dup2(output[1], 2);
		close(output[0]);
		_exit(connect_anywhere(&client) == 0 ? 0 : 1);
	}
	close(output[1]);
	cr_assert_eq(read(output[0], &byte, 1), 0, "nothing was printed, and it ended");
	close(output[0]);
	assert_child(pid);
	cr_assert_eq(tt_broker_find(&broker), 1, "the broker lives on");
	tt_broker_stop(&broker);
}

static void on_signal(int number)
{
	(void)number;
}

/* A terminal whose user does not let go of Ctrl-C while the flag is set. */
static pid_t terminal_start(const atomic_bool *is_pressed)
{
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	(void)signal(SIGINT, SIG_IGN);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		if (atomic_load(is_pressed))
			(void)kill(0, SIGINT);
		(void)sched_yield();
	}
}

enum { CTRL_C_ROUNDS = 30 };

TT_TEST(autostart, ctrl_c_does_not_mean_the_broker, .timeout = 60)
{
	struct sigaction action = {.sa_handler = on_signal};
	struct tt_broker broker;
	struct tidl_client *client;
	atomic_bool *is_pressed = mmap(NULL, sizeof(*is_pressed), PROT_READ | PROT_WRITE,
				       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t terminal;

	cr_assert_neq(is_pressed, MAP_FAILED);
	cr_assert(getpgrp() == getpid() || setpgid(0, 0) == 0);
	cr_assert_eq(sigaction(SIGINT, &action, NULL), 0);
	terminal = terminal_start(is_pressed);
	for (int i = 0; i < CTRL_C_ROUNDS; i++) {
		int r;

		tt_broker_prepare(&broker);
		atomic_store(is_pressed, true);
		r = connect_anywhere(&client);
		atomic_store(is_pressed, false);
		cr_assert_eq(r, 0, "%s", tidl_last_error());
		tidl_disconnect(client);
		cr_assert_eq(tt_broker_find(&broker), 1);
		tt_broker_stop(&broker);
	}
	cr_assert_eq(kill(terminal, SIGKILL), 0);
	cr_assert_eq(waitpid(terminal, NULL, 0), terminal);
	cr_assert_eq(munmap(is_pressed, sizeof(*is_pressed)), 0);
}

static void read_proc(const struct tt_broker *broker, const char *file, char *text, size_t size)
{
	char path[64];
	ssize_t length;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/%s", broker->pid, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	cr_assert_geq(fd, 0);
	length = read(fd, text, size - 1);
	cr_assert_geq(length, 0);
	text[length] = '\0';
	close(fd);
}

static void assert_no_signals(const char *status, const char *field)
{
	const char *line = strstr(status, field);

	cr_assert_not_null(line);
	/* The broker may have its own; none of ours. */
	cr_assert_eq(strtoull(line + strlen(field), NULL, 16) & (1ULL << (SIGUSR2 - 1)), 0, "%s",
		     field);
}

TT_TEST(autostart, the_broker_has_nothing_of_ours, .timeout = 60)
{
	struct tt_broker broker;
	char text[8192];
	char target[64];
	char path[64];
	sigset_t blocked;
	int marker;

	(void)signal(SIGUSR2, SIG_IGN);
	(void)sigemptyset(&blocked);
	(void)sigaddset(&blocked, SIGUSR2);
	(void)sigprocmask(SIG_BLOCK, &blocked, NULL);
	marker = open("/dev/full", O_WRONLY);
	tt_broker_start(&broker);
	for (int fd = 0; fd < 1024; fd++) {
		ssize_t length;

		(void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", broker.pid, fd);
		length = readlink(path, target, sizeof(target) - 1);
		if (length < 0)
			continue;
		target[length] = '\0';
		cr_assert_str_neq(target, "/dev/full");
		cr_assert(fd > 2 || strcmp(target, "/dev/null") == 0, "%d: %s", fd, target);
	}
	(void)snprintf(path, sizeof(path), "/proc/%d/cwd", broker.pid);
	cr_assert_eq(readlink(path, target, sizeof(target)), 1);
	cr_assert_eq(target[0], '/');
	cr_assert_neq(getsid(broker.pid), getsid(0));
	read_proc(&broker, "status", text, sizeof(text));
	assert_no_signals(text, "SigIgn:");
	assert_no_signals(text, "SigBlk:");
	cr_assert_not_null(strstr(text, "SigBlk:\t0000000000000000"));
	close(marker);
	tt_broker_stop(&broker);
}

/* ---- what can go wrong ---- */

static void script_write(const struct tt_broker *broker, const char *body, char path[TDP_PATH_MAX])
{
	int fd;

	(void)snprintf(path, TDP_PATH_MAX, "%s/daemon", broker->folder);
	(void)unlink(path);
	fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0700);
	cr_assert_geq(fd, 0);
	cr_assert_eq(dprintf(fd, "#!/bin/sh\n%s\n", body), (int)(11 + strlen(body)));
	close(fd);
}

TT_TEST(autostart, failures_say_why, .timeout = 60)
{
	static const struct {
		const char *body;
		int expected;
		const char *text;
	} cases[] = {
		{"echo 'tidld: the moon is full'; exit 1", TIDL_ERR_AUTOSTART, "the moon is full"},
		{"echo 'tidld: said on stderr' >&2; exit 1", TIDL_ERR_AUTOSTART, "said on stderr"},
		{"exit 1", TIDL_ERR_AUTOSTART, "without a word"},
		{"echo already", TIDL_ERR_AUTOSTART, "already"},
		/* Says it is ready, but nobody listens. */
		{"echo ready", TIDL_ERR_BROKER_GONE, "ended as soon"},
		{"echo warning; echo ready", TIDL_ERR_BROKER_GONE, "ended as soon"},
		{"head -c 100000 /dev/zero | tr '\\0' x", TIDL_ERR_AUTOSTART, "xxxx"},
	};
	struct tt_broker broker;
	struct tidl_client *client = NULL;
	char path[TDP_PATH_MAX];

	tt_broker_prepare(&broker);
	for (size_t i = 0; i < TDP_ARRAY_LENGTH(cases); i++) {
		script_write(&broker, cases[i].body, path);
		cr_assert_eq(setenv("TIDL_DAEMON", path, 1), 0);
		cr_assert_eq(connect_anywhere(&client), cases[i].expected, "case %zu: %s", i,
			     tidl_last_error());
		cr_assert_not_null(strstr(tidl_last_error(), cases[i].text), "case %zu: %s", i,
				   tidl_last_error());
	}
	cr_assert_eq(setenv("TIDL_DAEMON", "/nowhere/tidld", 1), 0);
	cr_assert_eq(connect_anywhere(&client), TIDL_ERR_AUTOSTART);
	cr_assert_not_null(strstr(tidl_last_error(), "/nowhere/tidld"));
	cr_assert_null(client);
	tt_broker_stop(&broker);
}

TT_TEST(autostart, a_daemon_that_hangs_runs_into_the_deadline, .timeout = 60)
{
	struct tt_broker broker;
	char path[TDP_PATH_MAX];
	char gate[TDP_PATH_MAX];
	char body[TDP_PATH_MAX + 16];
	char address[TDP_PATH_MAX];
	struct tdc_patience patience = {.deadline = 0};
	struct tdp_fault fault;
	struct tidl_connect_options options = {.size = sizeof(options), .no_autostart = 1};
	struct tidl_client *client;
	siginfo_t info;
	int fd;

	tt_broker_prepare(&broker);
	(void)snprintf(gate, sizeof(gate), "%s/gate", broker.folder);
	cr_assert_eq(mkfifo(gate, 0600), 0);
	(void)snprintf(body, sizeof(body), "cat %s", gate);
	script_write(&broker, body, path);
	cr_assert_eq(setenv("TIDL_DAEMON", path, 1), 0);
	patience.deadline = tdc_now_ms() + 50;
	cr_assert_eq(tdc_autostart(NULL, &patience, address, &fault), TIDL_ERR_TIMEOUT);
	tdc_autostart_collect();
	/* It ends later, and is collected by whatever call comes next. */
	fd = open(gate, O_WRONLY | O_CLOEXEC);
	cr_assert_geq(fd, 0);
	close(fd);
	cr_assert_eq(waitid(P_ALL, 0, &info, WEXITED | WNOWAIT), 0);
	cr_assert_eq(tidl_connect(&options, &client), TIDL_ERR_NO_BROKER);
	cr_assert_eq(waitpid(-1, NULL, WNOHANG), -1, "no child is left");
	tt_broker_stop(&broker);
}

TT_TEST(autostart, only_where_it_is_allowed, .timeout = 60)
{
	struct tt_broker broker;
	struct tidl_connect_options options = {.size = sizeof(options), .no_autostart = 1};
	struct tidl_client *client = NULL;

	tt_broker_prepare(&broker);
	cr_assert_eq(tidl_connect(&options, &client), TIDL_ERR_NO_BROKER);
	options.no_autostart = 0;
	options.address = broker.address;
	cr_assert_eq(tidl_connect(&options, &client), TIDL_ERR_NO_BROKER);
	options.address = NULL;
	cr_assert_eq(setenv("TIDL_SOCKET", broker.address, 1), 0);
	cr_assert_eq(tidl_connect(&options, &client), TIDL_ERR_NO_BROKER);
	cr_assert_not_null(strstr(tidl_last_error(), broker.address));
	cr_assert_eq(unsetenv("TIDL_SOCKET"), 0);
	cr_assert_eq(tt_broker_find(&broker), 0);
	tt_broker_stop(&broker);
}

TT_TEST(autostart, a_package_can_bring_its_own_daemon, .timeout = 60)
{
	struct tt_broker broker;
	struct tidl_connect_options options = {.size = sizeof(options), .timeout_ms = 30000};
	struct tidl_client *client = NULL;
	char *daemon;

	tt_broker_prepare(&broker);
	daemon = strdup(getenv("TIDL_DAEMON"));
	options.daemon_path = daemon;
	cr_assert_eq(setenv("TIDL_DAEMON", "/bin/false", 1), 0);
	cr_assert_eq(tidl_connect(&options, &client), TIDL_ERR_AUTOSTART, "the environment rules");
	cr_assert_eq(unsetenv("TIDL_DAEMON"), 0);
	cr_assert_eq(tidl_connect(&options, &client), 0, "%s", tidl_last_error());
	tidl_disconnect(client);
	cr_assert_eq(tt_broker_find(&broker), 1);
	free(daemon);
	tt_broker_stop(&broker);
}

/* As a user without a runtime folder, which is then in /tmp. */
enum { HOMELESS_UID = 61234 };

TT_TEST(autostart, without_a_runtime_folder, .timeout = 60)
{
	struct tt_broker broker;
	pid_t pid;
	int status;

	if (geteuid() != 0)
		cr_skip_test("only root can become somebody else");
	tt_broker_prepare(&broker);
	(void)rmdir(broker.folder);
	(void)snprintf(broker.folder, sizeof(broker.folder), "/tmp/tidl-%d", HOMELESS_UID);
	(void)snprintf(broker.address, sizeof(broker.address), "%s/tidl/private.sock",
		       broker.folder);
	pid = fork();
	if (pid == 0) {
		struct tidl_client *client;

		if (setresuid(HOMELESS_UID, HOMELESS_UID, HOMELESS_UID) < 0)
			_exit(1);
		(void)unsetenv("XDG_RUNTIME_DIR");
		if (access(getenv("TIDL_DAEMON"), X_OK) < 0)
			_exit(77);
		if (connect_anywhere(&client) != 0)
			_exit(2);
		_exit(strcmp(tidl_broker(client)->address, broker.address) == 0 ? 0 : 3);
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		cr_skip_test("tidld lies where other users cannot reach it");
	cr_assert_eq(WEXITSTATUS(status), 0);
	cr_assert_eq(tt_broker_find(&broker), 1);
	tt_broker_stop(&broker);
}
