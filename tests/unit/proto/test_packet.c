/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/fd.h"
#include "proto/wire/packet.h"
#include "tests/support/leak.h"

static char buffer[TDP_PACKET_MAX_BYTES];

struct pair {
	int sender, receiver;
};

static struct pair pair_open(void)
{
	int fds[2];

	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	return (struct pair){fds[0], fds[1]};
}

static void pair_close(struct pair pair)
{
	(void)tdp_fd_close(pair.sender);
	(void)tdp_fd_close(pair.receiver);
}

static ino_t inode_of(int fd)
{
	struct stat status;

	cr_assert_eq(fstat(fd, &status), 0);
	return status.st_ino;
}

static void expect_round_trip(uint32_t fd_count)
{
	struct pair pair = pair_open();
	int fds[TDP_PACKET_MAX_FDS];
	tdp_auto_fdset set;
	size_t size = 0;

	for (uint32_t i = 0; i < fd_count; i++)
		fds[i] = memfd_create("x", MFD_CLOEXEC);
	cr_assert_eq(tdp_packet_send(pair.sender, "hello", 5, fds, fd_count), 0);
	cr_assert_eq(tdp_packet_receive(pair.receiver, buffer, &set, &size), 0);
	cr_assert_eq(size, 5);
	cr_assert_eq(memcmp(buffer, "hello", 5), 0);
	cr_assert_eq(set.count, fd_count);
	for (uint32_t i = 0; i < fd_count; i++) {
		cr_assert_eq(inode_of(set.fds[i]), inode_of(fds[i]), "in order");
		cr_assert_eq(fcntl(set.fds[i], F_GETFD), FD_CLOEXEC);
		close(fds[i]);
	}
	pair_close(pair);
}

TT_TEST(packet, carries_no_descriptors)
{
	expect_round_trip(0);
}

TT_TEST(packet, carries_one_descriptor)
{
	expect_round_trip(1);
}

TT_TEST(packet, carries_as_many_descriptors_as_the_kernel_allows)
{
	expect_round_trip(TDP_PACKET_MAX_FDS);
}

TT_TEST(packet, keeps_boundaries_and_order)
{
	struct pair pair = pair_open();
	tdp_auto_fdset set;
	size_t size;

	for (unsigned char i = 1; i <= 20; i++) {
		char text[20];

		memset(text, i, sizeof(text));
		cr_assert_eq(tdp_packet_send(pair.sender, text, i, NULL, 0), 0);
	}
	for (unsigned char i = 1; i <= 20; i++) {
		cr_assert_eq(tdp_packet_receive(pair.receiver, buffer, &set, &size), 0);
		cr_assert_eq(size, i);
		cr_assert_eq(buffer[i - 1], i);
	}
	cr_assert_eq(tdp_packet_receive(pair.receiver, buffer, &set, &size), -EAGAIN);
	pair_close(pair);
}

TT_TEST(packet, carries_the_largest_size_and_no_more)
{
	static char large[TDP_PACKET_MAX_BYTES + 1];
	struct pair pair = pair_open();
	tdp_auto_fdset set;
	size_t size;

	memset(large, 'l', sizeof(large));
	cr_assert_eq(tdp_packet_send(pair.sender, large, TDP_PACKET_MAX_BYTES, NULL, 0), 0);
	cr_assert_eq(tdp_packet_receive(pair.receiver, buffer, &set, &size), 0);
	cr_assert_eq(size, TDP_PACKET_MAX_BYTES);
	cr_assert_eq(memcmp(buffer, large, size), 0);
	cr_assert_eq(tdp_packet_send(pair.sender, large, sizeof(large), NULL, 0), -EMSGSIZE);
	cr_assert_eq(tdp_packet_receive(pair.receiver, buffer, &set, &size), -EAGAIN);
	pair_close(pair);
}

TT_TEST(packet, refuses_to_send_nothing_or_too_many_descriptors)
{
	struct pair pair = pair_open();
	int fds[TDP_PACKET_MAX_FDS + 1] = {0};

	cr_assert_eq(tdp_packet_send(pair.sender, "x", 0, NULL, 0), -EINVAL);
	cr_assert_eq(tdp_packet_send(pair.sender, "x", 1, fds, TDP_PACKET_MAX_FDS + 1), -EINVAL);
	pair_close(pair);
}

TT_TEST(packet, larger_packets_of_others_are_an_error_that_keeps_their_descriptors)
{
	static char large[TDP_PACKET_MAX_BYTES + 1];
	struct pair pair = pair_open();
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {.header = {.cmsg_level = SOL_SOCKET,
				.cmsg_type = SCM_RIGHTS,
				.cmsg_len = CMSG_LEN(sizeof(int))}};
	struct iovec part = {.iov_base = large, .iov_len = sizeof(large)};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control)};
	int fd = STDOUT_FILENO;
	tdp_auto_fdset set;
	size_t size = 7;

	memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
	cr_assert_eq(sendmsg(pair.sender, &message, 0), (ssize_t)sizeof(large));
	cr_assert_eq(tdp_packet_receive(pair.receiver, buffer, &set, &size), -EMSGSIZE);
	cr_assert_eq(set.count, 1);
	cr_assert_eq(size, 7);
	pair_close(pair);
}

