/* SPDX-License-Identifier: Apache-2.0 */
/* Answers that come late, in another order or not at all, and sockets that take nothing. */
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/lib/client.h"
#include "tests/support/leak.h"
#include "tests/unit/client/support/fake_broker.h"

static int get_waiting(struct tidl_client *client, const char *name, int64_t timeout_ms,
		       struct tidl_tensor **ret_tensor)
{
	struct tidl_get_options options = {.size = sizeof(options), .timeout_ms = timeout_ms};

	return tidl_get(client, name, &options, ret_tensor);
}

/* What the broker's side saw, read after its thread has ended. */
struct late {
	int go_on_fd;	 /* the test wants the late answer */
	int released_fd; /* the release of what nobody wanted has come */
	uint64_t released_id;
};

/* Keeps a GET unanswered although it is cancelled, and grants it when nobody waits any more. */
static void serve_late(struct tt_fake *fake, int fd)
{
	struct late *late = fake->context;
	struct tdp_message message, request = {0};
	struct tdp_arena arena;
	struct tt_grant grant;
	eventfd_t value;

	tdp_arena_init(&arena, TDP_UNPACK_MAX_BYTES);
	while (tt_fake_receive(fd, &arena, &message)) {
		if (message.kind == TDP_MESSAGE_GET) {
			request = message;
			request.get.name = NULL;
		} else if (message.kind == TDP_MESSAGE_CANCEL) {
			(void)eventfd_read(late->go_on_fd, &value);
			tt_grant_init(&grant, &request, 99, 5);
			(void)tt_fake_send(fd, &grant.message, &grant.read_fd, 1);
			tt_grant_deinit(&grant);
		} else if (message.kind == TDP_MESSAGE_RELEASE) {
			late->released_id = message.release.lease_ids[0];
			(void)eventfd_write(late->released_fd, 1);
		}
	}
	tdp_arena_deinit(&arena);
}

TT_TEST(late, what_is_granted_to_nobody_is_given_back, .timeout = 60)
{
	struct late late = {0};
	struct tt_fake fake = {.serve = serve_late, .context = &late};
	struct tidl_client *client;
	struct tidl_tensor *tensor = NULL;
	struct pollfd item = {.events = POLLIN};
	eventfd_t value;

	late.go_on_fd = eventfd(0, EFD_CLOEXEC);
	late.released_fd = eventfd(0, EFD_CLOEXEC);
	tt_fake_start(&fake);
	client = tt_fake_connect(&fake);
	/* The broker does not answer the cancel, so the call gives up on its own. */
	cr_assert_eq(get_waiting(client, "x", 10, &tensor), TIDL_ERR_TIMEOUT);
	cr_assert(strstr(tidl_last_error(), "does not answer"), "%s", tidl_last_error());
	cr_assert_eq(client->orphan_count, 1);
	cr_assert_eq(eventfd_write(late.go_on_fd, 1), 0);
	item.fd = tidl_fd(client);
	cr_assert_eq(poll(&item, 1, -1), 1);
	cr_assert_eq(tidl_dispatch(client), 0, "%s", tidl_last_error());
	cr_assert_eq(client->orphan_count, 0);
	cr_assert_eq(eventfd_read(late.released_fd, &value), 0);
	tidl_disconnect(client);
	tt_fake_stop(&fake);
	cr_assert_eq(late.released_id, 99);
	close(late.go_on_fd);
	close(late.released_fd);
}

/* Answers a cancel with the tensor that won the race. */
static void serve_race(struct tt_fake *fake, int fd)
{
	struct tdp_message message, request = {0};
	struct tdp_arena arena;
	struct tt_grant grant;

	(void)fake;
	tdp_arena_init(&arena, TDP_UNPACK_MAX_BYTES);
	while (tt_fake_receive(fd, &arena, &message)) {
		if (message.kind == TDP_MESSAGE_GET) {
			request = message;
		} else if (message.kind == TDP_MESSAGE_CANCEL) {
			tt_grant_init(&grant, &request, 98, 5);
			(void)tt_fake_send(fd, &grant.message, &grant.read_fd, 1);
			tt_grant_deinit(&grant);
		}
	}
	tdp_arena_deinit(&arena);
}

TT_TEST(late, a_tensor_that_beats_the_cancel_is_handed_out, .timeout = 60)
{
	struct tt_fake fake = {.serve = serve_race};
	struct tidl_client *client;
	struct tidl_tensor *tensor = NULL;

	tt_fake_start(&fake);
	client = tt_fake_connect(&fake);
	cr_assert_eq(get_waiting(client, "x", 10, &tensor), 0, "%s", tidl_last_error());
	tidl_tensor_unref(tensor);
	tidl_disconnect(client);
	tt_fake_stop(&fake);
}

