/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting a private broker. tidld itself takes the start lock, so however many start one at once,
 * one stays and the others report it. tidld --detach says `ready` when it listens, or one sentence
 * why it cannot, and exits; what stays behind holds nothing of ours: own session, no descriptors,
 * no terminal, default signals.
 */
#include "client/lib/autostart.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/lib/deadline.h"
#include "client/lib/stdio_guard.h"
#include "proto/base/fd.h"

enum { ANSWER_MAX_BYTES = 400 };

/* Children of calls that were given up; nobody gives up more within the time that one takes. */
enum { LEFT_MAX = 16 };

static const char private_socket[] = "private.sock";
static const char answer_ready[] = "ready";

/* What terminals and shells send to a whole process group. */
static const int group_signals[] = {SIGINT, SIGQUIT, SIGTSTP, SIGHUP, SIGTERM};

/* $TIDL_DAEMON is an order; the other places are searched. Never $PATH. */
static const char *daemon_find(const char *given)
{
	const char *configured = secure_getenv("TIDL_DAEMON");

	if (configured != NULL && configured[0] != '\0')
		return configured;
	if (given != NULL && access(given, X_OK) == 0)
		return given;
	return TIDL_DAEMON_DEFAULT_PATH;
}

/*
 * Dispositions and mask of the caller would otherwise reach the broker: nohup, SIGCHLD ignored.
 * Until its setsid() the child belongs to our process group. Ctrl-C and its like mean us and not
 * the broker, so they stay blocked, and tidld --detach drops those that came.
 */
static int spawn_set_attributes(posix_spawnattr_t *attributes)
{
	sigset_t all, ours;
	int error;

	(void)sigfillset(&all);
	(void)sigemptyset(&ours);
	for (size_t i = 0; i < TDP_ARRAY_LENGTH(group_signals); i++)
		(void)sigaddset(&ours, group_signals[i]);
	error = posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF |
							     POSIX_SPAWN_SETSIGMASK);
	if (error == 0)
		error = posix_spawnattr_setsigdefault(attributes, &all);
	if (error == 0)
		error = posix_spawnattr_setsigmask(attributes, &ours);
	return error;
}

/* stdin from nowhere, stdout and stderr into the pipe, everything else closed. */
static int spawn_set_actions(posix_spawn_file_actions_t *actions, int output_fd)
{
	int error = posix_spawn_file_actions_addchdir_np(actions, "/");

	if (error == 0)
		error = posix_spawn_file_actions_adddup2(actions, output_fd, STDOUT_FILENO);
	if (error == 0)
		error = posix_spawn_file_actions_adddup2(actions, STDOUT_FILENO, STDERR_FILENO);
	if (error == 0)
		error = posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null",
							 O_RDONLY, 0);
	if (error == 0)
		error = posix_spawn_file_actions_addclosefrom_np(actions, STDERR_FILENO + 1);
	return error;
}

static int daemon_spawn_prepared(const char *program, const char *socket_path,
				 const posix_spawn_file_actions_t *actions,
				 const posix_spawnattr_t *attributes, pid_t *ret_pid)
{
	const char *arguments[] = {"tidld", "--private", "--detach", "--socket", socket_path, NULL};

	/* The array is of char * by an old mistake of the interface; nobody writes to it. */
	return posix_spawn(ret_pid, program, actions, attributes, (char **)(uintptr_t)arguments,
			   environ);
}

/* Returns 0 or an errno value. */
static int daemon_spawn(const char *program, const char *socket_path, int output_fd, pid_t *ret_pid)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	int error = posix_spawn_file_actions_init(&actions);

	if (error != 0)
		return error;
	error = posix_spawnattr_init(&attributes);
	if (error == 0) {
		error = spawn_set_attributes(&attributes);
		if (error == 0)
			error = spawn_set_actions(&actions, output_fd);
		if (error == 0)
			error = daemon_spawn_prepared(program, socket_path, &actions, &attributes,
						      ret_pid);
		(void)posix_spawnattr_destroy(&attributes);
	}
	(void)posix_spawn_file_actions_destroy(&actions);
	return error;
}

static int answer_missing(int code, const char *program, struct tdp_fault *fault)
{
	if (code == TIDL_ERR_TIMEOUT)
		return tdp_fault_set(fault, code,
				     "%s did not start in time: check the machine's load, or "
				     "start it yourself",
				     program);
	return tdp_fault_code(fault, code);
}

/* Everything the daemon prints until it closes its end, which it does when it is ready. */
static int answer_read(int fd, const char *program, const struct tdc_patience *patience,
		       char *ret_answer, struct tdp_fault *fault)
{
	size_t length = 0;
	char discarded[ANSWER_MAX_BYTES];

	for (;;) {
		bool is_full = length == ANSWER_MAX_BYTES;
		ssize_t received;
		int r = tdc_wait_readable(fd, patience);

		if (r < 0)
			return answer_missing(r, program, fault);
		received = read(fd, is_full ? discarded : ret_answer + length,
				is_full ? sizeof(discarded) : ANSWER_MAX_BYTES - length);
		if (received < 0 && errno == EINTR)
			continue;
		if (received <= 0)
			break;
		if (!is_full)
			length += (size_t)received;
	}
	ret_answer[length] = '\0';
	return 0;
}

