/* SPDX-License-Identifier: Apache-2.0 */
/* Steps with a broker that lies about the page, or will not tell of writers that go. */
#include <string.h>

#include "tests/support/leak.h"
#include "tests/unit/client/support/broker.h"
#include "tests/unit/client/support/fake_broker.h"

enum { PAGE = 4096 };

/* How it answers. */
struct liar {
	uint64_t control_offset_bytes; /* in a segment of one page of data and one for steps */
	int watch_code;		       /* failure of WATCH_WRITER; 0: DONE; 1: no answer */
};

static void send_opened(int fd, const struct tdp_message *request, const struct tt_grant *grant,
			uint64_t control_offset_bytes)
{
	struct tdp_message reply = {
		.kind = TDP_MESSAGE_OPENED,
		.request_id = request->request_id,
		.fd_count = 1,
		.opened = {.segment = grant->segment},
	};

	reply.opened.segment.control_offset_bytes = control_offset_bytes;
	(void)tt_fake_send(fd, &reply, &grant->read_fd, 1);
}

static void send_watched(int fd, const struct tdp_message *request, int code)
{
	struct tdp_message done = {.kind = TDP_MESSAGE_DONE, .request_id = request->request_id};

	if (code < 0)
		(void)tt_fake_send_failure(fd, request->request_id, code);
	else if (code == 0)
		(void)tt_fake_send(fd, &done, NULL, 0);
}

static void serve(struct tt_fake *fake, int fd)
{
	const struct liar *liar = fake->context;
	struct tt_grant grant = {.write_fd = -1, .read_fd = -1};
	struct tdp_message message;
	struct tdp_arena arena;

	tdp_arena_init(&arena, TDP_UNPACK_MAX_BYTES);
	while (tt_fake_receive(fd, &arena, &message)) {
		if (message.kind == TDP_MESSAGE_GET) {
			tt_grant_init(&grant, &message, 31, 5);
			(void)tt_fake_send(fd, &grant.message, &grant.read_fd, 1);
		} else if (message.kind == TDP_MESSAGE_OPEN) {
			send_opened(fd, &message, &grant, liar->control_offset_bytes);
		} else if (message.kind == TDP_MESSAGE_WATCH_WRITER) {
			send_watched(fd, &message, liar->watch_code);
		}
	}
	tt_grant_deinit(&grant);
	tdp_arena_deinit(&arena);
}

TT_TEST(step_liar, the_page_must_be_where_it_can_be, .timeout = 60)
{
	static const struct {
		uint64_t offset_bytes;
		int result;
	} cases[] = {
		{PAGE, 0},
		{0, TIDL_ERR_SEGMENT_BAD}, /* none, or the data */
		{PAGE / 2, TIDL_ERR_SEGMENT_BAD},
		{PAGE + 8, TIDL_ERR_SEGMENT_BAD},
		{8192, TIDL_ERR_SEGMENT_BAD}, /* behind the end */
		{UINT64_MAX - PAGE + 1, TIDL_ERR_SEGMENT_BAD},
		{1ull << 63, TIDL_ERR_SEGMENT_BAD},
	};

	for (size_t i = 0; i < TDP_ARRAY_LENGTH(cases); i++) {
		struct liar liar = {.control_offset_bytes = cases[i].offset_bytes};
		struct tt_fake fake = {.serve = serve, .context = &liar};
		struct tidl_client *client;
		struct tidl_tensor *tensor;
		uint64_t step = 99;

		tt_fake_start(&fake);
		client = tt_fake_connect(&fake);
		tensor = tt_get(client, "x", TIDL_ATTACH_READ);
		cr_expect_eq(tidl_step(tensor, &step), cases[i].result, "case %zu: %s", i,
			     tidl_last_error());
		cr_expect_eq(step, cases[i].result == 0 ? 0 : 99);
		tidl_tensor_unref(tensor);
		tidl_disconnect(client);
		tt_fake_stop(&fake);
	}
}

/* Without somebody to tell of writers that go, only a wait that ends by itself goes on. */
TT_TEST(step_liar, a_broker_that_does_not_watch, .timeout = 60)
{
	static const struct {
		int watch_code;
		int endless_result;
	} cases[] = {
		{TIDL_ERR_QUOTA, TIDL_ERR_QUOTA},
		{TIDL_ERR_UNSUPPORTED, TIDL_ERR_UNSUPPORTED},
		{TIDL_ERR_PERMISSION, TIDL_ERR_PERMISSION},
		{0, TIDL_ERR_PROTOCOL},
		{TIDL_ERR_WRITER_GONE, TIDL_ERR_WRITER_GONE},
	};

	for (size_t i = 0; i < TDP_ARRAY_LENGTH(cases); i++) {
		struct liar liar = {.control_offset_bytes = PAGE,
				    .watch_code = cases[i].watch_code};
		struct tt_fake fake = {.serve = serve, .context = &liar};
		struct tidl_client *client;
		struct tidl_tensor *tensor;

		tt_fake_start(&fake);
		client = tt_fake_connect(&fake);
		tensor = tt_get(client, "x", TIDL_ATTACH_READ);
		cr_expect_eq(tidl_wait_step(tensor, 1, -1, NULL), cases[i].endless_result,
			     "case %zu: %s", i, tidl_last_error());
		cr_expect_eq(tidl_wait_step(tensor, 1, 300, NULL),
			     cases[i].watch_code == TIDL_ERR_WRITER_GONE ? TIDL_ERR_WRITER_GONE
									 : TIDL_ERR_TIMEOUT,
			     "case %zu: %s", i, tidl_last_error());
		tidl_tensor_unref(tensor);
		tidl_disconnect(client);
		tt_fake_stop(&fake);
	}
}

/* A question that is never answered ends with the tensor. */
TT_TEST(step_liar, a_broker_that_never_answers, .timeout = 60)
{
	struct liar liar = {.control_offset_bytes = PAGE, .watch_code = 1};
	struct tt_fake fake = {.serve = serve, .context = &liar};
	struct tidl_client *client;
	struct tidl_tensor *tensor;

	tt_fake_start(&fake);
	client = tt_fake_connect(&fake);
	tensor = tt_get(client, "x", TIDL_ATTACH_READ);
	cr_expect_eq(tidl_wait_step(tensor, 1, 30, NULL), TIDL_ERR_TIMEOUT);
	cr_expect_eq(tidl_wait_step(tensor, 1, 30, NULL), TIDL_ERR_TIMEOUT);
	tidl_tensor_unref(tensor);
	tidl_disconnect(client);
	tt_fake_stop(&fake);
}
