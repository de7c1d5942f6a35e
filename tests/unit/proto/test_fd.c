/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "proto/base/fd.h"
#include "tests/support/leak.h"

TT_TEST(fd, close_keeps_errno_and_returns_minus_one)
{
	int fd = dup(STDOUT_FILENO);

	errno = EXDEV;
	cr_assert_eq(tdp_fd_close(fd), -1);
	cr_assert_eq(fcntl(fd, F_GETFD), -1);
	errno = EXDEV;
	cr_assert_eq(tdp_fd_close(fd), -1);
	cr_assert_eq(errno, EXDEV);
	cr_assert_eq(tdp_fd_close(-1), -1);
	cr_assert_eq(errno, EXDEV);
}

static int variable_scope(bool is_stolen)
{
	tdp_auto_fd fd = dup(STDOUT_FILENO);
	int number = fd;

	if (is_stolen) {
		cr_assert_eq(tdp_fd_steal(&fd), number);
		cr_assert_eq(fd, -1);
	}
	return number;
}

TT_TEST(fd, closes_at_the_end_of_scope_unless_stolen)
{
	int fd = variable_scope(false);

	cr_assert_eq(fcntl(fd, F_GETFD), -1);
	fd = variable_scope(true);
	cr_assert_neq(fcntl(fd, F_GETFD), -1);
	close(fd);
}
