/* SPDX-License-Identifier: Apache-2.0 */
/* The bare server and its client's side: nothing but sendmsg and recvmsg. */
#include "tests/bench/floor.h"

#include <err.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FLOOR_PACKET_BYTES = 64, FLOOR_PING = 0xff };

static int payload_create(uint64_t size_bytes)
{
	int fd = memfd_create("tidl-bench-floor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	char *memory;

	if (fd < 0 || ftruncate(fd, (off_t)size_bytes) < 0)
		err(1, "memfd");
	memory = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		err(1, "mmap");
	memset(memory, 1, size_bytes);
	munmap(memory, size_bytes);
	return fd;
}

static void packet_send(int socket, char *packet, int fd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec iov = {.iov_base = packet, .iov_len = FLOOR_PACKET_BYTES};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};

	if (fd >= 0) {
		struct cmsghdr *header;

		message.msg_control = control.bytes;
		message.msg_controllen = sizeof(control.bytes);
		header = CMSG_FIRSTHDR(&message);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	}
	if (sendmsg(socket, &message, MSG_NOSIGNAL) != FLOOR_PACKET_BYTES)
		err(1, "floor: sendmsg");
}

/* False at the end of the connection. */
static bool packet_receive(int socket, char *packet, int *ret_fd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov = {.iov_base = packet, .iov_len = FLOOR_PACKET_BYTES};
	struct msghdr message = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes),
	};
	struct cmsghdr *header;
	ssize_t received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);

	if (received < 0)
		err(1, "floor: recvmsg");
	*ret_fd = -1;
	header = CMSG_FIRSTHDR(&message);
	if (header && header->cmsg_type == SCM_RIGHTS)
		memcpy(ret_fd, CMSG_DATA(header), sizeof(*ret_fd));
	return received == FLOOR_PACKET_BYTES;
}

static void server_run(int socket, const uint64_t *sizes_bytes, size_t size_count)
{
	int payloads[BENCH_FLOOR_SIZES_MAX];
	char packet[FLOOR_PACKET_BYTES];
	int fd;

	for (size_t i = 0; i < size_count; i++)
		payloads[i] = payload_create(sizes_bytes[i]);
	while (packet_receive(socket, packet, &fd)) {
		unsigned char which = (unsigned char)packet[0];

		packet_send(socket, packet, which < size_count ? payloads[which] : -1);
	}
}

void bench_floor_start(struct bench_floor *floor, const uint64_t *sizes_bytes, size_t size_count)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		err(1, "socketpair");
	floor->server = fork();
	if (floor->server < 0)
		err(1, "fork");
	if (floor->server == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pair[0]);
		server_run(pair[1], sizes_bytes, size_count);
		_exit(0);
	}
	close(pair[1]);
	floor->socket = pair[0];
	bench_floor_ping(floor); /* the payloads are filled from here on */
}

void bench_floor_stop(struct bench_floor *floor)
{
	close(floor->socket);
	waitpid(floor->server, NULL, 0);
}

static int floor_exchange(struct bench_floor *floor, unsigned char which)
{
	char packet[FLOOR_PACKET_BYTES] = {(char)which};
	int fd;

	packet_send(floor->socket, packet, -1);
	if (!packet_receive(floor->socket, packet, &fd))
		errx(1, "floor: the server is gone");
	return fd;
}

void bench_floor_ping(struct bench_floor *floor)
{
	floor_exchange(floor, FLOOR_PING);
}

int bench_floor_fetch(struct bench_floor *floor, size_t index)
{
	return floor_exchange(floor, (unsigned char)index);
}
