/* SPDX-License-Identifier: Apache-2.0 */
/* Who watches the writers of a segment is told in time, once, and of what concerns it only. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "daemon/writer_watch.h"
#include "proto/mem/control.h"
#include "tests/support/leak.h"
#include "tests/unit/daemon/domain.h"
#include "tests/unit/daemon/served.h"

TestSuite(writer_watch, .init = tt_open_first_loop);

enum { WRITER = 1, READER = 2, OTHER = 3 };

struct answer {
	uint64_t request_id;
	int code;
	int count;
	char text[TDP_FAULT_TEXT_MAX];
};

static void note_answer(void *context, uint64_t request_id, const struct tdp_fault *reason)
{
	struct answer *answer = context;

	answer->request_id = request_id;
	answer->code = reason->code;
	answer->count++;
	(void)snprintf(answer->text, sizeof(answer->text), "%s", reason->text);
}

static int park(struct tdd_holder *holder, struct tdd_segment *segment, struct answer *answer)
{
	struct tdd_writer_watch_spec spec = {
		.segment = segment, .request_id = 7, .answer = note_answer, .context = answer};
	struct tdp_fault fault;

	return tdd_writer_watch_park(holder, &spec, &fault);
}

TT_TEST(writer_watch, the_end_of_the_only_writer)
{
	struct tt_domain domain;
	struct tdd_holder writer, reader;
	struct tdd_segment *segment;
	struct answer answer = {0};
	struct tdp_fault fault;

	tt_domain_init(&domain);
	tt_holder_init(&domain, &writer, WRITER);
	tt_holder_init(&domain, &reader, READER);
	segment = tt_allocate(&domain, &writer, 100);
	tt_lease(&domain, &reader, tt_publish(&domain, &writer, "x", segment), TIDL_ATTACH_READ);
	cr_assert_eq(park(&reader, segment, &answer), 0);
	cr_expect_eq(tdd_writer_check(segment, &reader, &fault), 0);
	cr_expect_eq(tt_used(&domain, READER, TDD_QUOTA_WAITS), 1);
	cr_expect_eq(answer.count, 0);
	tt_holder_end(&domain, &writer);
	cr_expect_eq(answer.count, 1);
	cr_expect_eq(answer.request_id, 7);
	cr_expect_eq(answer.code, TIDL_ERR_WRITER_GONE);
	cr_expect_not_null(strstr(answer.text, "process 1, the last that could, has ended"), "%s",
			   answer.text);
	cr_expect_eq(tt_used(&domain, READER, TDD_QUOTA_WAITS), 0);
	cr_expect_eq(park(&reader, segment, &answer), TIDL_ERR_WRITER_GONE, "it stays so");
	tt_holder_end(&domain, &reader);
	tt_domain_deinit(&domain);
}

TT_TEST(writer_watch, letting_go_is_told_when_nobody_is_left)
{
	struct tt_domain domain;
	struct tdd_holder writer, reader;
	struct tdd_segment *segment;
	struct tdd_publication *publication;
	struct tdd_hold *lease;
	struct answer answer = {0};

	tt_domain_init(&domain);
	tt_holder_init(&domain, &writer, WRITER);
	tt_holder_init(&domain, &reader, READER);
	segment = tt_allocate(&domain, &writer, 100);
	publication = tt_publish(&domain, &writer, "x", segment);
	tt_lease(&domain, &reader, publication, TIDL_ATTACH_READ);
	lease = tt_lease(&domain, &writer, publication, TIDL_ATTACH_WRITE);
	cr_assert_eq(park(&reader, segment, &answer), 0);
	tdd_hold_free(tdd_allocation_find(&writer, segment->id));
	cr_expect_eq(answer.count, 0, "it has another hold to write by");
	tdd_hold_free(lease);
	cr_expect_eq(answer.count, 1);
	cr_expect_not_null(strstr(answer.text, "has let go of it"), "%s", answer.text);
	/* Somebody who can write comes back. */
	tt_lease(&domain, &writer, publication, TIDL_ATTACH_WRITE);
	cr_expect_eq(park(&reader, segment, &answer), 0);
	cr_expect_eq(answer.count, 1);
	tt_holder_end(&domain, &reader);
	tt_holder_end(&domain, &writer);
	cr_expect_eq(answer.count, 1, "the one who has gone is told nothing");
	tdd_registry_unlist(&domain.registry, publication);
	tt_domain_deinit(&domain);
}

