/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDP_BASE_FD_H
#define TDP_BASE_FD_H

#include "proto/base/attr.h"

/* Close a descriptor if it is one; errno is kept. Returns -1, so that `fd = tdp_fd_close(fd)`. */
int tdp_fd_close(int fd);

/* Take a descriptor out of a variable, leaving -1. */
static inline int tdp_fd_steal(int *fd)
{
	int stolen = *fd;

	*fd = -1;
	return stolen;
}

static inline void tdp_fd_closep(int *fd)
{
	*fd = tdp_fd_close(*fd);
}

/* A descriptor that is closed when the variable goes out of scope. */
#define tdp_auto_fd TDP_CLEANUP(tdp_fd_closep) int

#endif
