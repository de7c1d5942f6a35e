/* SPDX-License-Identifier: Apache-2.0 */
/* What access makes of segments, by the wire and by the kernel's word. */
#include <fcntl.h>
#include <sys/mman.h>

#include "daemon/registry.h"
#include "proto/mem/memfd.h"
#include "tests/support/leak.h"
#include "tests/unit/daemon/served.h"

TestSuite(access, .init = tt_open_first_loop);

enum { SEALS_FOR_GOOD = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW };

static int publish_as(struct tdd_server *server, struct tt_client *client, const char *name,
		      uint64_t segment_id, enum tidl_access access)
{
	struct tt_publish publish;

	tt_publish_init(&publish, name, segment_id);
	publish.message.publish.access = access;
	return tt_call(server, client, publish.message);
}

static int check_as(struct tdd_server *server, struct tt_client *client, const char *name,
		    uint64_t segment_id, enum tidl_access access)
{
	struct tt_publish publish;

	tt_publish_init(&publish, name, segment_id);
	publish.message.publish.access = access;
	publish.message.publish.check_only = true;
	return tt_call(server, client, publish.message);
}

static uint32_t seals(int fd)
{
	struct tdp_fault fault;
	uint32_t seals = 0;

	cr_assert_eq(tdp_memfd_seals(fd, &seals, &fault), 0);
	return seals;
}

/* The descriptor outlives the answer that it came with. */
static uint64_t allocate_keeping(struct tdd_server *server, struct tt_client *client,
				 int *ret_write_fd)
{
	uint64_t segment_id = tt_call_allocate(server, client, 128);

	*ret_write_fd = tdp_fdset_steal(&client->fds, 0);
	return segment_id;
}

static int call_open(struct tdd_server *server, struct tt_client *client, uint64_t segment_id)
{
	struct tdp_message message = {.kind = TDP_MESSAGE_OPEN, .open = {.segment_id = segment_id}};

	return tt_call(server, client, message);
}

TT_TEST(access, live_keeps_new_writers_out)
{
	struct tdd_server *server = tt_server_new(false);
	struct tt_client producer, consumer;
	uint64_t segment_id;
	unsigned char *old_map;
	int write_fd;

	tt_join(server, &producer);
	tt_join(server, &consumer);
	segment_id = allocate_keeping(server, &producer, &write_fd);
	old_map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, write_fd, 0);
	cr_assert_neq(old_map, MAP_FAILED);
	cr_assert_eq(publish_as(server, &producer, "x", segment_id, TIDL_ACCESS_LIVE), 0, "%s",
		     producer.reply.failure.message);
	cr_expect_eq(seals(write_fd) & (SEALS_FOR_GOOD | F_SEAL_FUTURE_WRITE | F_SEAL_WRITE),
		     SEALS_FOR_GOOD | F_SEAL_FUTURE_WRITE);
	cr_expect_eq(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, write_fd, 0), MAP_FAILED);
	cr_expect_lt(pwrite(write_fd, "x", 1, 0), 0);
	*old_map = 7;
	cr_expect_eq(tt_call(server, &consumer, tt_get("x", TIDL_ATTACH_WRITE)), TIDL_ERR_ACCESS);
	cr_expect_eq(tt_call(server, &consumer, tt_get("x", TIDL_ATTACH_COPY_ON_WRITE)),
		     TIDL_ERR_BUSY, "its producer writes");
	cr_assert_eq(tt_call(server, &consumer, tt_get("x", TIDL_ATTACH_READ)), 0);
	cr_expect_eq(consumer.reply.granted.access, TIDL_ACCESS_LIVE);
	cr_assert_eq(call_open(server, &producer, segment_id), 0);
	cr_expect_eq(producer.fds.count, 2, "for the control page, which is mapped already");
	munmap(old_map, 4096);
	close(write_fd);
	tt_disconnect(&producer);
	tt_disconnect(&consumer);
	tdd_server_free(server);
}

