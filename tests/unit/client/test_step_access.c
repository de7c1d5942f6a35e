/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of memory that only its producer writes, and of memory that nobody writes any more. */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <dlpack/dlpack.h>

#include "client/lib/open.h"
#include "client/lib/steps.h"
#include "client/lib/tensor.h"
#include "proto/mem/memfd.h"
#include "tests/support/leak.h"
#include "tests/unit/client/support/broker.h"
#include "tests/unit/client/support/stepping.h"

static const int64_t shape[] = {2, 3};

static int publish_as(struct tidl_client *client, struct tidl_tensor *tensor,
		      enum tidl_access access)
{
	struct tidl_publish_options options = {
		.size = sizeof(options), .access = access, .copy = TIDL_COPY_NEVER};
	struct DLManagedTensorVersioned *managed;
	int r;

	cr_assert_eq(tidl_tensor_export(tensor, &managed), 0);
	r = tidl_publish(client, "x", managed, &options, NULL);
	if (r < 0)
		managed->deleter(managed);
	return r;
}

/* Its first step comes after the seal, which lets nobody map anything for writing any more. */
TT_TEST(step_access, the_producer_of_live_memory_makes_steps, .timeout = 60)
{
	struct tt_broker broker;
	struct tidl_client *producer, *consumer;
	struct tidl_tensor *tensor, *reader;
	uint64_t step = 0;
	float copy[6];

	tt_broker_start(&broker);
	producer = tt_broker_connect(&broker);
	consumer = tt_broker_connect(&broker);
	tensor = tt_tensor_counting(producer, 2, shape);
	cr_assert_eq(publish_as(producer, tensor, TIDL_ACCESS_LIVE), 0, "%s", tidl_last_error());
	reader = tt_get(consumer, "x", TIDL_ATTACH_READ);
	cr_assert_eq(tidl_wait_step(reader, 1, 1, NULL), TIDL_ERR_TIMEOUT);
	cr_assert_eq(tidl_update_begin(tensor, 0), 0, "%s", tidl_last_error());
	((float *)tidl_tensor_data(tensor))[5] = 50;
	cr_assert_eq(tidl_update_end(tensor, NULL), 0);
	cr_assert_eq(tidl_wait_step(reader, 1, -1, &step), 0, "%s", tidl_last_error());
	cr_expect_eq(step, 1);
	cr_assert_eq(tidl_snapshot(reader, copy, sizeof(copy), -1, &step), 0);
	cr_expect_eq(copy[5], 50);
	tidl_tensor_unref(tensor);
	cr_expect_eq(tidl_wait_step(reader, 2, -1, NULL), TIDL_ERR_WRITER_GONE);
	tidl_tensor_unref(reader);
	tidl_disconnect(producer);
	tidl_disconnect(consumer);
	tt_broker_stop(&broker);
}

/* Not even with the rights of the broker's own user. */
TT_TEST(step_access, a_reader_of_live_memory_cannot_touch_its_steps, .timeout = 60)
{
	struct tt_broker broker;
	struct tidl_client *producer, *consumer;
	struct tidl_tensor *tensor, *reader;
	tdc_auto_opened opened = TDC_OPENED_NONE;
	struct tdp_control *control;
	struct tdp_fault fault;
	char path[64];
	int fd;

	tt_broker_start(&broker);
	producer = tt_broker_connect(&broker);
	consumer = tt_broker_connect(&broker);
	tensor = tt_tensor_counting(producer, 2, shape);
	cr_assert_eq(publish_as(producer, tensor, TIDL_ACCESS_LIVE), 0);
	reader = tt_get(consumer, "x", TIDL_ATTACH_READ);
	cr_expect_eq(tt_step(reader), 0);
	cr_expect_eq(
		mprotect(reader->segment->steps->control, tdp_page_bytes(), PROT_READ | PROT_WRITE),
		-1);
	cr_assert_eq(tdc_open(consumer, reader->origin->lease, reader->segment, &opened, &fault), 0,
		     "%s", fault.text);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", opened.read_fd);
	/* The mode stops others; root and the owner get through to the seal. */
	(void)fchmod(opened.read_fd, 0600);
	fd = open(path, O_RDWR | O_CLOEXEC);
	cr_assert_geq(fd, 0);
	cr_expect_lt(tdp_control_map(fd, opened.wire.control_offset_bytes, true, &control, &fault),
		     0);
	cr_expect_lt(pwrite(fd, "x", 1, (off_t)opened.wire.control_offset_bytes), 0);
	cr_expect_lt(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			       (off_t)opened.wire.control_offset_bytes, 4096),
		     0);
	cr_expect_eq(tt_step(reader), 0);
	close(fd);
	tidl_tensor_unref(reader);
	tidl_tensor_unref(tensor);
	tidl_disconnect(producer);
	tidl_disconnect(consumer);
	tt_broker_stop(&broker);
}

