/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that no thread waits for, and the descriptor that event loops watch. */
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/lib/client.h"
#include "client/lib/waiters.h"
#include "tests/support/leak.h"
#include "tests/unit/client/support/broker.h"
#include "tests/unit/client/support/fake_broker.h"

static const int64_t shape[] = {2, 3};

/* What an event loop does, once. */
static void loop_once(struct tidl_client *client)
{
	struct pollfd item = {.fd = tidl_fd(client), .events = POLLIN};

	cr_assert_geq(item.fd, 0, "%s", tidl_last_error());
	cr_assert_eq(poll(&item, 1, -1), 1);
	cr_assert_eq(tidl_dispatch(client), 0, "%s", tidl_last_error());
}

static void loop_until_done(struct tidl_client *client, struct tidl_pending *pending)
{
	while (!tidl_pending_is_done(pending))
		loop_once(client);
}

static struct tidl_pending *begin(struct tidl_client *client, const char *name, uint64_t key)
{
	struct tidl_get_options options = {.size = sizeof(options), .timeout_ms = -1};
	struct tidl_pending *pending = NULL;

	cr_assert_eq(tidl_get_begin(client, name, &options, &pending), 0, "%s", tidl_last_error());
	tidl_pending_set_key(pending, key);
	return pending;
}

static void publish(struct tidl_client *client, const char *name)
{
	struct tidl_tensor *tensor = tt_tensor_counting(client, 2, shape);

	tt_publish(client, name, tensor, NULL, NULL);
	(void)tidl_tensor_unref(tensor);
}

TT_TEST(pending, a_loop_gets_a_tensor_when_it_appears, .timeout = 60)
{
	struct tt_broker broker;
	struct tidl_client *client, *publisher;
	struct tidl_pending *pending;
	struct tidl_tensor *tensor = NULL;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	publisher = tt_broker_connect(&broker);
	pending = begin(client, "later", 0);
	cr_assert_eq(tidl_due(client), 1);
	cr_assert_eq(tidl_pending_tensor(pending, &tensor), TIDL_ERR_BUSY);
	publish(publisher, "later");
	loop_until_done(client, pending);
	cr_assert_eq(tidl_due(client), 0);
	cr_assert_eq(tidl_pending_tensor(pending, &tensor), 0, "%s", tidl_last_error());
	cr_assert_eq(((float *)tidl_tensor_data(tensor))[5], 5.0f);
	cr_assert_str_eq(tidl_tensor_name(tensor), "later");
	(void)tidl_tensor_unref(tensor);
	cr_assert_eq(tidl_pending_tensor(pending, &tensor), TIDL_ERR_INVALID_ARGUMENT);
	tidl_pending_free(pending);
	tidl_disconnect(client);
	tidl_disconnect(publisher);
	tt_broker_stop(&broker);
}

