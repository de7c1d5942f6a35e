/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Closing a socket with unread data makes the peer's next receive fail with ECONNRESET before it
 * gets to what was said last. So let nothing more in, throw away what is there, and close then.
 */
#include "daemon/hangup.h"

#include <sys/socket.h>

#include "daemon/limits.h"
#include "proto/base/fd.h"

void tdd_hang_up(int socket_fd)
{
	char byte;

	shutdown(socket_fd, SHUT_RDWR);
	for (int i = 0; i < TDD_DRAIN_PACKETS; i++) {
		/* Without room for control data the kernel drops descriptors itself, and without
		 * the flush of a close() that can hang. */
		if (recv(socket_fd, &byte, sizeof(byte), MSG_DONTWAIT) <= 0)
			break;
	}
	tdp_fd_close(socket_fd);
}