TT_TEST(access, immutable_has_no_writer_at_all)
{
	struct tdd_server *server = tt_server_new(false);
	struct tt_client producer, consumer;
	const struct tdd_segment *segment;
	uint64_t segment_id;
	uint64_t descriptors;
	int write_fd;

	tt_join(server, &producer);
	tt_join(server, &consumer);
	segment_id = allocate_keeping(server, &producer, &write_fd);
	descriptors = server->quota.broker.used[TDD_QUOTA_DESCRIPTORS];
	cr_expect_eq(publish_as(server, &producer, "x", segment_id, TIDL_ACCESS_IMMUTABLE),
		     TIDL_ERR_ACCESS, "it is not sealed");
	cr_assert_eq(fcntl(write_fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
	cr_expect_eq(publish_as(server, &producer, "x", segment_id, TIDL_ACCESS_SHARED),
		     TIDL_ERR_ACCESS, "it is sealed");
	cr_expect_eq(publish_as(server, &producer, "x", segment_id, TIDL_ACCESS_LIVE),
		     TIDL_ERR_ACCESS, "it is sealed");
	cr_assert_eq(publish_as(server, &producer, "x", segment_id, TIDL_ACCESS_IMMUTABLE), 0, "%s",
		     producer.reply.failure.message);
	cr_expect_eq(seals(write_fd) & (SEALS_FOR_GOOD | F_SEAL_WRITE),
		     SEALS_FOR_GOOD | F_SEAL_WRITE);
	segment = tdd_segment_find(server->registry.segments, segment_id);
	cr_expect_eq(segment->write_fd, -1);
	cr_expect_eq(server->quota.broker.used[TDD_QUOTA_DESCRIPTORS], descriptors - 1);
	cr_assert_eq(call_open(server, &producer, segment_id), 0);
	cr_assert_eq(producer.fds.count, 1);
	cr_expect_eq(fcntl(producer.fds.fds[0], F_GETFL) & O_ACCMODE, O_RDONLY);
	cr_expect_eq(tt_call(server, &consumer, tt_get("x", TIDL_ATTACH_WRITE)), TIDL_ERR_ACCESS);
	cr_expect_eq(tt_call(server, &consumer, tt_get("x", TIDL_ATTACH_READ)), 0);
	cr_expect_eq(consumer.reply.granted.access, TIDL_ACCESS_IMMUTABLE);
	cr_expect_eq(tt_call(server, &consumer, tt_get("x", TIDL_ATTACH_COPY_ON_WRITE)), 0,
		     "whoever allocated it writes no more");
	close(write_fd);
	tt_disconnect(&producer);
	tt_turn(server);
	cr_expect_eq(tt_call(server, &consumer, tt_get("x", TIDL_ATTACH_READ)), 0);
	tt_disconnect(&consumer);
	tdd_server_free(server);
}

TT_TEST(access, a_check_changes_nothing)
{
	struct tdd_server *server = tt_server_new(false);
	struct tt_client client;
	uint64_t before[TDD_QUOTA_KIND_COUNT];
	uint64_t segment_id;
	int write_fd;

	tt_join(server, &client);
	segment_id = allocate_keeping(server, &client, &write_fd);
	memcpy(before, server->quota.broker.used, sizeof(before));
	for (enum tidl_access access = TIDL_ACCESS_SHARED; access <= TIDL_ACCESS_IMMUTABLE;
	     access++) {
		cr_expect_eq(check_as(server, &client, "x", segment_id, access), 0);
		cr_expect_eq(client.reply.kind, TDP_MESSAGE_DONE);
	}
	cr_expect_eq(check_as(server, &client, "x", segment_id + 1, TIDL_ACCESS_SHARED),
		     TIDL_ERR_PERMISSION);
	cr_expect_eq(tdd_registry_count(&server->registry), 0);
	cr_expect_eq(memcmp(before, server->quota.broker.used, sizeof(before)), 0);
	cr_expect_eq(seals(write_fd) & (F_SEAL_SEAL | F_SEAL_WRITE | F_SEAL_FUTURE_WRITE), 0);
	cr_assert_eq(publish_as(server, &client, "x", segment_id, TIDL_ACCESS_SHARED), 0);
	cr_expect_eq(check_as(server, &client, "x", segment_id, TIDL_ACCESS_SHARED),
		     TIDL_ERR_EXISTS);
	cr_expect_eq(check_as(server, &client, "y", segment_id, TIDL_ACCESS_IMMUTABLE),
		     TIDL_ERR_ACCESS);
	close(write_fd);
	tt_disconnect(&client);
	tdd_server_free(server);
}

TT_TEST(access, the_first_publication_decides)
{
	struct tdd_server *server = tt_server_new(false);
	struct tt_client client;
	uint64_t segment_id;

	tt_join(server, &client);
	segment_id = tt_call_allocate(server, &client, 128);
	cr_assert_eq(publish_as(server, &client, "a", segment_id, TIDL_ACCESS_LIVE), 0);
	cr_expect_eq(publish_as(server, &client, "b", segment_id, TIDL_ACCESS_SHARED),
		     TIDL_ERR_ACCESS);
	cr_expect_eq(publish_as(server, &client, "b", segment_id, TIDL_ACCESS_LIVE), 0);
	cr_expect_eq(
		tt_call(server, &client,
			(struct tdp_message){.kind = TDP_MESSAGE_REMOVE, .remove = {.name = "a"}}),
		0);
	cr_expect_eq(
		tt_call(server, &client,
			(struct tdp_message){.kind = TDP_MESSAGE_REMOVE, .remove = {.name = "b"}}),
		0);
	cr_expect_eq(publish_as(server, &client, "a", segment_id, TIDL_ACCESS_SHARED),
		     TIDL_ERR_ACCESS, "seals do not go with the name");
	tt_disconnect(&client);
	tdd_server_free(server);
}

TT_TEST(access, seals_that_the_creator_made_final)
{
	struct tdd_server *server = tt_server_new(false);
	struct tt_client client;
	uint64_t segment_id;
	int write_fd;

	tt_join(server, &client);
	segment_id = allocate_keeping(server, &client, &write_fd);
	cr_assert_eq(fcntl(write_fd, F_ADD_SEALS, F_SEAL_SEAL), 0);
	cr_expect_eq(publish_as(server, &client, "x", segment_id, TIDL_ACCESS_LIVE),
		     TIDL_ERR_ACCESS);
	cr_expect_eq(tdd_registry_count(&server->registry), 0);
	cr_expect_eq(publish_as(server, &client, "x", segment_id, TIDL_ACCESS_SHARED), 0);
	close(write_fd);
	tt_disconnect(&client);
	tdd_server_free(server);
}
