/* SPDX-License-Identifier: Apache-2.0 */
/* Making steps: who may, in which order, and what a snapshot shows. */
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <dlpack/dlpack.h>

#include "client/lib/steps.h"
#include "client/lib/tensor.h"
#include "proto/mem/memfd.h"
#include "tests/support/leak.h"
#include "tests/unit/client/support/broker.h"
#include "tests/unit/client/support/foreign.h"
#include "tests/unit/client/support/stepping.h"

static const int64_t shape[] = {2, 3};

/* A tensor of one connection, and as a second one has attached it. */
struct pair {
	struct tt_broker broker;
	struct tidl_client *writer_client;
	struct tidl_client *reader_client;
	struct tidl_tensor *writer;
	struct tidl_tensor *reader;
};

static void pair_init(struct pair *pair, enum tidl_attach attach)
{
	tt_broker_start(&pair->broker);
	pair->writer_client = tt_broker_connect(&pair->broker);
	pair->reader_client = tt_broker_connect(&pair->broker);
	pair->writer = tt_tensor_counting(pair->writer_client, 2, shape);
	tt_publish(pair->writer_client, "x", pair->writer, NULL, NULL);
	pair->reader = tt_get(pair->reader_client, "x", attach);
}

static void pair_deinit(struct pair *pair)
{
	tidl_tensor_unref(pair->reader);
	tidl_tensor_unref(pair->writer);
	tidl_disconnect(pair->reader_client);
	tidl_disconnect(pair->writer_client);
	tt_broker_stop(&pair->broker);
}

static struct tdp_control *control_of(const struct tidl_tensor *tensor)
{
	return tensor->segment->steps->control;
}

TT_TEST(steps, both_sides_count_the_same, .timeout = 60)
{
	struct pair pair;
	uint64_t step = 99;

	pair_init(&pair, TIDL_ATTACH_READ);
	cr_expect_eq(tt_step(pair.reader), 0);
	cr_assert_eq(tidl_update_begin(pair.writer, 0), 0, "%s", tidl_last_error());
	cr_expect_eq(tt_step(pair.reader), 0, "not complete yet");
	cr_assert_eq(tidl_update_end(pair.writer, &step), 0);
	cr_expect_eq(step, 1);
	cr_expect_eq(tt_step(pair.reader), 1);
	cr_assert_eq(tidl_commit(pair.writer, &step), 0);
	cr_expect_eq(step, 2);
	cr_expect_eq(tt_step(pair.reader), 2);
	cr_assert_eq(tidl_wait_step(pair.reader, 2, -1, &step), 0);
	cr_expect_eq(step, 2);
	cr_assert_eq(tidl_wait_step(pair.reader, 0, 0, NULL), 0);
	cr_assert_eq(tidl_commit(pair.writer, NULL), 0);
	cr_assert_eq(tidl_wait_step(pair.reader, 1, 0, &step), 0);
	cr_expect_eq(step, 3, "what it is by now");
	pair_deinit(&pair);
}

/* Nobody has mapped more than a page of it, and readers cannot write that. */
TT_TEST(steps, a_reader_cannot_make_steps, .timeout = 60)
{
	struct pair pair;

	pair_init(&pair, TIDL_ATTACH_READ);
	cr_expect_eq(tidl_update_begin(pair.reader, 0), TIDL_ERR_READ_ONLY);
	cr_expect_eq(tidl_update_end(pair.reader, NULL), TIDL_ERR_READ_ONLY);
	cr_expect_eq(tidl_commit(pair.reader, NULL), TIDL_ERR_READ_ONLY);
	cr_expect_eq(tt_step(pair.reader), 0);
	cr_expect_eq(mprotect(control_of(pair.reader), tdp_page_bytes(), PROT_READ | PROT_WRITE),
		     -1);
	pair_deinit(&pair);
}

TT_TEST(steps, brackets_come_in_pairs, .timeout = 60)
{
	struct pair pair;
	uint64_t step = 99;

	pair_init(&pair, TIDL_ATTACH_WRITE);
	cr_expect_eq(tidl_update_end(pair.writer, &step), TIDL_ERR_INVALID_ARGUMENT);
	cr_assert_eq(tidl_update_begin(pair.writer, 0), 0);
	cr_expect_eq(tidl_update_begin(pair.writer, 0), TIDL_ERR_BUSY);
	cr_expect_not_null(strstr(tidl_last_error(), "this process"));
	cr_expect_eq(tidl_commit(pair.writer, &step), TIDL_ERR_BUSY);
	cr_expect_eq(tidl_update_begin(pair.reader, 0), TIDL_ERR_BUSY);
	cr_expect_not_null(strstr(tidl_last_error(), "another process"), "%s", tidl_last_error());
	cr_expect_eq(tidl_update_begin(pair.reader, 1u << 5), TIDL_ERR_INVALID_ARGUMENT);
	cr_expect_eq(step, 99, "untouched on failure");
	cr_assert_eq(tidl_update_begin(pair.reader, TIDL_UPDATE_TAKE_OVER), 0);
	cr_assert_eq(tidl_update_end(pair.reader, &step), 0);
	cr_expect_eq(step, 1);
	cr_expect_eq(tidl_update_end(pair.writer, &step), TIDL_ERR_BUSY, "it was taken over");
	cr_expect_eq(tt_step(pair.writer), 1);
	pair_deinit(&pair);
}