TT_TEST(packet, end_of_connection_and_empty_packets_are_a_reset)
{
	struct pair pair = pair_open();
	tdp_auto_fdset set;
	size_t size;

	cr_assert_eq(send(pair.sender, "", 0, 0), 0);
	cr_assert_eq(tdp_packet_receive(pair.receiver, buffer, &set, &size), -ECONNRESET);
	cr_assert_eq(tdp_packet_send(pair.sender, "last", 4, NULL, 0), 0);
	pair.sender = tdp_fd_close(pair.sender);
	cr_assert_eq(tdp_packet_receive(pair.receiver, buffer, &set, &size), 0);
	cr_assert_eq(tdp_packet_receive(pair.receiver, buffer, &set, &size), -ECONNRESET);
	/* No SIGPIPE, or the test would end here. */
	cr_assert_eq(tdp_packet_send(pair.receiver, "x", 1, NULL, 0), -EPIPE);
	pair_close(pair);
}

TT_TEST(packet, a_full_socket_is_again_and_loses_nothing)
{
	struct pair pair = pair_open();
	unsigned int sent = 0, received = 0;
	tdp_auto_fdset set;
	size_t size;
	int result;

	while ((result = tdp_packet_send(pair.sender, &sent, sizeof(sent), NULL, 0)) == 0)
		sent++;
	cr_assert_eq(result, -EAGAIN);
	cr_assert_gt(sent, 10);
	while (tdp_packet_receive(pair.receiver, buffer, &set, &size) == 0) {
		cr_assert_eq(memcmp(buffer, &received, sizeof(received)), 0);
		received++;
	}
	cr_assert_eq(received, sent);
	pair_close(pair);
}

TT_TEST(packet, at_the_limit_of_descriptors_the_data_arrive_and_the_loss_is_told)
{
	struct pair pair = pair_open();
	int fds[4] = {STDOUT_FILENO, STDOUT_FILENO, STDOUT_FILENO, STDOUT_FILENO};

	for (int room = 0; room < 4; room++) {
		struct rlimit limit;
		tdp_auto_fdset set;
		size_t size = 0;

		cr_assert_eq(tdp_packet_send(pair.sender, "who", 3, fds, 4), 0);
		tt_descriptor_limit(room, &limit);
		cr_assert_eq(tdp_packet_receive(pair.receiver, buffer, &set, &size), -EMFILE);
		tt_descriptor_limit_restore(&limit);
		cr_assert_eq(size, 3);
		cr_assert_eq(memcmp(buffer, "who", 3), 0);
		cr_assert_eq(set.count, (uint32_t)room);
	}
	pair_close(pair);
}

TT_TEST(packet, room_for_all_descriptors_is_enough)
{
	struct pair pair = pair_open();
	int fds[4] = {STDOUT_FILENO, STDOUT_FILENO, STDOUT_FILENO, STDOUT_FILENO};
	struct rlimit limit;
	tdp_auto_fdset set;
	size_t size = 0;

	cr_assert_eq(tdp_packet_send(pair.sender, "who", 3, fds, 4), 0);
	tt_descriptor_limit(4, &limit);
	cr_assert_eq(tdp_packet_receive(pair.receiver, buffer, &set, &size), 0);
	tt_descriptor_limit_restore(&limit);
	cr_assert_eq(set.count, 4);
	pair_close(pair);
}

TT_TEST(packet, foreign_ancillary_data_is_an_error)
{
	struct pair pair = pair_open();
	int all[TDP_PACKET_MAX_FDS];
	tdp_auto_fdset set;
	size_t size = 7;
	int on = 1;

	/* The kernel adds credentials when the receiver's socket asks for them. */
	cr_assert_eq(setsockopt(pair.receiver, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)), 0);
	cr_assert_eq(tdp_packet_send(pair.sender, "x", 1, NULL, 0), 0);
	cr_assert_eq(tdp_packet_receive(pair.receiver, buffer, &set, &size), -EPROTO);
	cr_assert_eq(size, 7);

	/* Beside it all descriptors fit, so that none of them is lost in the kernel. */
	for (size_t i = 0; i < TDP_ARRAY_LENGTH(all); i++)
		all[i] = STDOUT_FILENO;
	cr_assert_eq(tdp_packet_send(pair.sender, "x", 1, all, TDP_PACKET_MAX_FDS), 0);
	cr_assert_eq(tdp_packet_receive(pair.receiver, buffer, &set, &size), -EPROTO);
	cr_assert_eq(set.count, TDP_PACKET_MAX_FDS);
	pair_close(pair);
}

TT_TEST(packet, descriptors_that_nobody_receives_are_closed_with_the_socket)
{
	struct pair pair = pair_open();
	int fd = STDOUT_FILENO;

	cr_assert_eq(tdp_packet_send(pair.sender, "x", 1, &fd, 1), 0);
	pair_close(pair);
}

TT_TEST(packet, bad_sockets_are_an_error)
{
	tdp_auto_fdset set;
	size_t size;

	cr_assert_eq(tdp_packet_send(-1, "x", 1, NULL, 0), -EBADF);
	cr_assert_eq(tdp_packet_receive(-1, buffer, &set, &size), -EBADF);
	cr_assert_eq(set.count, 0);
}