/* Two take turns, each can write, and each wants to know of the other's end only. */
TT_TEST(writer_watch, a_writer_watches_the_others)
{
	struct tt_domain domain;
	struct tdd_holder first, second;
	struct tdd_segment *segment;
	struct tdd_publication *publication;
	struct answer answer = {0};
	struct tdp_fault fault;

	tt_domain_init(&domain);
	tt_holder_init(&domain, &first, WRITER);
	tt_holder_init(&domain, &second, OTHER);
	segment = tt_allocate(&domain, &first, 100);
	publication = tt_publish(&domain, &first, "x", segment);
	cr_expect_eq(tdd_writer_check(segment, &first, &fault), TIDL_ERR_WRITER_GONE);
	cr_assert_eq(park(&first, segment, &answer), 0, "the other has not come yet");
	tt_lease(&domain, &second, publication, TIDL_ATTACH_WRITE);
	cr_expect_eq(tdd_writer_check(segment, &first, &fault), 0);
	tt_holder_end(&domain, &second);
	cr_expect_eq(answer.count, 1);
	cr_expect_eq(answer.code, TIDL_ERR_WRITER_GONE);
	tt_holder_end(&domain, &first);
	tdd_registry_unlist(&domain.registry, publication);
	tt_domain_deinit(&domain);
}

TT_TEST(writer_watch, the_end_of_one_of_several_writers)
{
	struct tt_domain domain;
	struct tdd_holder writer, other, reader;
	struct tdd_segment *segment;
	struct tdd_publication *publication;
	struct tdd_hold *lease;
	struct answer answer = {0};

	tt_domain_init(&domain);
	tt_holder_init(&domain, &writer, WRITER);
	tt_holder_init(&domain, &other, OTHER);
	tt_holder_init(&domain, &reader, READER);
	segment = tt_allocate(&domain, &writer, 100);
	publication = tt_publish(&domain, &writer, "x", segment);
	tt_lease(&domain, &reader, publication, TIDL_ATTACH_READ);
	cr_assert_eq(park(&reader, segment, &answer), 0);
	lease = tt_lease(&domain, &other, publication, TIDL_ATTACH_WRITE);
	tdd_hold_free(lease);
	cr_expect_eq(answer.count, 0, "the other has let go, and the first can go on");
	tt_lease(&domain, &other, publication, TIDL_ATTACH_WRITE);
	other.said_goodbye = true;
	tt_holder_end(&domain, &other);
	cr_expect_eq(answer.count, 0, "it went by its own will");
	tt_holder_init(&domain, &other, OTHER);
	tt_lease(&domain, &other, publication, TIDL_ATTACH_WRITE);
	tt_holder_end(&domain, &other);
	cr_expect_eq(answer.count, 1, "who dies may have been in the middle of a step");
	cr_expect_not_null(strstr(answer.text, "others can still write it"), "%s", answer.text);
	cr_expect_eq(park(&reader, segment, &answer), 0);
	tt_holder_end(&domain, &reader);
	tt_holder_end(&domain, &writer);
	tdd_registry_unlist(&domain.registry, publication);
	tt_domain_deinit(&domain);
}

TT_TEST(writer_watch, it_ends_with_the_last_hold)
{
	struct tt_domain domain;
	struct tdd_holder writer, reader;
	struct tdd_segment *segment;
	struct tdd_publication *publication;
	struct tdd_hold *first, *second;
	struct answer answer = {0};

	tt_domain_init(&domain);
	tt_holder_init(&domain, &writer, WRITER);
	tt_holder_init(&domain, &reader, READER);
	segment = tt_allocate(&domain, &writer, 100);
	publication = tt_publish(&domain, &writer, "x", segment);
	first = tt_lease(&domain, &reader, publication, TIDL_ATTACH_READ);
	second = tt_lease(&domain, &reader, publication, TIDL_ATTACH_READ);
	cr_assert_eq(park(&reader, segment, &answer), 0);
	tdd_hold_free(first);
	cr_expect_eq(answer.count, 0);
	tdd_hold_free(second);
	cr_expect_eq(answer.count, 1);
	cr_expect_eq(answer.code, TIDL_ERR_CANCELLED);
	tt_holder_end(&domain, &reader);
	tt_holder_end(&domain, &writer);
	tdd_registry_unlist(&domain.registry, publication);
	tt_domain_deinit(&domain);
}