TT_TEST(steps, a_dead_writer_leaves_no_update_open_for_ever, .timeout = 60)
{
	struct tt_broker broker;
	struct tt_stepper stepper = {
		.broker = &broker, .name = "x", .step_count = 1, .ends_within = 1};
	struct tidl_client *client;
	struct tidl_tensor *tensor;
	uint64_t step;
	pid_t pid;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	pid = tt_stepper_start(&stepper);
	tensor = tt_get_waiting(client, "x", TIDL_ATTACH_WRITE);
	cr_assert_eq(tidl_wait_step(tensor, 1, -1, NULL), 0, "%s", tidl_last_error());
	while (!tdp_word_is_open(tdp_control_load(control_of(tensor))))
		(void)sched_yield();
	cr_expect_eq(tidl_update_begin(tensor, 0), TIDL_ERR_BUSY);
	tt_stepper_kill(pid);
	/* The broker learns of it a little later than the parent. */
	while (tidl_update_begin(tensor, 0) == TIDL_ERR_BUSY)
		;
	cr_assert_eq(tidl_update_end(tensor, &step), 0, "%s", tidl_last_error());
	cr_expect_eq(step, 2);
	tidl_tensor_unref(tensor);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

TT_TEST(steps, a_tensor_without_elements_makes_none, .timeout = 60)
{
	static const int64_t none[] = {0, 3};
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_tensor *tensor;
	uint64_t step;
	char buffer[1];

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	tensor = tt_tensor_counting(client, 2, none);
	cr_expect_eq(tidl_step(tensor, &step), TIDL_ERR_INVALID_ARGUMENT);
	cr_expect_not_null(strstr(tidl_last_error(), "without elements"));
	cr_expect_eq(tidl_update_begin(tensor, 0), TIDL_ERR_INVALID_ARGUMENT);
	cr_expect_eq(tidl_update_end(tensor, NULL), TIDL_ERR_INVALID_ARGUMENT);
	cr_expect_eq(tidl_commit(tensor, NULL), TIDL_ERR_INVALID_ARGUMENT);
	cr_expect_eq(tidl_wait_step(tensor, 0, 0, NULL), TIDL_ERR_INVALID_ARGUMENT);
	cr_expect_eq(tidl_snapshot(tensor, buffer, 0, 0, NULL), TIDL_ERR_INVALID_ARGUMENT);
	tidl_tensor_unref(tensor);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

TT_TEST(steps, null_arguments)
{
	uint64_t step;
	char buffer[1];

	cr_expect_eq(tidl_step(NULL, &step), TIDL_ERR_INVALID_ARGUMENT);
	cr_expect_eq(tidl_update_begin(NULL, 0), TIDL_ERR_INVALID_ARGUMENT);
	cr_expect_eq(tidl_update_end(NULL, NULL), TIDL_ERR_INVALID_ARGUMENT);
	cr_expect_eq(tidl_commit(NULL, NULL), TIDL_ERR_INVALID_ARGUMENT);
	cr_expect_eq(tidl_wait_step(NULL, 0, 0, NULL), TIDL_ERR_INVALID_ARGUMENT);
	cr_expect_eq(tidl_snapshot(NULL, buffer, 1, 0, NULL), TIDL_ERR_INVALID_ARGUMENT);
}

/* A view shares the segment, hence the steps; its snapshot is row-major. */
TT_TEST(steps, a_snapshot_of_a_view, .timeout = 60)
{
	static const int64_t view_shape[] = {3, 2};
	static const int64_t view_strides[] = {1, 3};
	static const float expected[] = {0, 3, 1, 4, 2, 5};
	struct pair pair;
	struct tt_foreign view;
	struct tidl_tensor *got;
	float copy[6] = {0};
	uint64_t step = 99;

	pair_init(&pair, TIDL_ATTACH_READ);
	tt_foreign_init(&view, tidl_tensor_data(pair.writer), 2, view_shape, view_strides);
	cr_assert_eq(tidl_publish(pair.writer_client, "view", &view.managed, NULL, NULL), 0);
	got = tt_get(pair.reader_client, "view", TIDL_ATTACH_READ);
	cr_assert_eq(tidl_commit(pair.writer, NULL), 0);
	cr_assert_eq(tidl_snapshot(got, copy, sizeof(copy), -1, &step), 0, "%s", tidl_last_error());
	cr_expect_eq(step, 1);
	for (size_t i = 0; i < TDP_ARRAY_LENGTH(expected); i++)
		cr_expect_float_eq(copy[i], expected[i], 0.0f);
	cr_expect_eq(tidl_snapshot(got, copy, sizeof(copy) - 1, -1, &step),
		     TIDL_ERR_INVALID_ARGUMENT);
	cr_expect_eq(tidl_snapshot(got, NULL, sizeof(copy), -1, &step), TIDL_ERR_INVALID_ARGUMENT);
	tidl_tensor_unref(got);
	pair_deinit(&pair);
}

TT_TEST(steps, a_snapshot_waits_for_the_end_of_an_update, .timeout = 60)
{
	struct pair pair;
	float copy[6];

	pair_init(&pair, TIDL_ATTACH_READ);
	cr_assert_eq(tidl_update_begin(pair.writer, 0), 0);
	cr_expect_eq(tidl_snapshot(pair.reader, copy, sizeof(copy), 0, NULL), TIDL_ERR_TIMEOUT);
	cr_expect_not_null(strstr(tidl_last_error(), "an update is open"), "%s", tidl_last_error());
	cr_assert_eq(tidl_update_end(pair.writer, NULL), 0);
	cr_expect_eq(tidl_snapshot(pair.reader, copy, sizeof(copy), 0, NULL), 0);
	pair_deinit(&pair);
}

/* What the documentation says of writes without brackets: nobody notices them. */
TT_TEST(steps, a_write_without_brackets_is_not_noticed, .timeout = 60)
{
	struct pair pair;
	uint64_t word;

	pair_init(&pair, TIDL_ATTACH_READ);
	cr_assert_eq(tt_step(pair.reader), 0);
	word = tdp_control_load(control_of(pair.reader));
	((float *)tidl_tensor_data(pair.writer))[0] = 7.0f;
	cr_expect(tdp_control_is_unchanged(control_of(pair.reader), word));
	cr_assert_eq(tidl_commit(pair.writer, NULL), 0);
	cr_expect_not(tdp_control_is_unchanged(control_of(pair.reader), word), "too late");
	pair_deinit(&pair);
}

TT_TEST(steps, no_snapshot_is_torn, .timeout = 100)
{
	enum { CELLS = 512, SNAPSHOTS = 3000 };
	struct tt_broker broker;
	struct tt_stepper stepper = {.broker = &broker, .name = "x", .step_count = UINT64_MAX};
	struct tidl_client *client;
	struct tidl_tensor *tensor;
	float copy[CELLS];
	uint64_t step;
	pid_t pid;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	pid = tt_stepper_start(&stepper);
	tensor = tt_get_waiting(client, "x", TIDL_ATTACH_READ);
	for (int i = 0; i < SNAPSHOTS; i++) {
		cr_assert_eq(tidl_snapshot(tensor, copy, sizeof(copy), -1, &step), 0, "%s",
			     tidl_last_error());
		for (size_t k = 0; k < CELLS; k++)
			cr_assert_eq(copy[k], (float)step);
	}
	tt_stepper_kill(pid);
	tidl_tensor_unref(tensor);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

TT_TEST(steps, they_outlive_the_connection, .timeout = 60)
{
	struct pair pair;
	uint64_t step = 0;

	pair_init(&pair, TIDL_ATTACH_READ);
	cr_assert_eq(tt_step(pair.reader), 0);
	cr_assert_eq(tidl_commit(pair.writer, NULL), 0);
	tidl_disconnect(pair.writer_client);
	tidl_disconnect(pair.reader_client);
	cr_expect_eq(tidl_commit(pair.writer, NULL), 0, "%s", tidl_last_error());
	cr_expect_eq(tidl_wait_step(pair.reader, 2, -1, &step), 0, "it is there");
	cr_expect_eq(tidl_wait_step(pair.reader, 3, 1, &step), TIDL_ERR_TIMEOUT);
	cr_expect_eq(tidl_wait_step(pair.reader, 3, -1, &step), TIDL_ERR_CLOSED);
	pair.writer_client = NULL;
	pair.reader_client = NULL;
	pair_deinit(&pair);
}

TT_TEST(steps, a_page_that_was_not_mapped_needs_the_connection, .timeout = 60)
{
	struct pair pair;
	uint64_t step;

	pair_init(&pair, TIDL_ATTACH_READ);
	tidl_disconnect(pair.reader_client);
	cr_expect_eq(tidl_step(pair.reader, &step), TIDL_ERR_CLOSED);
	pair.reader_client = NULL;
	pair_deinit(&pair);
}

/* The number of what failed, or 0. */
static int child_steps(struct tidl_tensor *mapped, struct tidl_tensor *unmapped)
{
	uint64_t step;

	if (tidl_commit(mapped, &step) != 0 || step != 2)
		return 1;
	if (tidl_wait_step(mapped, 3, 1, NULL) != TIDL_ERR_TIMEOUT)
		return 2;
	if (tidl_wait_step(mapped, 3, -1, NULL) != TIDL_ERR_BROKER_GONE)
		return 3;
	/* The first call that needs the broker connects; the tensors still came from before. */
	if (tidl_step(unmapped, &step) != TIDL_ERR_RELEASED)
		return 4;
	if (tidl_wait_step(mapped, 3, -1, NULL) != TIDL_ERR_RELEASED)
		return 5;
	tidl_tensor_unref(mapped);
	tidl_tensor_unref(unmapped);
	return 0;
}

TT_TEST(steps, a_child_goes_on_with_what_is_mapped, .timeout = 60)
{
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_tensor *mapped, *unmapped;
	pid_t pid;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	mapped = tt_tensor_counting(client, 2, shape);
	unmapped = tt_tensor_counting(client, 2, shape);
	cr_assert_eq(tidl_commit(mapped, NULL), 0);
	/* A question to the broker is open when it forks. */
	cr_assert_eq(tidl_wait_step(mapped, 2, 1, NULL), TIDL_ERR_TIMEOUT);
	pid = fork();
	if (pid == 0)
		_exit(child_steps(mapped, unmapped));
	tt_stepper_join(pid);
	cr_expect_eq(tt_step(mapped), 2);
	cr_expect_eq(tidl_wait_step(mapped, 3, 1, NULL), TIDL_ERR_TIMEOUT);
	tidl_tensor_unref(unmapped);
	tidl_tensor_unref(mapped);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

/* Whoever can write the tensor can write its page. */
TT_TEST(steps, any_content_of_the_page_is_survived, .timeout = 60)
{
	static const uint64_t words[] = {UINT64_MAX,	 UINT64_MAX - 1, 1ull << 63,
					 0x100000001ull, 0xfffffffeull,	 1};
	struct pair pair;
	float copy[6];
	uint64_t step;

	pair_init(&pair, TIDL_ATTACH_READ);
	cr_assert_eq(tt_step(pair.writer), 0);
	for (size_t i = 0; i < TDP_ARRAY_LENGTH(words); i++) {
		bool is_open = tdp_word_is_open(words[i]);

		control_of(pair.writer)->word = words[i];
		cr_expect_eq(tt_step(pair.reader), words[i] >> 1);
		cr_expect_eq(tidl_wait_step(pair.reader, UINT64_MAX, 1, NULL), TIDL_ERR_TIMEOUT);
		cr_expect_eq(tidl_snapshot(pair.reader, copy, sizeof(copy), 1, NULL),
			     is_open ? TIDL_ERR_TIMEOUT : 0);
		/* Left open by nobody: the reader's connection cannot write, so it is taken over.
		 */
		cr_expect_eq(tidl_update_begin(pair.writer, 0), 0, "%s", tidl_last_error());
		cr_expect_eq(tidl_update_end(pair.writer, &step), 0);
		cr_expect_eq(step, ((words[i] | 1) + 1) >> 1);
	}
	pair_deinit(&pair);
}

TT_TEST(steps, the_low_half_of_the_word_wraps, .timeout = 60)
{
	struct pair pair;
	uint64_t step = 0;

	pair_init(&pair, TIDL_ATTACH_READ);
	cr_assert_eq(tt_step(pair.writer), 0);
	control_of(pair.writer)->word = 0xfffffffc;
	for (uint64_t i = 0; i < 4; i++) {
		cr_assert_eq(tidl_wait_step(pair.reader, 0x7ffffffe + i + 1, 1, NULL),
			     TIDL_ERR_TIMEOUT);
		cr_assert_eq(tidl_update_begin(pair.writer, 0), 0);
		cr_assert_eq(tidl_update_end(pair.writer, NULL), 0);
		cr_assert_eq(tidl_wait_step(pair.reader, 0x7ffffffe + i + 1, -1, &step), 0);
		cr_expect_eq(step, 0x7fffffff + i);
	}
	pair_deinit(&pair);
}