/* Answers two requests in the wrong order, from one thread's view. */
static void serve_crossed(struct tt_fake *fake, int fd)
{
	struct tdp_message message;
	uint64_t first_id = 0;
	struct tdp_arena arena;
	struct tt_grant grant;

	(void)fake;
	tdp_arena_init(&arena, TDP_UNPACK_MAX_BYTES);
	while (tt_fake_receive(fd, &arena, &message)) {
		if (message.kind != TDP_MESSAGE_GET)
			continue;
		if (first_id == 0) {
			first_id = message.request_id;
			continue;
		}
		(void)tt_fake_send_failure(fd, message.request_id, TIDL_ERR_PERMISSION);
		tt_grant_init(&grant, &message, 97, 5);
		grant.message.request_id = first_id;
		grant.message.granted.attach = TIDL_ATTACH_READ;
		(void)tt_fake_send(fd, &grant.message, &grant.read_fd, 1);
		tt_grant_deinit(&grant);
		first_id = 0;
	}
	tdp_arena_deinit(&arena);
}

static void *getter_main(void *argument)
{
	struct tidl_tensor *tensor = NULL;
	int r = tidl_get(argument, "x", NULL, &tensor);

	tidl_tensor_unref(tensor);
	return (void *)(intptr_t)r;
}

TT_TEST(late, answers_find_their_callers, .timeout = 60)
{
	struct tt_fake fake = {.serve = serve_crossed};
	struct tidl_client *client;

	tt_fake_start(&fake);
	client = tt_fake_connect(&fake);
	for (int i = 0; i < 50; i++) {
		pthread_t thread;
		void *theirs;
		intptr_t ours;

		cr_assert_eq(pthread_create(&thread, NULL, getter_main, client), 0);
		ours = (intptr_t)getter_main(client);
		cr_assert_eq(pthread_join(thread, &theirs), 0);
		/* One each, whoever came first. */
		cr_assert_eq(ours + (intptr_t)theirs, TIDL_ERR_PERMISSION);
	}
	tidl_disconnect(client);
	tt_fake_stop(&fake);
}

/* Reads nothing until told to, so that the client's sends meet a full socket. */
static void serve_stopped(struct tt_fake *fake, int fd)
{
	struct late *late = fake->context;
	struct tdp_message message;
	struct tdp_arena arena;
	eventfd_t value;

	(void)eventfd_read(late->go_on_fd, &value);
	tdp_arena_init(&arena, TDP_UNPACK_MAX_BYTES);
	while (tt_fake_receive(fd, &arena, &message)) {
		if (message.kind == TDP_MESSAGE_REMOVE)
			(void)tt_fake_send_failure(fd, message.request_id, TIDL_ERR_NOT_FOUND);
	}
	tdp_arena_deinit(&arena);
}

static void *remover_main(void *argument)
{
	return (void *)(intptr_t)tidl_remove(argument, "x");
}

TT_TEST(late, a_full_socket_makes_calls_wait_and_loses_none, .timeout = 60)
{
	enum { THREADS = 3, JUNK = 2000 };
	struct late late = {0};
	struct tt_fake fake = {.serve = serve_stopped, .context = &late};
	struct tidl_client *client;
	pthread_t threads[THREADS];
	size_t queued = 0;

	late.go_on_fd = eventfd(0, EFD_CLOEXEC);
	tt_fake_start(&fake);
	client = tt_fake_connect(&fake);
	/* Releases fill it up, and then their queue. */
	for (uint64_t i = 1; i <= JUNK; i++) {
		struct tdc_lease *lease;
		struct tdp_fault fault;

		cr_assert_eq(tdc_lease_new(TDC_LEASE_PUBLICATION, &lease, &fault), 0);
		lease->id = i;
		lease->era = client->era;
		tdc_lease_end(client, lease);
		queued += client->outbound.head != NULL;
	}
	cr_assert_gt(queued, 0, "the socket took everything: send more");
	for (size_t i = 0; i < THREADS; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, remover_main, client), 0);
	cr_assert_eq(eventfd_write(late.go_on_fd, 1), 0);
	for (size_t i = 0; i < THREADS; i++) {
		void *result;

		cr_assert_eq(pthread_join(threads[i], &result), 0);
		cr_assert_eq((intptr_t)result, TIDL_ERR_NOT_FOUND);
	}
	cr_assert_null(client->outbound.head, "what was queued went before");
	tidl_disconnect(client);
	tt_fake_stop(&fake);
	close(late.go_on_fd);
}

TT_TEST(late, a_request_that_was_never_sent_just_ends, .timeout = 60)
{
	enum { JUNK = 2000 };
	struct late late = {0};
	struct tt_fake fake = {.serve = serve_stopped, .context = &late};
	struct tidl_client *client;
	struct tidl_tensor *tensor = NULL;

	late.go_on_fd = eventfd(0, EFD_CLOEXEC);
	tt_fake_start(&fake);
	client = tt_fake_connect(&fake);
	for (uint64_t i = 1; i <= JUNK; i++) {
		struct tdc_lease *lease;
		struct tdp_fault fault;

		cr_assert_eq(tdc_lease_new(TDC_LEASE_ALLOCATION, &lease, &fault), 0);
		lease->id = i;
		lease->era = client->era;
		tdc_lease_end(client, lease);
	}
	cr_assert_eq(get_waiting(client, "x", 20, &tensor), TIDL_ERR_TIMEOUT);
	cr_assert_eq(client->orphan_count, 0);
	cr_assert_null(client->calls);
	cr_assert_eq(eventfd_write(late.go_on_fd, 1), 0);
	tidl_disconnect(client);
	tt_fake_stop(&fake);
	close(late.go_on_fd);
}
