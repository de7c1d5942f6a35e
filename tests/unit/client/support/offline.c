/* SPDX-License-Identifier: Apache-2.0 */
/* Clients without a broker. */
#include "tests/unit/client/support/offline.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/lib/client.h"
#include "client/lib/lease.h"
#include "client/lib/segment.h"
#include "client/lib/tensor.h"
#include "proto/base/fd.h"
#include "proto/mem/memfd.h"
#include "proto/wire/message.h"
#include "proto/wire/packet.h"
#include "tests/unit/client/support/broker.h"

void tt_offline_init(struct tt_offline *offline)
{
	struct tdc_link link = {.protocol = 1, .address = "/nowhere"};
	struct tdp_fault fault;
	int ends[2];

	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	link.fd = ends[0];
	link.uid = geteuid();
	offline->peer_fd = ends[1];
	cr_assert_eq(tdc_client_new(&link, "test", &offline->client, &fault), 0);
}

void tt_offline_deinit(struct tt_offline *offline)
{
	tidl_disconnect(offline->client);
	offline->client = NULL;
	offline->peer_fd = tdp_fd_close(offline->peer_fd);
}

static struct tdc_segment *segment_make(struct tidl_client *client, enum tidl_attach attach,
					uint64_t data_bytes)
{
	static uint64_t next_id = 1;
	struct tdp_memfd_geometry geometry;
	struct tdc_segment *segment;
	struct tdp_fault fault;
	int write_fd;
	int read_fd;

	cr_assert_eq(tdp_memfd_plan(data_bytes, &geometry, &fault), 0);
	cr_assert_eq(tdp_memfd_create("test", geometry.size_bytes, &write_fd, &read_fd, &fault), 0);
	struct tdp_segment wire = {
		.kind = TDP_SEGMENT_MEMFD,
		.id = next_id++,
		.size_bytes = geometry.size_bytes,
		.data_size_bytes = geometry.data_size_bytes,
	};
	struct tdc_segment_spec spec = {
		.wire = &wire,
		.fd = attach == TIDL_ATTACH_WRITE ? write_fd : read_fd,
		.era = client->era,
		.attach = attach,
		.owner_uid = geteuid(),
	};
	cr_assert_eq(tdc_segment_map(client, &spec, &segment, &fault), 0, "%s", fault.text);
	close(write_fd);
	close(read_fd);
	return segment;
}

struct tidl_tensor *tt_offline_tensor(struct tt_offline *offline, int64_t rows, int64_t columns,
				      enum tidl_attach attach, uint64_t lease_id)
{
	int64_t shape[] = {rows, columns};
	struct tdc_origin_spec origin_spec = {
		.attach = attach,
		.access = TIDL_ACCESS_SHARED,
		.segment_count = 1,
	};
	struct tdc_tensor_spec spec = {
		.dtype = tt_float32,
		.ndim = 2,
		.shape = shape,
		.nbytes = (uint64_t)(rows * columns) * sizeof(float),
	};
	struct tdc_origin *origin;
	struct tidl_tensor *tensor;
	struct tdp_fault fault;

	cr_assert_eq(tdc_origin_new(offline->client, &origin_spec, &origin, &fault), 0);
	cr_assert_eq(tdc_tensor_new(origin, &spec, &tensor, &fault), 0);
	if (spec.nbytes > 0) {
		origin->segments[0] = segment_make(offline->client, attach, spec.nbytes);
		tdc_tensor_place(tensor, origin->segments[0], 0);
	}
	if (lease_id != 0) {
		cr_assert_eq(tdc_lease_new(TDC_LEASE_PUBLICATION, &origin->lease, &fault), 0);
		origin->lease->id = lease_id;
		origin->lease->era = offline->client->era;
	}
	(void)tdc_origin_unref(origin);
	return tensor;
}

size_t tt_offline_released(const struct tt_offline *offline, uint64_t *ret_ids, size_t capacity)
{
	static unsigned char packet[TDP_PACKET_MAX_BYTES];
	size_t count = 0;

	for (;;) {
		tdp_auto_arena arena;
		tdp_auto_fdset fds;
		struct tdp_message message;
		struct tdp_fault fault;
		size_t size_bytes;
		int r = tdp_packet_receive(offline->peer_fd, packet, &fds, &size_bytes);

		tdp_arena_init(&arena, TDP_UNPACK_MAX_BYTES);
		if (r < 0)
			return count;
		cr_assert_eq(tdp_message_unpack(&arena, packet, size_bytes, &message, &fault), 0);
		if (message.kind == TDP_MESSAGE_GOODBYE)
			continue;
		cr_assert_eq(message.kind, TDP_MESSAGE_RELEASE);
		cr_assert_eq(message.request_id, 0);
		for (size_t i = 0; i < message.release.lease_count; i++) {
			cr_assert_lt(count, capacity);
			ret_ids[count++] = message.release.lease_ids[i];
		}
		for (size_t i = 0; i < message.release.inherited_count; i++) {
			cr_assert_lt(count, capacity);
			ret_ids[count++] = message.release.inherited_lease_ids[i];
		}
	}
}
