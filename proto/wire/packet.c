/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One packet out or in. Knows neither messages nor sessions, keeps no state and never waits. Libuv
 * passes descriptors only as its own typed handles, so both sides call the kernel here.
 */
#include "proto/wire/packet.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "proto/base/fd.h"

enum {
	CONTROL_FDS_BYTES = CMSG_SPACE(TDP_PACKET_MAX_FDS * sizeof(int)),
	/* Room for what we never ask for, so that it is recognised instead of cutting off ours. */
	CONTROL_FOREIGN_BYTES = 256,
};

int tdp_packet_send(int socket_fd, const void *bytes, size_t size_bytes, const int *fds,
		    uint32_t fd_count)
{
	_Alignas(struct cmsghdr) unsigned char control[CONTROL_FDS_BYTES];
	struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = size_bytes};
	struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
	ssize_t sent;

	if (size_bytes == 0 || fd_count > TDP_PACKET_MAX_FDS)
		return -EINVAL;
	if (size_bytes > TDP_PACKET_MAX_BYTES)
		return -EMSGSIZE;
	if (fd_count > 0) {
		struct cmsghdr *rights = (struct cmsghdr *)control;

		memset(control, 0, CMSG_SPACE(fd_count * sizeof(int)));
		rights->cmsg_level = SOL_SOCKET;
		rights->cmsg_type = SCM_RIGHTS;
		rights->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
		memcpy(CMSG_DATA(rights), fds, fd_count * sizeof(int));
		header.msg_control = control;
		header.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
	}
	do {
		sent = sendmsg(socket_fd, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
	} while (sent < 0 && errno == EINTR);
	return sent < 0 ? -errno : 0;
}

/* Take over every descriptor; true when there was nothing but descriptors. */
static bool control_collect(struct msghdr *header, struct tdp_fdset *set)
{
	bool is_pure = true;

	for (struct cmsghdr *item = CMSG_FIRSTHDR(header); item != NULL;
	     item = CMSG_NXTHDR(header, item)) {
		size_t count = (item->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_RIGHTS) {
			is_pure = false;
			continue;
		}
		for (size_t i = 0; i < count; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(item) + i * sizeof(int), sizeof(int));
			if (set->count == TDP_PACKET_MAX_FDS) {
				(void)tdp_fd_close(fd);
				is_pure = false;
			} else {
				set->fds[set->count++] = fd;
			}
		}
	}
	return is_pure;
}

int tdp_packet_receive(int socket_fd, void *buffer, struct tdp_fdset *fds, size_t *ret_size_bytes)
{
	_Alignas(struct cmsghdr) unsigned char control[CONTROL_FDS_BYTES + CONTROL_FOREIGN_BYTES];
	struct iovec part = {.iov_base = buffer, .iov_len = TDP_PACKET_MAX_BYTES};
	struct msghdr header = {.msg_iov = &part,
				.msg_iovlen = 1,
				.msg_control = control,
				.msg_controllen = sizeof(control)};
	ssize_t received;
	bool is_pure;

	tdp_fdset_init(fds);
	do {
		received = recvmsg(socket_fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	} while (received < 0 && errno == EINTR);
	if (received < 0)
		return -errno;
	is_pure = control_collect(&header, fds);
	/* An empty packet looks the same as the end of the connection, and nobody sends one. */
	if (received == 0)
		return -ECONNRESET;
	if ((header.msg_flags & MSG_TRUNC) != 0)
		return -EMSGSIZE;
	if (!is_pure)
		return -EPROTO;
	*ret_size_bytes = (size_t)received;
	return (header.msg_flags & MSG_CTRUNC) != 0 ? -EMFILE : 0;
}
