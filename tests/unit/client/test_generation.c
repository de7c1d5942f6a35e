/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for generations and their release, pins, and events, of a real broker. */
#include <pthread.h>
#include <string.h>

#include "client/lib/client.h"
#include "tests/support/leak.h"
#include "tests/unit/client/support/broker.h"

static const int64_t shape[] = {2, 3};

static uint64_t publish(struct tidl_client *client, const char *name)
{
	struct tidl_publish_options options = {.size = sizeof(options), .replace = 1};
	struct tidl_publication publication = {.size = sizeof(publication)};
	struct tidl_tensor *tensor = tt_tensor_counting(client, 2, shape);

	tt_publish(client, name, tensor, &options, &publication);
	(void)tidl_tensor_unref(tensor);
	return publication.generation;
}

static int wait_for(struct tidl_client *client, struct tidl_wait_options options,
		    uint64_t *ret_generation)
{
	options.size = sizeof(options);
	return tidl_wait(client, "x", &options, ret_generation);
}

TT_TEST(generation, waits_look_or_pass_in_time, .timeout = 60)
{
	struct tidl_wait_options both = {.newer_than = 1, .released = 1};
	struct tidl_wait_options stray = {.generation = 1};
	struct tt_broker broker;
	struct tidl_client *client;
	uint64_t generation = 0, first;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	cr_assert_eq(tidl_wait(client, "x", NULL, &generation), TIDL_ERR_TIMEOUT);
	cr_assert_eq(wait_for(client, (struct tidl_wait_options){.timeout_ms = 5}, &generation),
		     TIDL_ERR_TIMEOUT);
	cr_assert_eq(wait_for(client, both, &generation), TIDL_ERR_INVALID_ARGUMENT);
	cr_assert_eq(wait_for(client, stray, &generation), TIDL_ERR_INVALID_ARGUMENT);
	cr_assert_eq(tidl_wait(NULL, "x", NULL, &generation), TIDL_ERR_INVALID_ARGUMENT);
	cr_assert_eq(tidl_wait(client, NULL, NULL, &generation), TIDL_ERR_INVALID_ARGUMENT);
	cr_assert_eq(generation, 0, "untouched on failure");
	first = publish(client, "x");
	cr_assert_eq(tidl_wait(client, "x", NULL, NULL), 0);
	cr_assert_eq(tidl_wait(client, "x", NULL, &generation), 0);
	cr_assert_eq(generation, first);
	cr_assert_eq(wait_for(client,
			      (struct tidl_wait_options){.newer_than = first, .timeout_ms = 5},
			      &generation),
		     TIDL_ERR_TIMEOUT);
	cr_assert(strstr(tidl_last_error(), "'x'"), "%s", tidl_last_error());
	cr_assert_eq(client->orphan_count, 0);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

struct waiter {
	struct tidl_client *client;
	struct tidl_wait_options options;
	int result;
	uint64_t generation;
};

static void *waiter_main(void *argument)
{
	struct waiter *waiter = argument;

	waiter->result = wait_for(waiter->client, waiter->options, &waiter->generation);
	return NULL;
}

TT_TEST(generation, waits_end_with_what_they_wait_for, .timeout = 60)
{
	struct tt_broker broker;
	struct tidl_client *client, *holder;
	struct tidl_tensor *tensor;
	struct waiter newer, released;
	pthread_t threads[2];
	uint64_t first, second;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	holder = tt_broker_connect(&broker);
	first = publish(client, "x");
	tensor = tt_get(holder, "x", TIDL_ATTACH_READ);
	newer = (struct waiter){.client = client,
				.options = {.newer_than = first, .timeout_ms = -1}};
	released = (struct waiter){
		.client = client,
		.options = {.released = 1, .generation = first, .timeout_ms = -1},
	};
	cr_assert_eq(pthread_create(&threads[0], NULL, waiter_main, &newer), 0);
	cr_assert_eq(pthread_create(&threads[1], NULL, waiter_main, &released), 0);
	second = publish(client, "x");
	cr_assert_eq(pthread_join(threads[0], NULL), 0);
	cr_assert_eq(newer.result, 0);
	cr_assert_eq(newer.generation, second);
	(void)tidl_tensor_unref(tensor);
	cr_assert_eq(pthread_join(threads[1], NULL), 0);
	/* The replaced generation may be gone altogether when the broker hears of the release. */
	cr_assert(released.result == 0 || released.result == TIDL_ERR_GENERATION_GONE);
	tidl_disconnect(holder);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

TT_TEST(generation, a_pin_keeps_what_is_replaced_and_removed, .timeout = 60)
{
	struct tidl_get_options options = {.size = sizeof(options)};
	struct tt_broker broker;
	struct tidl_client *client, *other;
	struct tidl_tensor *tensor, *got = NULL;
	uint64_t first;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	other = tt_broker_connect(&broker);
	first = publish(client, "x");
	tensor = tt_get(client, "x", TIDL_ATTACH_READ);
	(void)publish(client, "x");
	/* Not current any more, but held. */
	cr_assert_eq(tidl_pin(other, "x", first), TIDL_ERR_GENERATION_GONE);
	cr_assert_eq(tidl_tensor_pin(tensor), 0, "%s", tidl_last_error());
	(void)tidl_tensor_unref(tensor);
	cr_assert_eq(tidl_remove(client, "x"), 0);
	options.generation = first;
	cr_assert_eq(tidl_get(other, "x", &options, &got), 0, "%s", tidl_last_error());
	cr_assert_eq(((float *)tidl_tensor_data(got))[5], 5.0f);
	(void)tidl_tensor_unref(got);
	tensor = tt_tensor_counting(client, 2, shape);
	cr_assert_eq(tidl_tensor_pin(tensor), TIDL_ERR_INVALID_ARGUMENT, "it has no name");
	(void)tidl_tensor_unref(tensor);
	cr_assert_eq(tidl_tensor_pin(NULL), TIDL_ERR_INVALID_ARGUMENT);
	cr_assert_eq(tidl_pin(client, "x", 0), TIDL_ERR_INVALID_ARGUMENT);
	cr_assert_eq(tidl_pin(client, "x", UINT64_C(1) << 60), TIDL_ERR_GENERATION_GONE);
	tidl_disconnect(other);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

TT_TEST(generation, a_watch_tells_the_life_of_a_name, .timeout = 60)
{
	static const enum tidl_event_kind expected[] = {TIDL_EVENT_PUBLISHED, TIDL_EVENT_LEASED,
							TIDL_EVENT_RELEASED, TIDL_EVENT_REMOVED};
	struct tidl_event event = {.size = sizeof(event)};
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_watch *watch = NULL;
	uint64_t generation;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	cr_assert_eq(tidl_watch(client, "x", NULL, &watch), 0, "%s", tidl_last_error());
	generation = publish(client, "x");
	(void)tidl_tensor_unref(tt_get(client, "x", TIDL_ATTACH_READ));
	cr_assert_eq(tidl_remove(client, "x"), 0);
	for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
		cr_assert_eq(tidl_watch_next(watch, -1, &event), 0, "%s", tidl_last_error());
		cr_assert_eq(event.kind, expected[i], "%s", tidl_event_kind_name(event.kind));
		cr_assert_eq(event.generation, generation);
		cr_assert_str_eq(event.name, "x");
		cr_assert_eq(event.attach != 0, i == 1 || i == 2);
	}
	tidl_unwatch(watch);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}
