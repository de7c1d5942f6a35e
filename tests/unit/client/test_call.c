/* SPDX-License-Identifier: Apache-2.0 */
/* Several threads on one connection, waits and time-outs. */
#include <pthread.h>
#include <stdio.h>

#include "client/lib/client.h"
#include "tests/support/leak.h"
#include "tests/unit/client/support/broker.h"

static const int64_t shape[] = {2, 3};

static int get_waiting(struct tidl_client *client, const char *name, int64_t timeout_ms,
		       struct tidl_tensor **ret_tensor)
{
	struct tidl_get_options options = {.size = sizeof(options), .timeout_ms = timeout_ms};

	return tidl_get(client, name, &options, ret_tensor);
}

TT_TEST(call, a_time_out_passes, .timeout = 60)
{
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_tensor *tensor = NULL;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	cr_assert_eq(get_waiting(client, "late", 30, &tensor), TIDL_ERR_TIMEOUT);
	cr_assert_not_null(strstr(tidl_last_error(), "late"));
	cr_assert_eq(client->orphan_count, 0, "the broker answered the cancel");
	/* The connection is as good as before. */
	tensor = tt_tensor_counting(client, 2, shape);
	tt_publish(client, "late", tensor, NULL, NULL);
	tidl_tensor_unref(tensor);
	cr_assert_eq(get_waiting(client, "late", 30, &tensor), 0);
	tidl_tensor_unref(tensor);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

struct waiter {
	struct tidl_client *client;
	const char *name;
	int result;
	float seen;
};

static void *waiter_main(void *argument)
{
	struct waiter *waiter = argument;
	struct tidl_tensor *tensor = NULL;

	waiter->result = get_waiting(waiter->client, waiter->name, -1, &tensor);
	if (waiter->result == 0)
		waiter->seen = ((float *)tidl_tensor_data(tensor))[5];
	tidl_tensor_unref(tensor);
	return NULL;
}

TT_TEST(call, a_wait_in_one_thread_does_not_stop_calls_in_another, .timeout = 60)
{
	enum { THREADS = 3 };
	static const char *const names[THREADS] = {"a", "b", "c"};
	struct tt_broker broker;
	struct tidl_client *client;
	struct waiter waiters[THREADS];
	pthread_t threads[THREADS];
	struct tidl_tensor *tensor;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	for (size_t i = 0; i < THREADS; i++) {
		waiters[i] = (struct waiter){.client = client, .name = names[i], .result = 1};
		cr_assert_eq(pthread_create(&threads[i], NULL, waiter_main, &waiters[i]), 0);
	}
	/* In the reverse order, so that the leader may be the last to be served. */
	tensor = tt_tensor_counting(client, 2, shape);
	for (size_t i = THREADS; i-- > 0;) {
		tt_publish(client, names[i], tensor, NULL, NULL);
		cr_assert_eq(pthread_join(threads[i], NULL), 0);
		cr_assert_eq(waiters[i].result, 0);
		cr_assert_float_eq(waiters[i].seen, 5.0f, 0.0f);
	}
	cr_assert_null(client->calls);
	cr_assert_null(client->leader);
	tidl_tensor_unref(tensor);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

enum { STORM_THREADS = 4, STORM_ROUNDS = 150 };

struct storm {
	struct tidl_client *client;
	int number;
	int failed_round; /* -1: none */
};

static void *storm_main(void *argument)
{
	struct storm *storm = argument;
	struct tidl_publish_options options = {.size = sizeof(options), .replace = 1};
	char name[32];

	(void)snprintf(name, sizeof(name), "storm/%d", storm->number);
	for (int i = 0; i < STORM_ROUNDS; i++) {
		struct DLManagedTensorVersioned *managed = NULL;
		struct tidl_tensor *tensor = NULL, *own = NULL, *shared = NULL;

		storm->failed_round = i;
		if (tidl_empty(storm->client, 2, shape, tt_float32, &tensor) != 0)
			return NULL;
		((float *)tidl_tensor_data(tensor))[5] = (float)(storm->number * 1000 + i);
		if (tidl_tensor_export(tensor, &managed) != 0 ||
		    tidl_publish(storm->client, name, managed, &options, NULL) != 0)
			return NULL;
		if (get_waiting(storm->client, name, -1, &own) != 0 ||
		    ((float *)tidl_tensor_data(own))[5] != (float)(storm->number * 1000 + i))
			return NULL;
		if (tidl_get(storm->client, "shared", NULL, &shared) != 0)
			return NULL;
		tidl_tensor_unref(shared);
		tidl_tensor_unref(own);
		tidl_tensor_unref(tensor);
		if (get_waiting(storm->client, "never", 1, &own) != TIDL_ERR_TIMEOUT)
			return NULL;
	}
	storm->failed_round = -1;
	return NULL;
}

TT_TEST(call, many_threads_do_everything_at_once, .timeout = 120)
{
	struct tt_broker broker;
	struct tidl_client *client;
	struct storm storms[STORM_THREADS];
	pthread_t threads[STORM_THREADS];
	struct tidl_tensor *tensor;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	tensor = tt_tensor_counting(client, 2, shape);
	tt_publish(client, "shared", tensor, NULL, NULL);
	tidl_tensor_unref(tensor);
	for (int i = 0; i < STORM_THREADS; i++) {
		storms[i] = (struct storm){.client = client, .number = i};
		cr_assert_eq(pthread_create(&threads[i], NULL, storm_main, &storms[i]), 0);
	}
	for (int i = 0; i < STORM_THREADS; i++) {
		cr_assert_eq(pthread_join(threads[i], NULL), 0);
		cr_assert_eq(storms[i].failed_round, -1, "thread %d, round %d", i,
			     storms[i].failed_round);
	}
	cr_assert_eq(client->segments.count, 0);
	cr_assert_eq(client->orphan_count, 0);
	cr_assert_eq(tt_holder_count(client, "shared"), 0);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}
