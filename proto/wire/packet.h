/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDP_WIRE_PACKET_H
#define TDP_WIRE_PACKET_H

#include <stddef.h>
#include <stdint.h>

#include "proto/base/attr.h"
#include "proto/wire/fdset.h"

/*
 * One packet over a SOCK_SEQPACKET socket, with its descriptors. No protobuf here and no loop: the
 * daemon and the blocking client both call these two functions.
 */

/*
 * Send without blocking and without SIGPIPE. Returns 0, or a negative errno: -EAGAIN (socket full),
 * -ETOOMANYREFS (descriptors in flight), anything else means that the connection is over.
 */
int tdp_packet_send(int socket_fd, const void *bytes, size_t size_bytes, const int *fds,
		    uint32_t fd_count) TDP_MUST_CHECK;

/*
 * Receive without blocking; descriptors are close-on-exec. @buffer holds TDP_PACKET_MAX_BYTES.
 * Returns 0 and the size (> 0) in @ret_size_bytes, or a negative errno:
 *   -EAGAIN      nothing there
 *   -ECONNRESET  the peer is gone (end of file included)
 *   -EMSGSIZE    the packet was larger than allowed
 *   -EMFILE      descriptors were sent but none or not all arrived (own limit, or refused by a
 *                security module). @ret_size_bytes still tells the size of the data, which did
 *                arrive, so that a client can find out which call failed
 *   -EPROTO      foreign ancillary data
 * @fds is initialised here. Whatever the result, it holds the descriptors that did arrive and the
 * caller closes them, where it can bear that closing takes long (a FUSE file can hang it).
 */
int tdp_packet_receive(int socket_fd, void *buffer, struct tdp_fdset *fds,
		       size_t *ret_size_bytes) TDP_MUST_CHECK;

#endif
