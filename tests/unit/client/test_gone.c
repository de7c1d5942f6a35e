/* SPDX-License-Identifier: Apache-2.0 */
/* Brokers that die. */
#include <poll.h>
#include <pthread.h>

#include <dlpack/dlpack.h>

#include "client/lib/client.h"
#include "tests/support/leak.h"
#include "tests/unit/client/support/broker.h"

static const int64_t shape[] = {2, 3};

TT_TEST(gone, calls_say_so_and_memory_stays, .timeout = 60)
{
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_tensor *tensor, *other = NULL;
	struct tidl_listing *listing;
	DLManagedTensorVersioned *managed = NULL;
	struct pollfd item = {.events = POLLIN};

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	tensor = tt_tensor_counting(client, 2, shape);
	item.fd = tidl_fd(client);
	cr_assert_geq(item.fd, 0);
	cr_assert_eq(tidl_dispatch(client), 0);
	tt_broker_kill(&broker);
	cr_assert_eq(poll(&item, 1, -1), 1);
	cr_assert_eq(tidl_dispatch(client), TIDL_ERR_BROKER_GONE);
	cr_assert_not_null(strstr(tidl_last_error(), broker.address));
	cr_assert_eq(tidl_fd(client), TIDL_ERR_BROKER_GONE);
	cr_assert_eq(tidl_list(client, NULL, &listing), TIDL_ERR_BROKER_GONE);
	cr_assert_eq(tidl_get(client, "x", NULL, &other), TIDL_ERR_BROKER_GONE);
	cr_assert_eq(tidl_empty(client, 2, shape, tt_float32, &other), TIDL_ERR_BROKER_GONE);
	cr_assert_eq(tidl_tensor_export(tensor, &managed), 0);
	cr_assert_eq(tidl_publish(client, "x", managed, NULL, NULL), TIDL_ERR_BROKER_GONE);
	((float *)managed->dl_tensor.data)[5] = 1.0f;
	managed->deleter(managed);
	tidl_tensor_unref(tensor);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

TT_TEST(gone, found_by_the_call_itself, .timeout = 60)
{
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_listing *listing;
	struct tidl_tensor *tensor;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	tensor = tt_tensor_counting(client, 2, shape);
	tt_broker_kill(&broker);
	/* The lease cannot be given back any more; nobody cares. */
	tidl_tensor_unref(tensor);
	cr_assert_eq(tidl_list(client, NULL, &listing), TIDL_ERR_BROKER_GONE);
	cr_assert_eq(tidl_list(client, NULL, &listing), TIDL_ERR_BROKER_GONE);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

static void *waiting_thread(void *argument)
{
	struct tidl_get_options options = {.size = sizeof(options), .timeout_ms = -1};
	struct tidl_tensor *tensor = NULL;
	int r = tidl_get(argument, "never", &options, &tensor);

	return (void *)(intptr_t)r;
}

TT_TEST(gone, every_waiting_thread_is_told, .timeout = 60)
{
	enum { THREADS = 4 };
	struct tt_broker broker;
	struct tidl_client *client;
	pthread_t threads[THREADS];
	struct tidl_listing *listing;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	for (size_t i = 0; i < THREADS; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, waiting_thread, client), 0);
	/* Other calls go on while they wait. */
	for (int i = 0; i < 50; i++) {
		cr_assert_eq(tidl_list(client, NULL, &listing), 0, "%s", tidl_last_error());
		tidl_listing_free(listing);
	}
	tt_broker_kill(&broker);
	for (size_t i = 0; i < THREADS; i++) {
		void *result;

		cr_assert_eq(pthread_join(threads[i], &result), 0);
		cr_assert_eq((intptr_t)result, TIDL_ERR_BROKER_GONE);
	}
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

TT_TEST(gone, after_disconnect_a_client_with_tensors_is_closed, .timeout = 60)
{
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_tensor *tensor;
	struct tidl_client *other;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	other = tt_broker_connect(&broker);
	tensor = tt_tensor_counting(client, 2, shape);
	tt_publish(client, "x", tensor, NULL, NULL);
	cr_assert_eq(tt_holder_count(other, "x"), 1);
	tidl_disconnect(client);
	/* The tensor keeps the object, so this is defined; the connection is over for good. */
	cr_assert_eq(tidl_dispatch(tensor != NULL ? client : NULL), TIDL_ERR_CLOSED);
	cr_assert_eq(tidl_fd(client), TIDL_ERR_CLOSED);
	((float *)tidl_tensor_data(tensor))[0] = 4.0f;
	tidl_tensor_unref(tensor);
	tidl_disconnect(other);
	tt_broker_stop(&broker);
}