TT_TEST(pending, a_request_that_does_not_wait_is_refused_as_soon_as_it_is_answered, .timeout = 60)
{
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_pending *pending = NULL;
	struct tidl_tensor *tensor = NULL;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	cr_assert_eq(tidl_get_begin(client, "never", NULL, &pending), 0);
	loop_until_done(client, pending);
	cr_assert_eq(tidl_pending_tensor(pending, &tensor), TIDL_ERR_NOT_FOUND);
	tidl_pending_free(pending);
	cr_assert_eq(tidl_get_begin(client, "a//b", NULL, &pending), TIDL_ERR_NAME_INVALID);
	cr_assert_eq(tidl_get_begin(client, NULL, NULL, &pending), TIDL_ERR_INVALID_ARGUMENT);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

TT_TEST(pending, what_is_freed_unanswered_is_cancelled_at_the_broker, .timeout = 60)
{
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_pending *pending;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	pending = begin(client, "later", 7);
	tidl_pending_free(pending);
	cr_assert_eq(tidl_due(client), 1, "the broker answers what is cancelled");
	while (tidl_due(client) > 0)
		loop_once(client);
	cr_assert_eq(tidl_ready(client), 0, "nobody is left to be told");
	publish(client, "later");
	cr_assert_eq(tt_holder_count(client, "later"), 0, "no lease was left waiting");
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

/* What is granted, yet not taken, goes back. */
TT_TEST(pending, a_tensor_that_nobody_takes_is_given_back, .timeout = 60)
{
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_pending *pending;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	publish(client, "x");
	pending = begin(client, "x", 0);
	loop_until_done(client, pending);
	cr_assert_eq(tt_holder_count(client, "x"), 1);
	tidl_pending_free(pending);
	cr_assert_eq(tt_holder_count(client, "x"), 0);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

TT_TEST(pending, a_call_that_receives_for_the_loop_wakes_it, .timeout = 60)
{
	struct tt_broker broker;
	struct tidl_client *client, *publisher;
	struct tidl_pending *pending;
	struct pollfd item = {.events = POLLIN};

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	publisher = tt_broker_connect(&broker);
	item.fd = tidl_fd(client);
	pending = begin(client, "later", 7);
	publish(publisher, "later");
	/* Answers come in order: this call takes the tensor off the socket before its own. */
	cr_assert_eq(tidl_remove(client, "none"), TIDL_ERR_NOT_FOUND);
	cr_assert(tidl_pending_is_done(pending));
	cr_assert_eq(poll(&item, 1, 0), 1, "the loop is told");
	cr_assert_eq(tidl_dispatch(client), 0);
	cr_assert_eq(tidl_ready(client), 7);
	cr_assert_eq(tidl_ready(client), 0);
	cr_assert_eq(poll(&item, 1, 0), 0, "once");
	tidl_pending_free(pending);
	/* A key that is set late is not forgotten. */
	pending = begin(client, "later", 0);
	loop_until_done(client, pending);
	cr_assert_eq(tidl_ready(client), 0);
	tidl_pending_set_key(pending, 8);
	cr_assert_eq(tidl_ready(client), 8);
	tidl_pending_free(pending);
	tidl_disconnect(client);
	tidl_disconnect(publisher);
	tt_broker_stop(&broker);
}

struct getter {
	struct tidl_client *client;
	int result;
};

static void *getter_main(void *argument)
{
	struct tidl_get_options options = {.size = sizeof(options), .timeout_ms = -1};
	struct getter *getter = argument;
	struct tidl_tensor *tensor = NULL;

	getter->result = tidl_get(getter->client, "never", &options, &tensor);
	return NULL;
}

TT_TEST(pending, close_ends_calls_and_requests, .timeout = 60)
{
	enum { THREADS = 2 };
	struct tt_broker broker;
	struct getter getters[THREADS];
	pthread_t threads[THREADS];
	struct tidl_client *client;
	struct tidl_pending *pending;
	struct tidl_tensor *tensor = NULL;
	struct pollfd item = {.events = POLLIN};

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	item.fd = tidl_fd(client);
	pending = begin(client, "never", 9);
	for (size_t i = 0; i < THREADS; i++) {
		getters[i] = (struct getter){.client = client};
		cr_assert_eq(pthread_create(&threads[i], NULL, getter_main, &getters[i]), 0);
	}
	tidl_close(client);
	for (size_t i = 0; i < THREADS; i++) {
		cr_assert_eq(pthread_join(threads[i], NULL), 0);
		cr_assert_eq(getters[i].result, TIDL_ERR_CLOSED);
	}
	cr_assert_eq(poll(&item, 1, -1), 1, "a loop hears of it");
	cr_assert_eq(tidl_dispatch(client), TIDL_ERR_CLOSED);
	cr_assert_eq(tidl_ready(client), 9);
	cr_assert_eq(tidl_pending_tensor(pending, &tensor), TIDL_ERR_CLOSED);
	tidl_close(client);
	tidl_close(NULL);
	tidl_disconnect(client);
	tidl_pending_free(pending); /* may stay behind */
	tidl_pending_free(NULL);
	tt_broker_stop(&broker);
}

TT_TEST(pending, a_dead_broker_ends_them, .timeout = 60)
{
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_pending *pending;
	struct tidl_tensor *tensor = NULL;
	struct pollfd item = {.events = POLLIN};

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	item.fd = tidl_fd(client);
	pending = begin(client, "never", 3);
	tt_broker_kill(&broker);
	cr_assert_eq(poll(&item, 1, -1), 1);
	cr_assert_eq(tidl_dispatch(client), TIDL_ERR_BROKER_GONE);
	cr_assert_eq(tidl_ready(client), 3);
	cr_assert_eq(tidl_pending_tensor(pending, &tensor), TIDL_ERR_BROKER_GONE);
	tidl_pending_free(pending);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

TT_TEST(pending, a_forked_child_has_none_of_the_parents, .timeout = 60)
{
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_pending *pending;
	struct tidl_tensor *tensor = NULL;
	int status;
	pid_t child;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	cr_assert_geq(tidl_fd(client), 0);
	pending = begin(client, "later", 0);
	child = fork();
	if (child == 0) {
		bool is_good = tidl_pending_is_done(pending) &&
			       tidl_pending_tensor(pending, &tensor) == TIDL_ERR_CANCELLED;

		tidl_pending_free(pending);
		is_good = is_good && tidl_get(client, "later", NULL, &tensor) == TIDL_ERR_NOT_FOUND;
		is_good = is_good && tidl_fd(client) >= 0 && tidl_due(client) == 0;
		tidl_disconnect(client);
		_exit(is_good ? 0 : 1);
	}
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert_eq(status, 0);
	publish(client, "later");
	loop_until_done(client, pending);
	cr_assert_eq(tidl_pending_tensor(pending, &tensor), 0, "%s", tidl_last_error());
	(void)tidl_tensor_unref(tensor);
	tidl_pending_free(pending);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

/* What the broker's side saw. */
struct stopped {
	int go_on_fd;
	size_t get_count;
	size_t cancel_count;
	uint64_t released_id;
};

/* Reads nothing until told to. Then grants what is cancelled, and nothing else. */
static void serve_stopped(struct tt_fake *fake, int fd)
{
	struct stopped *stopped = fake->context;
	struct tdp_message message, request = {0};
	struct tdp_arena arena;
	struct tt_grant grant;
	eventfd_t value;

	(void)eventfd_read(stopped->go_on_fd, &value);
	tdp_arena_init(&arena, TDP_UNPACK_MAX_BYTES);
	while (tt_fake_receive(fd, &arena, &message)) {
		if (message.kind == TDP_MESSAGE_GET) {
			stopped->get_count++;
			request = message;
		} else if (message.kind == TDP_MESSAGE_CANCEL) {
			stopped->cancel_count++;
			tt_grant_init(&grant, &request, 99, 5);
			(void)tt_fake_send(fd, &grant.message, &grant.read_fd, 1);
			tt_grant_deinit(&grant);
		} else if (message.kind == TDP_MESSAGE_RELEASE &&
			   message.release.lease_ids[0] == 99) {
			stopped->released_id = 99;
		}
	}
	tdp_arena_deinit(&arena);
}

static void fill_socket(struct tidl_client *client)
{
	for (uint64_t i = 1000; client->outbound.head == NULL; i++) {
		struct tdc_lease *lease;
		struct tdp_fault fault;

		cr_assert_eq(tdc_lease_new(TDC_LEASE_PUBLICATION, &lease, &fault), 0);
		lease->id = i;
		lease->era = client->era;
		tdc_lease_end(client, lease);
	}
}

TT_TEST(pending, a_full_socket_delays_requests_and_cancels, .timeout = 60)
{
	struct stopped stopped = {.go_on_fd = eventfd(0, EFD_CLOEXEC)};
	struct tt_fake fake = {.serve = serve_stopped, .context = &stopped};
	struct tidl_client *client;
	struct tidl_pending *first, *never_sent;
	struct pollfd item = {.events = POLLIN};

	tt_fake_start(&fake);
	client = tt_fake_connect(&fake);
	fill_socket(client);
	first = begin(client, "x", 0);
	never_sent = begin(client, "y", 0);
	tidl_pending_free(never_sent);
	item.fd = tidl_fd(client);
	cr_assert_eq(poll(&item, 1, 0), 0);
	cr_assert_eq(eventfd_write(stopped.go_on_fd, 1), 0);
	while (!client->calls->is_sent)
		loop_once(client);
	cr_assert_null(client->outbound.head);
	tidl_pending_free(first);
	/* The tensor that came all the same was for nobody. */
	while (tidl_due(client) > 0)
		loop_once(client);
	tidl_disconnect(client);
	tt_fake_stop(&fake);
	cr_assert_eq(stopped.get_count, 1);
	cr_assert_eq(stopped.cancel_count, 1);
	cr_assert_eq(stopped.released_id, 99);
	close(stopped.go_on_fd);
}
