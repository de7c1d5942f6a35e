/* SPDX-License-Identifier: Apache-2.0 */
/* Brokers of our own making, honest or not. */
#include "tests/unit/client/support/fake_broker.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/mem/memfd.h"
#include "proto/wire/packet.h"

bool tt_fake_receive(int fd, struct tdp_arena *arena, struct tdp_message *ret_message)
{
	struct pollfd item = {.fd = fd, .events = POLLIN};
	unsigned char *packet = malloc(TDP_PACKET_MAX_BYTES);
	tdp_auto_fdset fds;
	struct tdp_fault fault;
	size_t size_bytes;
	int r;

	tdp_fdset_init(&fds);
	tdp_arena_deinit(arena);
	tdp_arena_init(arena, TDP_UNPACK_MAX_BYTES);
	do {
		(void)poll(&item, 1, -1);
		r = tdp_packet_receive(fd, packet, &fds, &size_bytes);
	} while (r == -EAGAIN);
	if (r == 0)
		r = tdp_message_unpack(arena, packet, size_bytes, ret_message, &fault);
	free(packet);
	return r == 0;
}

bool tt_fake_send(int fd, const struct tdp_message *message, const int *fds, uint32_t fd_count)
{
	unsigned char *packet = malloc(TDP_PACKET_MAX_BYTES);
	struct tdp_fault fault;
	size_t size_bytes;
	int r = tdp_message_pack(message, packet, TDP_PACKET_MAX_BYTES, &size_bytes, &fault);

	if (r == 0)
		r = tdp_packet_send(fd, packet, size_bytes, fds, fd_count);
	free(packet);
	return r == 0;
}

bool tt_fake_send_failure(int fd, uint64_t request_id, int code)
{
	struct tdp_message message = {
		.kind = TDP_MESSAGE_FAILURE,
		.request_id = request_id,
		.failure = {.code = code, .message = "because the test wants it: go on"},
	};

	return tt_fake_send(fd, &message, NULL, 0);
}

static bool greet_honestly(int fd)
{
	struct tdp_message message = {
		.kind = TDP_MESSAGE_WELCOME,
		.welcome = {.version = 1, .server_version = "fake", .uid = geteuid()},
	};
	struct tdp_message hello;
	struct tdp_arena arena;
	bool is_good;

	tdp_arena_init(&arena, TDP_UNPACK_MAX_BYTES);
	is_good = tt_fake_receive(fd, &arena, &hello);
	message.request_id = hello.request_id;
	tdp_arena_deinit(&arena);
	return is_good && tt_fake_send(fd, &message, NULL, 0);
}

static void *fake_run(void *argument)
{
	struct tt_fake *fake = argument;

	for (;;) {
		int fd = accept4(fake->listen_fd, NULL, NULL, SOCK_CLOEXEC);

		if (fd < 0)
			return NULL;
		if ((fake->greet ? fake->greet(fake, fd) : greet_honestly(fd)) && fake->serve)
			fake->serve(fake, fd);
		close(fd);
	}
}

void tt_fake_start(struct tt_fake *fake)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	strcpy(fake->folder, "/tmp/tidl-fake-XXXXXX");
	cr_assert_not_null(mkdtemp(fake->folder));
	(void)snprintf(fake->address, sizeof(fake->address), "%s/fake.sock", fake->folder);
	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", fake->address);
	fake->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	cr_assert_geq(fake->listen_fd, 0);
	cr_assert_eq(bind(fake->listen_fd, (struct sockaddr *)&address, sizeof(address)), 0);
	cr_assert_eq(listen(fake->listen_fd, 8), 0);
	cr_assert_eq(pthread_create(&fake->thread, NULL, fake_run, fake), 0);
}

void tt_fake_stop(struct tt_fake *fake)
{
	/* Ends accept(); connections end with their clients. */
	(void)shutdown(fake->listen_fd, SHUT_RDWR);
	cr_assert_eq(pthread_join(fake->thread, NULL), 0);
	close(fake->listen_fd);
	(void)unlink(fake->address);
	(void)rmdir(fake->folder);
}

struct tidl_client *tt_fake_connect(const struct tt_fake *fake)
{
	struct tidl_connect_options options = {
		.size = sizeof(options),
		.address = fake->address,
		.timeout_ms = 20000,
	};
	struct tidl_client *client = NULL;

	cr_assert_eq(tidl_connect(&options, &client), 0, "%s", tidl_last_error());
	return client;
}

void tt_grant_init(struct tt_grant *grant, const struct tdp_message *request, uint64_t lease_id,
		   uint64_t segment_id)
{
	struct tdp_memfd_geometry geometry = {0};
	struct tdp_fault fault;

	memset(grant, 0, sizeof(*grant));
	if (tdp_memfd_plan(16, &geometry, &fault) < 0 ||
	    tdp_memfd_create("fake", geometry.size_bytes, &grant->write_fd, &grant->read_fd,
			     &fault) < 0)
		abort();
	grant->segment = (struct tdp_segment){
		.kind = TDP_SEGMENT_MEMFD,
		.id = segment_id,
		.size_bytes = geometry.size_bytes,
		.data_size_bytes = geometry.data_size_bytes,
		.control_offset_bytes = geometry.control_offset_bytes,
	};
	grant->shape[0] = 4;
	grant->strides[0] = 1;
	grant->tensor = (struct tdp_tensor){
		.key = "",
		.dtype = {.code = 2, .bits = 32, .lanes = 1},
		.ndim = 1,
		.shape = grant->shape,
		.strides = grant->strides,
	};
	grant->message = (struct tdp_message){
		.kind = TDP_MESSAGE_GRANTED,
		.request_id = request->request_id,
		.fd_count = 1,
		.granted = {.lease_id = lease_id,
			    .owner_uid = geteuid(),
			    .segment_owner_uid = geteuid(),
			    .generation = 7,
			    .access = TIDL_ACCESS_SHARED,
			    .attach = request->get.attach,
			    .retention = TIDL_RETENTION_PERSIST,
			    .segment_count = 1,
			    .segments = &grant->segment,
			    .tensor_count = 1,
			    .tensors = &grant->tensor},
	};
}

void tt_grant_deinit(struct tt_grant *grant)
{
	close(grant->write_fd);
	close(grant->read_fd);
}
