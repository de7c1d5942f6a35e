/* SPDX-License-Identifier: Apache-2.0 */
/* A broker of one bundle. Like all fake brokers it asserts nothing in its thread. */
#include "tests/unit/client/support/fake_store.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/mem/memfd.h"
#include "proto/mem/sealed.h"
#include "proto/wire/packet.h"

void tt_store_init(struct tt_store *store)
{
	memset(store, 0, sizeof(*store));
}

void tt_store_deinit(struct tt_store *store)
{
	for (size_t i = 0; i < store->segment_count; i++) {
		close(store->write_fds[i]);
		close(store->read_fds[i]);
	}
	free(store->manifest);
}

static bool store_receive(int fd, struct tdp_arena *arena, struct tdp_fdset *fds,
			  struct tdp_message *ret_message)
{
	struct pollfd item = {.fd = fd, .events = POLLIN};
	unsigned char *packet = malloc(TDP_PACKET_MAX_BYTES);
	struct tdp_fault fault;
	size_t size_bytes;
	int r;

	tdp_arena_deinit(arena);
	tdp_arena_init(arena, TDP_UNPACK_MAX_BYTES);
	do {
		(void)poll(&item, 1, -1);
		r = tdp_packet_receive(fd, packet, fds, &size_bytes);
	} while (r == -EAGAIN);
	if (r == 0)
		r = tdp_message_unpack(arena, packet, size_bytes, ret_message, &fault);
	free(packet);
	return r == 0;
}

static bool store_allocate(struct tt_store *store, int fd, const struct tdp_message *request)
{
	struct tdp_memfd_geometry geometry = {0};
	size_t index = store->segment_count;
	struct tdp_segment *segment = &store->segments[index];
	struct tdp_message answer = {
		.kind = TDP_MESSAGE_ALLOCATED,
		.request_id = request->request_id,
		.fd_count = 2,
	};
	struct tdp_fault fault;
	int fds[2];

	if (index == TT_STORE_SEGMENTS ||
	    tdp_memfd_plan(request->allocate.data_size_bytes, &geometry, &fault) < 0 ||
	    tdp_memfd_create("fake", geometry.size_bytes, &fds[0], &fds[1], &fault) < 0)
		return tt_fake_send_failure(fd, request->request_id, TIDL_ERR_QUOTA);
	store->allocate_count++;
	store->segment_count++;
	store->write_fds[index] = fds[0];
	store->read_fds[index] = fds[1];
	*segment = (struct tdp_segment){
		.kind = TDP_SEGMENT_MEMFD,
		.id = index + 1,
		.size_bytes = geometry.size_bytes,
		.data_offset_bytes = geometry.data_offset_bytes,
		.data_size_bytes = geometry.data_size_bytes,
		.control_offset_bytes = geometry.control_offset_bytes,
	};
	answer.allocated.segment = *segment;
	return tt_fake_send(fd, &answer, fds, 2);
}

static bool store_keep(struct tt_store *store, const struct tdp_publish *publish,
		       struct tdp_fdset *fds)
{
	struct tdp_manifest rows = {
		.segment_count = publish->segment_count,
		.segments = publish->segments,
		.tensor_count = publish->tensor_count,
		.tensors = publish->tensors,
		.empty_mapping_count = publish->empty_mapping_count,
		.empty_mappings = publish->empty_mappings,
	};
	struct tdp_fault fault;

	free(store->manifest);
	store->manifest_bytes = tdp_manifest_packed_bytes(&rows);
	if (publish->has_manifest && tdp_sealed_verify(fds->fds[0], TDP_MANIFEST_MAX_BYTES,
						       &store->manifest_bytes, &fault) < 0)
		return false;
	store->manifest = malloc(store->manifest_bytes + 1);
	if (publish->has_manifest) {
		store->manifest_count++;
		store->has_manifest = true;
		return tdp_sealed_read(fds->fds[0], store->manifest, store->manifest_bytes, 0,
				       &fault) == 0;
	}
	tdp_manifest_pack(&rows, store->manifest);
	return true;
}

static bool store_publish(struct tt_store *store, int fd, const struct tdp_message *request,
			  struct tdp_fdset *fds)
{
	struct tdp_message answer = {
		.kind = TDP_MESSAGE_PUBLISHED,
		.request_id = request->request_id,
		.published = {.generation = 7, .retention = TIDL_RETENTION_PERSIST},
	};

	store->publish_count++;
	store->published = request->publish;
	if (store->fail_publish != 0)
		return tt_fake_send_failure(fd, request->request_id, store->fail_publish);
	return fds->count == request->publish.has_manifest &&
	       store_keep(store, &request->publish, fds) && tt_fake_send(fd, &answer, NULL, 0);
}

/* The next segments: their descriptors into @fds from @first on. The number of them. */
static size_t store_part(struct tt_store *store, const struct tdp_manifest *rows,
			 struct tdp_segment *segments, int *fds, uint32_t first)
{
	size_t limit = store->part_limit ? store->part_limit : TDP_PACKET_MAX_FDS - first;
	size_t count = 0;

	while (count < limit && store->next_part < rows->segment_count) {
		size_t index = rows->segments[store->next_part++].id - 1;

		segments[count] = store->segments[index];
		fds[first + count++] = store->read_fds[index];
	}
	return count;
}

static uint64_t store_cursor(const struct tt_store *store, const struct tdp_manifest *rows)
{
	return store->next_part < rows->segment_count ? 99 : 0;
}

