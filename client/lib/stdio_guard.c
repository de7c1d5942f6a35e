/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the library's descriptors away from the standard ones. */
#include "client/lib/stdio_guard.h"

#include <fcntl.h>
#include <unistd.h>

#include "proto/base/fd.h"

int tdc_above_stdio(int fd)
{
	int moved;

	if (fd < 0 || fd > STDERR_FILENO)
		return fd;
	moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	(void)tdp_fd_close(fd);
	return moved;
}