TT_TEST(step_access, immutable_memory_makes_no_more_steps, .timeout = 60)
{
	struct tt_broker broker;
	struct tidl_client *producer, *consumer;
	struct tidl_tensor *tensor, *reader;
	uint64_t step = 0;

	tt_broker_start(&broker);
	producer = tt_broker_connect(&broker);
	consumer = tt_broker_connect(&broker);
	tensor = tt_tensor_counting(producer, 2, shape);
	cr_assert_eq(tidl_commit(tensor, NULL), 0);
	cr_assert_eq(tidl_update_begin(tensor, 0), 0);
	cr_expect_eq(publish_as(producer, tensor, TIDL_ACCESS_IMMUTABLE), TIDL_ERR_BUSY);
	cr_expect_not_null(strstr(tidl_last_error(), "an update of the tensor is open"), "%s",
			   tidl_last_error());
	((float *)tidl_tensor_data(tensor))[0] = 1;
	cr_assert_eq(tidl_update_end(tensor, NULL), 0);
	cr_assert_eq(publish_as(producer, tensor, TIDL_ACCESS_IMMUTABLE), 0, "%s",
		     tidl_last_error());
	cr_expect_eq(tidl_commit(tensor, NULL), TIDL_ERR_READ_ONLY);
	cr_expect_eq(tidl_update_begin(tensor, 0), TIDL_ERR_READ_ONLY);
	cr_expect_eq(tt_step(tensor), 2);
	reader = tt_get(consumer, "x", TIDL_ATTACH_READ);
	cr_expect_eq(tidl_wait_step(reader, 2, -1, &step), 0);
	cr_expect_eq(step, 2);
	cr_expect_eq(tidl_wait_step(reader, 3, -1, NULL), TIDL_ERR_ACCESS);
	cr_expect_eq(tidl_wait_step(tensor, 3, -1, NULL), TIDL_ERR_ACCESS);
	tidl_tensor_unref(reader);
	tidl_tensor_unref(tensor);
	tidl_disconnect(producer);
	tidl_disconnect(consumer);
	tt_broker_stop(&broker);
}

/* What does not become immutable goes on as it was. */
TT_TEST(step_access, a_seal_that_fails_leaves_the_steps, .timeout = 60)
{
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_tensor *tensor;
	tdc_auto_opened opened = TDC_OPENED_NONE;
	struct tdp_fault fault;
	void *in_the_way;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	tensor = tt_tensor_counting(client, 2, shape);
	cr_assert_eq(tidl_commit(tensor, NULL), 0);
	cr_assert_eq(tdc_open(client, tensor->origin->lease, tensor->segment, &opened, &fault), 0);
	in_the_way = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, opened.write_fd, 0);
	cr_assert_neq(in_the_way, MAP_FAILED);
	cr_expect_eq(publish_as(client, tensor, TIDL_ACCESS_IMMUTABLE), TIDL_ERR_BUSY);
	cr_expect_eq(tidl_commit(tensor, NULL), 0, "%s", tidl_last_error());
	cr_expect_eq(tt_step(tensor), 2);
	cr_assert_eq(munmap(in_the_way, 4096), 0);
	tidl_tensor_unref(tensor);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}