/* ---- by the wire ---- */

static struct tdp_message watch_message(uint64_t segment_id, bool wait)
{
	return (struct tdp_message){
		.kind = TDP_MESSAGE_WATCH_WRITER,
		.watch_writer = {.segment_id = segment_id, .wait = wait},
	};
}

static uint64_t share(struct tdd_server *server, struct tt_client *writer, struct tt_client *reader)
{
	uint64_t segment_id;

	tt_join(server, writer);
	tt_join(server, reader);
	segment_id = tt_call_allocate(server, writer, 128);
	cr_assert_eq(tt_call_publish(server, writer, "a/x", segment_id), 0);
	cr_assert_eq(tt_call(server, reader, tt_get("a/x", TIDL_ATTACH_READ)), 0);
	return segment_id;
}

TT_TEST(writer_watch, a_parked_request_is_answered_once)
{
	struct tdd_server *server = tt_server_new(false);
	struct tt_client writer, reader;
	uint64_t segment_id = share(server, &writer, &reader);
	uint64_t request_id = tt_send(&reader, watch_message(segment_id, true));

	tt_turn(server);
	cr_assert_eq(tt_receive(&reader), -EAGAIN);
	tt_disconnect(&writer);
	tt_turn(server);
	cr_assert_eq(tt_receive(&reader), 0);
	cr_expect_eq(reader.reply.request_id, request_id);
	cr_expect_eq(reader.reply.kind, TDP_MESSAGE_FAILURE);
	cr_expect_eq(reader.reply.failure.code, TIDL_ERR_WRITER_GONE);
	cr_expect_eq(tt_receive(&reader), -EAGAIN);
	cr_expect_eq(tt_call(server, &reader, watch_message(segment_id, true)),
		     TIDL_ERR_WRITER_GONE);
	cr_expect_eq(tt_receive(&reader), -EAGAIN);
	tt_disconnect(&reader);
	tdd_server_free(server);
}

TT_TEST(writer_watch, a_question_is_answered_at_once)
{
	struct tdd_server *server = tt_server_new(false);
	struct tt_client writer, reader, stranger;
	uint64_t segment_id = share(server, &writer, &reader);

	tt_join(server, &stranger);
	cr_expect_eq(tt_call(server, &reader, watch_message(segment_id, false)), 0);
	cr_expect_eq(reader.reply.kind, TDP_MESSAGE_DONE);
	cr_expect_eq(tt_call(server, &writer, watch_message(segment_id, false)),
		     TIDL_ERR_WRITER_GONE);
	cr_expect_eq(tt_call(server, &stranger, watch_message(segment_id, false)),
		     TIDL_ERR_PERMISSION);
	cr_expect_eq(tt_call(server, &stranger, watch_message(segment_id, true)),
		     TIDL_ERR_PERMISSION);
	cr_expect_eq(tt_call(server, &reader, watch_message(segment_id + 1, true)),
		     TIDL_ERR_PERMISSION);
	tt_disconnect(&writer);
	tt_disconnect(&reader);
	tt_disconnect(&stranger);
	tdd_server_free(server);
}

TT_TEST(writer_watch, cancelling_and_too_many)
{
	struct tdd_server *server = tt_server_new(false);
	struct tdp_message cancel = {.kind = TDP_MESSAGE_CANCEL};
	struct tt_client writer, reader;
	uint64_t segment_id = share(server, &writer, &reader);

	cancel.cancel.request_id = tt_send(&reader, watch_message(segment_id, true));
	tt_post(&reader, cancel);
	tt_turn(server);
	cr_assert_eq(tt_receive(&reader), 0);
	cr_expect_eq(reader.reply.request_id, cancel.cancel.request_id);
	cr_expect_eq(reader.reply.failure.code, TIDL_ERR_CANCELLED);
	for (int i = 0; i < TDD_WAITS_PER_SESSION; i++) {
		tt_send(&reader, watch_message(segment_id, true));
		tt_turn(server);
	}
	cr_assert_eq(tt_receive(&reader), -EAGAIN);
	cr_expect_eq(tt_call(server, &reader, watch_message(segment_id, true)), TIDL_ERR_QUOTA);
	tt_disconnect(&reader);
	tt_disconnect(&writer);
	tdd_server_free(server);
}