/* ---- the child that says ready ---- */

/*
 * Those that had not ended when their caller gave up. They are collected later, since a zombie
 * stays for as long as this process. By descriptor: a number may be another child's by then.
 * Only ever tried to lock, because a fork() may have left it locked for good.
 */
static pthread_mutex_t left_lock = PTHREAD_MUTEX_INITIALIZER;
static int left_pidfds[LEFT_MAX];
static size_t left_count;

/* Where SIGCHLD is ignored, or somebody waits for all children, it is gone already, and in a forked
 * child it is nobody's. Its status does not matter. */
static bool child_collect(int pidfd)
{
	siginfo_t info = {.si_pid = 0};

	return waitid(P_PIDFD, (id_t)pidfd, &info, WEXITED | WNOHANG) < 0 || info.si_pid != 0;
}

static void child_leave(int pidfd)
{
	if (pthread_mutex_trylock(&left_lock) == 0) {
		if (left_count < LEFT_MAX) {
			left_pidfds[left_count++] = pidfd;
			pidfd = -1;
		}
		(void)pthread_mutex_unlock(&left_lock);
	}
	(void)tdp_fd_close(pidfd);
}

void tdc_autostart_collect(void)
{
	size_t count = 0;

	if (pthread_mutex_trylock(&left_lock) != 0)
		return;
	for (size_t i = 0; i < left_count; i++) {
		if (child_collect(left_pidfds[i]))
			(void)tdp_fd_close(left_pidfds[i]);
		else
			left_pidfds[count++] = left_pidfds[i];
	}
	left_count = count;
	(void)pthread_mutex_unlock(&left_lock);
}

/* Takes the descriptor over; there is none where they are used up. */
static void child_reap(pid_t pid, int pidfd, const struct tdc_patience *patience)
{
	if (pidfd < 0) {
		(void)waitpid(pid, NULL, WNOHANG);
		return;
	}
	if (tdc_wait_readable(pidfd, patience) < 0) {
		child_leave(pidfd);
		return;
	}
	(void)child_collect(pidfd);
	(void)tdp_fd_close(pidfd);
}

/* ---- starting it ---- */

static int answer_check(char *answer, const char *program, struct tdp_fault *fault)
{
	char *line = strstr(answer, answer_ready);

	/* As a line of its own, since a warning may come before it. */
	if (line != NULL && (line == answer || line[-1] == '\n') &&
	    (line[strlen(answer_ready)] == '\n' || line[strlen(answer_ready)] == '\0'))
		return 0;
	answer[strcspn(answer, "\n")] = '\0';
	return tdp_fault_set(fault, TIDL_ERR_AUTOSTART, "%s could not start: %s", program,
			     answer[0] != '\0' ? answer : "it ended without a word");
}

static int daemon_run(const char *program, const char *socket_path,
		      const struct tdc_patience *patience, struct tdp_fault *fault)
{
	const struct tdc_patience none = {.deadline = tdc_now_ms()};
	char answer[ANSWER_MAX_BYTES + 1];
	int ends[2];
	tdp_auto_fd read_end = -1;
	tdp_auto_fd write_end = -1;
	pid_t pid;
	int pidfd;
	int r;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return tdp_fault_errno(fault, errno, "cannot create a pipe");
	read_end = tdc_above_stdio(ends[0]);
	write_end = tdc_above_stdio(ends[1]);
	if (read_end < 0 || write_end < 0)
		return tdp_fault_errno(fault, errno, "cannot create a pipe");
	r = daemon_spawn(program, socket_path, write_end, &pid);
	if (r != 0)
		return tdp_fault_set(fault, TIDL_ERR_AUTOSTART,
				     "%s could not be run (%s): set TIDL_DAEMON to the path of "
				     "tidld, or start it yourself",
				     program, strerrordesc_np(r));
	tdp_fd_closep(&write_end);
	/* glibc has a function for it from 2.36 on, and a wheel that called it would need that. */
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	r = answer_read(read_end, program, patience, answer, fault);
	child_reap(pid, pidfd, r < 0 ? &none : patience);
	return r < 0 ? r : answer_check(answer, program, fault);
}

int tdc_autostart(const char *daemon_path, const struct tdc_patience *patience,
		  char ret_path[TDP_PATH_MAX], struct tdp_fault *fault)
{
	char folder[TDP_PATH_MAX];
	char path[TDP_PATH_MAX];
	int r = tdp_paths_runtime_folder(1, folder, fault);

	/* The folder around it is missing; the caller asked for a broker, not for a folder. */
	if (r == TIDL_ERR_NOT_FOUND) {
		fault->code = TIDL_ERR_AUTOSTART;
		return fault->code;
	}
	if (r == 0)
		r = tdp_paths_join(folder, private_socket, path, fault);
	if (r == 0)
		r = daemon_run(daemon_find(daemon_path), path, patience, fault);
	if (r == 0)
		memcpy(ret_path, path, sizeof(path));
	return r;
}
