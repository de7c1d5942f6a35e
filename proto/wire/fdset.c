/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The descriptors of one packet, between the socket and whoever takes them. Knows nothing of what
 * they are.
 */
#include "proto/wire/fdset.h"

#include "proto/base/fd.h"

void tdp_fdset_deinit(struct tdp_fdset *set)
{
	for (uint32_t i = 0; i < set->count; i++)
		set->fds[i] = tdp_fd_close(set->fds[i]);
	set->count = 0;
}

int tdp_fdset_steal(struct tdp_fdset *set, uint32_t index)
{
	if (index >= set->count)
		return -1;
	return tdp_fd_steal(&set->fds[index]);
}
