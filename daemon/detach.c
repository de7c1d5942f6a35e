/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of detaching; main() runs the set-up between them. */
#include "daemon/detach.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

#include "proto/base/fd.h"

void tdd_detach_signals(void)
{
	static const int numbers[] = {SIGINT, SIGQUIT, SIGTSTP, SIGHUP, SIGTERM};
	sigset_t none;

	/* A signal that is ignored for a moment is not pending any more. */
	for (size_t i = 0; i < TDP_ARRAY_LENGTH(numbers); i++) {
		(void)signal(numbers[i], SIG_IGN);
		(void)signal(numbers[i], SIG_DFL);
	}
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
}

__attribute__((noreturn)) static void parent_wait(int report_fd)
{
	char byte;
	ssize_t size;

	do {
		size = read(report_fd, &byte, sizeof(byte));
	} while (size < 0 && errno == EINTR);
	if (size == 1)
		puts("ready");
	/* Only what the parent itself wrote is flushed: the child keeps everything else. */
	fflush(stdout);
	_exit(size == 1 ? EXIT_SUCCESS : EXIT_FAILURE);
}

int tdd_detach_fork(int *ret_report_fd, struct tdp_fault *fault)
{
	int report[2];
	pid_t pid;

	if (pipe2(report, O_CLOEXEC) < 0)
		return tdp_fault_errno(fault, errno, "cannot make a pipe");
	pid = fork();
	if (pid < 0) {
		int fork_errno = errno;

		tdp_fd_close(report[0]);
		tdp_fd_close(report[1]);
		return tdp_fault_errno(fault, fork_errno, "cannot fork");
	}
	if (pid > 0) {
		tdp_fd_close(report[1]);
		parent_wait(report[0]);
	}
	tdp_fd_close(report[0]);
	*ret_report_fd = report[1];
	return 0;
}

int tdd_detach_ready(int report_fd, struct tdp_fault *fault)
{
	tdp_auto_fd report = report_fd;
	tdp_auto_fd null = open("/dev/null", O_RDWR | O_CLOEXEC | O_NOCTTY);

	if (null < 0)
		return tdp_fault_errno(fault, errno, "cannot open /dev/null");
	/* Fails when the starter has made us a session leader already. */
	(void)setsid();
	if (chdir("/") < 0)
		return tdp_fault_errno(fault, errno, "cannot go to /");
	if (dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0 ||
	    dup2(null, STDERR_FILENO) < 0)
		return tdp_fault_errno(fault, errno, "cannot let go of the terminal");
	if (null <= STDERR_FILENO)
		(void)tdp_fd_steal(&null);
	if (write(report, "", 1) != 1)
		return tdp_fault_errno(fault, errno, "the starter has gone");
	return 0;
}
