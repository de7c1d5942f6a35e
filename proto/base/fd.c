/* SPDX-License-Identifier: Apache-2.0 */
/* Closing of descriptors. Owns nothing. */
#include "proto/base/fd.h"

#include <errno.h>
#include <unistd.h>

int tdp_fd_close(int fd)
{
	int saved_errno = errno;

	/* Linux frees the number even when close() reports EINTR: a second try would hit another
	 * thread's descriptor. */
	if (fd >= 0)
		(void)close(fd);
	errno = saved_errno;
	return -1;
}