static int store_manifest_fd(const struct tt_store *store, const struct tdp_manifest *rows)
{
	size_t size_bytes = tdp_manifest_packed_bytes(rows);
	unsigned char *bytes;
	struct tdp_fault fault;
	int fd = -1;

	if (store->replaced_manifest_fd > 0)
		return dup(store->replaced_manifest_fd);
	bytes = malloc(size_bytes);
	tdp_manifest_pack(rows, bytes);
	if (tdp_sealed_create("fake", bytes, size_bytes, &fd, &fault) < 0)
		fd = -1;
	free(bytes);
	return fd;
}

static struct tdp_message store_granted(const struct tt_store *store,
					const struct tdp_message *request,
					const struct tdp_manifest *rows)
{
	struct tdp_message answer = {
		.kind = TDP_MESSAGE_GRANTED,
		.request_id = request->request_id,
		.granted = {.lease_id = TT_STORE_LEASE,
			    .owner_uid = geteuid(),
			    .segment_owner_uid = geteuid(),
			    .generation = 7,
			    .access = TIDL_ACCESS_SHARED,
			    .attach = request->get.attach,
			    .retention = TIDL_RETENTION_PERSIST,
			    .has_manifest = store->has_manifest},
	};

	if (!store->has_manifest) {
		answer.granted.tensor_count = rows->tensor_count;
		answer.granted.tensors = rows->tensors;
		answer.granted.empty_mapping_count = rows->empty_mapping_count;
		answer.granted.empty_mappings = rows->empty_mappings;
	}
	return answer;
}

static bool store_get(struct tt_store *store, int fd, const struct tdp_message *request,
		      struct tdp_manifest *rows)
{
	struct tdp_segment segments[TDP_PACKET_MAX_FDS];
	struct tdp_message answer = store_granted(store, request, rows);
	int fds[TDP_PACKET_MAX_FDS];
	bool has_manifest = store->has_manifest;
	uint32_t first = has_manifest ? 1 : 0;
	bool is_sent;

	store->get_count++;
	store->next_part = 0;
	if (has_manifest)
		fds[0] = store_manifest_fd(store, rows);
	answer.granted.segment_count = store_part(store, rows, segments, fds, first);
	answer.granted.segments = segments;
	answer.granted.next_cursor = store_cursor(store, rows);
	if (store->bend != NULL)
		store->bend(store, &answer);
	answer.fd_count = first + (uint32_t)answer.granted.segment_count;
	is_sent = tt_fake_send(fd, &answer, fds, answer.fd_count);
	if (has_manifest)
		close(fds[0]);
	return is_sent;
}

static bool store_get_more(struct tt_store *store, int fd, const struct tdp_message *request,
			   const struct tdp_manifest *rows)
{
	struct tdp_segment segments[TDP_PACKET_MAX_FDS];
	struct tdp_message answer = {.kind = TDP_MESSAGE_MORE, .request_id = request->request_id};
	int fds[TDP_PACKET_MAX_FDS];

	store->more_count++;
	answer.more.segment_count = store_part(store, rows, segments, fds, 0);
	answer.more.segments = segments;
	answer.more.next_cursor = store_cursor(store, rows);
	if (store->bend != NULL)
		store->bend(store, &answer);
	answer.fd_count = (uint32_t)answer.more.segment_count;
	return tt_fake_send(fd, &answer, fds, answer.fd_count);
}

/* A GET or GET_MORE. */
static bool store_give(struct tt_store *store, int fd, const struct tdp_message *request)
{
	struct tdp_manifest rows = {0};
	struct tdp_arena arena;
	struct tdp_fault fault;
	bool is_sent;

	tdp_arena_init(&arena, TDP_MANIFEST_UNPACK_MAX_BYTES);
	if (tdp_manifest_unpack(&arena, store->manifest, store->manifest_bytes, &rows, &fault) < 0)
		is_sent = tt_fake_send_failure(fd, request->request_id, TIDL_ERR_NOT_FOUND);
	else if (request->kind == TDP_MESSAGE_GET_MORE)
		is_sent = store_get_more(store, fd, request, &rows);
	else {
		if (store->bend_rows != NULL)
			store->bend_rows(store, (struct tdp_tensor *)(uintptr_t)rows.tensors,
					 rows.tensor_count);
		is_sent = store_get(store, fd, request, &rows);
	}
	tdp_arena_deinit(&arena);
	return is_sent;
}

void tt_store_serve(struct tt_fake *fake, int fd)
{
	struct tt_store *store = fake->context;
	struct tdp_message message;
	struct tdp_arena arena;
	struct tdp_fdset fds;
	bool is_going_on = true;

	tdp_arena_init(&arena, TDP_UNPACK_MAX_BYTES);
	tdp_fdset_init(&fds);
	while (is_going_on && store_receive(fd, &arena, &fds, &message)) {
		if (message.kind == TDP_MESSAGE_ALLOCATE)
			is_going_on = store_allocate(store, fd, &message);
		else if (message.kind == TDP_MESSAGE_PUBLISH)
			is_going_on = store_publish(store, fd, &message, &fds);
		else if (message.kind == TDP_MESSAGE_RELEASE) {
			store->released_leases += message.release.lease_count;
			store->released_segments += message.release.segment_count;
		} else if (message.kind == TDP_MESSAGE_REMOVE)
			is_going_on =
				tt_fake_send_failure(fd, message.request_id, TIDL_ERR_NOT_FOUND);
		else if (message.kind == TDP_MESSAGE_GET || message.kind == TDP_MESSAGE_GET_MORE)
			is_going_on = store_give(store, fd, &message);
		tdp_fdset_deinit(&fds);
	}
	tdp_fdset_deinit(&fds);
	tdp_arena_deinit(&arena);
}
