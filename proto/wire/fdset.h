/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDP_WIRE_FDSET_H
#define TDP_WIRE_FDSET_H

#include <stdint.h>

#include "proto/base/attr.h"
#include "proto/wire/limits.h"

/*
 * The descriptors of one received packet. They belong to the set until taken out one by one; what
 * nobody took is closed with it.
 */
struct tdp_fdset {
	uint32_t count;
	int fds[TDP_PACKET_MAX_FDS]; /* -1: taken */
};

static inline void tdp_fdset_init(struct tdp_fdset *set)
{
	set->count = 0;
}

/* Close what is left. */
void tdp_fdset_deinit(struct tdp_fdset *set);

/* Take descriptor @index out; -1 when there is none. */
int tdp_fdset_steal(struct tdp_fdset *set, uint32_t index);

#define tdp_auto_fdset TDP_CLEANUP(tdp_fdset_deinit) struct tdp_fdset

#endif
