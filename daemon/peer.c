/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Identification of peers. The pidfd is polled beside the socket, because a forked child can keep a
 * dead parent's socket open, and because a hang-up comes only after the dead process's memory has
 * been torn down.
 */
#include "daemon/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/base/fd.h"
#include "proto/base/kernel.h"

/* Linux 6.5; the C library's headers are older. */
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

enum { OVERFLOW_UID_DEFAULT = 65534 };

void tdd_peer_deinit(struct tdd_peer *peer)
{
	peer->pidfd = tdp_fd_close(peer->pidfd);
	free(peer->groups);
	peer->groups = NULL;
	peer->group_count = 0;
}

static int peer_read_groups(int socket_fd, struct tdd_peer *peer, struct tdp_fault *fault)
{
	socklen_t size = 0;

	/* The groups were recorded at connect() and do not change; ERANGE tells their size. */
	if (getsockopt(socket_fd, SOL_SOCKET, SO_PEERGROUPS, NULL, &size) == 0 || size == 0)
		return 0;
	if (errno != ERANGE)
		return tdp_fault_errno(fault, errno, "cannot ask for a peer's groups");
	peer->groups = malloc(size);
	if (!peer->groups)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	if (getsockopt(socket_fd, SOL_SOCKET, SO_PEERGROUPS, peer->groups, &size) < 0)
		return tdp_fault_errno(fault, errno, "cannot ask for a peer's groups");
	peer->group_count = (uint32_t)(size / sizeof(*peer->groups));
	return 0;
}

static bool peer_has_hung_up(int socket_fd)
{
	struct pollfd poll_fd = {.fd = socket_fd, .events = 0};

	return poll(&poll_fd, 1, 0) == 1 && poll_fd.revents & (POLLHUP | POLLERR);
}

static int fault_gone(struct tdp_fault *fault)
{
	return tdp_fault_set(fault, TIDL_ERR_CLOSED, "the process has ended");
}

/* Before SO_PEERPIDFD: the number may have been given to another process since. It has not while
 * the socket is up, unless a forked child keeps that; then hang-up is all there is to watch. */
static int peer_open_pidfd_by_number(int socket_fd, struct tdd_peer *peer, struct tdp_fault *fault)
{
	int pidfd = (int)syscall(SYS_pidfd_open, (pid_t)peer->pid, 0);

	if (pidfd < 0 && errno == ESRCH)
		return fault_gone(fault);
	if (pidfd < 0)
		return tdp_fault_errno(fault, errno, "cannot watch process %" PRId64, peer->pid);
	if (peer_has_hung_up(socket_fd)) {
		tdp_fd_close(pidfd);
		return fault_gone(fault);
	}
	peer->pidfd = pidfd;
	return 0;
}

static int peer_open_pidfd(int socket_fd, struct tdd_peer *peer, struct tdp_fault *fault)
{
	socklen_t size = sizeof(peer->pidfd);
	int pidfd = -1;

	if (peer->pid <= 0)
		return 0;
	if (tdp_kernel_has(TDP_KERNEL_PEERPIDFD)) {
		if (getsockopt(socket_fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) == 0) {
			peer->pidfd = pidfd;
			return 0;
		}
		/* ESRCH: reaped before we asked. ENODATA, EINVAL: the same, as told since 6.16. */
		if (errno == ESRCH || errno == ENODATA || errno == EINVAL)
			return fault_gone(fault);
		if (errno != ENOPROTOOPT)
			return tdp_fault_errno(fault, errno, "cannot watch process %" PRId64,
					       peer->pid);
		tdp_kernel_forget(TDP_KERNEL_PEERPIDFD);
	}
	return peer_open_pidfd_by_number(socket_fd, peer, fault);
}

int tdd_peer_identify(int socket_fd, struct tdd_peer *ret_peer, struct tdp_fault *fault)
{
	struct tdd_peer peer = {.pidfd = -1};
	struct ucred credentials;
	socklen_t size = sizeof(credentials);
	int r;

	if (getsockopt(socket_fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) < 0)
		return tdp_fault_errno(fault, errno, "cannot ask for a peer's credentials");
	peer.uid = credentials.uid;
	peer.gid = credentials.gid;
	peer.pid = credentials.pid;
	r = peer_read_groups(socket_fd, &peer, fault);
	if (r == 0)
		r = peer_open_pidfd(socket_fd, &peer, fault);
	if (r < 0) {
		tdd_peer_deinit(&peer);
		return r;
	}
	*ret_peer = peer;
	return 0;
}

uint32_t tdd_peer_overflow_uid(void)
{
	tdp_auto_fd fd = open("/proc/sys/kernel/overflowuid", O_RDONLY | O_CLOEXEC);
	char text[16] = "";
	unsigned long uid;
	char *end;

	if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
		return OVERFLOW_UID_DEFAULT;
	uid = strtoul(text, &end, 10);
	return end == text ? OVERFLOW_UID_DEFAULT : (uint32_t)uid;
}
