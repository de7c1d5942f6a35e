/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_PEER_H
#define TDD_PEER_H

#include <stdint.h>

#include "proto/base/attr.h"
#include "proto/base/fault.h"

/* Who is at the other end of a socket, in the kernel's words, as of its connect(). */
struct tdd_peer {
	uint32_t uid;
	uint32_t gid;
	int64_t pid; /* 0: in no pid namespace that the broker can see */
	uint32_t group_count;
	uint32_t *groups; /* supplementary ones; owned */
	int pidfd;	  /* owned; -1: the process cannot be watched */
};

/* Returns 0, or TIDL_ERR_NO_MEMORY, _DESCRIPTORS, _SYSTEM, or TIDL_ERR_CLOSED when the process has
 * gone already. */
int tdd_peer_identify(int socket_fd, struct tdd_peer *ret_peer,
		      struct tdp_fault *fault) TDP_MUST_CHECK;
void tdd_peer_deinit(struct tdd_peer *peer);

/* The uid that the kernel shows for peers whose own has no mapping here: it stands for many. */
uint32_t tdd_peer_overflow_uid(void);

#endif
