/* SPDX-License-Identifier: Apache-2.0 */
/* Foreign tensors published again and again, from many threads at once, and what readers see. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "client/lib/client.h"
#include "tests/support/leak.h"
#include "tests/unit/client/support/broker.h"
#include "tests/unit/client/support/foreign.h"

enum { WRITERS = 3, ROUNDS = 150, ELEMENTS = 3000 };

/* Fill, publish in place of what had the name; the memory may be changed afterwards. */
static void publish_value(struct tidl_client *client, const char *name, float *data, float value)
{
	struct tidl_publish_options options = {.size = sizeof(options), .replace = 1};
	struct tidl_publication publication = {.size = sizeof(publication)};
	int64_t shape[] = {ELEMENTS};
	struct tt_foreign foreign;

	for (int i = 0; i < ELEMENTS; i++)
		data[i] = value;
	tt_foreign_init(&foreign, data, 1, shape, NULL);
	cr_assert_eq(tidl_publish(client, name, &foreign.managed, &options, &publication), 0, "%s",
		     tidl_last_error());
	cr_assert_eq(publication.path, TIDL_PATH_COPIED);
	cr_assert_eq(foreign.deleted, 1);
}

/* True when every element has the same value. */
static bool tensor_is_whole(struct tidl_tensor *tensor)
{
	const float *data = tidl_tensor_data(tensor);

	for (int i = 1; i < ELEMENTS; i++) {
		if (data[i] != data[0])
			return false;
	}
	return true;
}

struct party {
	struct tidl_client *client;
	char name[16];
	const atomic_bool *is_over;
	size_t torn_count;
	size_t seen_count;
};

static void *party_write(void *context)
{
	struct party *party = context;
	static _Thread_local float data[ELEMENTS];

	for (int round = 1; round <= ROUNDS; round++)
		publish_value(party->client, party->name, data, (float)round);
	return NULL;
}

/* Holds one generation while it looks at the next. */
static void *party_read(void *context)
{
	struct party *party = context;
	struct tidl_tensor *held = NULL;

	while (!atomic_load(party->is_over)) {
		struct tidl_tensor *tensor = NULL;

		if (tidl_get(party->client, party->name, NULL, &tensor) != 0)
			continue;
		party->torn_count += !tensor_is_whole(tensor);
		if (held != NULL)
			party->torn_count += !tensor_is_whole(held);
		tidl_tensor_unref(held);
		held = tensor;
		party->seen_count++;
	}
	tidl_tensor_unref(held);
	return NULL;
}

TT_TEST(pool, readers_never_see_the_next_tensor, .timeout = 120)
{
	struct party writers[WRITERS] = {{.client = NULL}}, readers[WRITERS] = {{.client = NULL}};
	pthread_t writing[WRITERS], reading[WRITERS];
	struct tidl_client *client, *other;
	struct tt_broker broker;
	atomic_bool is_over = false;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	other = tt_broker_connect(&broker);
	for (int i = 0; i < WRITERS; i++) {
		writers[i].client = client;
		(void)snprintf(writers[i].name, sizeof(writers[i].name), "x%d", i);
		readers[i] = writers[i];
		readers[i].client = other;
		readers[i].is_over = &is_over;
		cr_assert_eq(pthread_create(&writing[i], NULL, party_write, &writers[i]), 0);
		cr_assert_eq(pthread_create(&reading[i], NULL, party_read, &readers[i]), 0);
	}
	for (int i = 0; i < WRITERS; i++)
		cr_assert_eq(pthread_join(writing[i], NULL), 0);
	atomic_store(&is_over, true);
	for (int i = 0; i < WRITERS; i++) {
		cr_assert_eq(pthread_join(reading[i], NULL), 0);
		cr_expect_eq(readers[i].torn_count, 0);
	}
	tidl_disconnect(other);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

static size_t pool_count(struct tidl_client *client, uint64_t *ret_bytes)
{
	const struct tdc_pooled *pooled;
	size_t count = 0;

	*ret_bytes = 0;
	tdc_client_lock(client);
	for (pooled = client->pool.entries; pooled != NULL; pooled = pooled->next) {
		*ret_bytes += pooled->size_bytes;
		count++;
	}
	tdc_client_unlock(client);
	return count;
}

TT_TEST(pool, keeps_no_more_than_its_limit, .timeout = 60)
{
	struct tt_broker broker;
	struct tidl_client *client;
	static float data[ELEMENTS];
	uint64_t bytes;
	char name[16];

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	publish_value(client, "once", data, 1);
	cr_expect_eq(pool_count(client, &bytes), 0, "once is not again and again");
	/* All stay published, so none comes back. */
	for (int i = 0; i < 3 * TDC_POOL_MAX_SEGMENTS; i++) {
		(void)snprintf(name, sizeof(name), "x%d", i);
		publish_value(client, name, data, (float)i);
		cr_expect_leq(pool_count(client, &bytes), TDC_POOL_MAX_SEGMENTS);
		cr_expect_leq(bytes, TDC_POOL_MAX_BYTES);
	}
	cr_expect_eq(pool_count(client, &bytes), TDC_POOL_MAX_SEGMENTS);
	for (int i = 0; i < 3 * TDC_POOL_MAX_SEGMENTS; i++) {
		struct tidl_tensor *tensor;

		(void)snprintf(name, sizeof(name), "x%d", i);
		tensor = tt_get(client, name, TIDL_ATTACH_READ);
		cr_expect_eq(*(float *)tidl_tensor_data(tensor), (float)i);
		cr_expect(tensor_is_whole(tensor));
		tidl_tensor_unref(tensor);
	}
	/* Who has waited for so long gives way in the end. */
	for (int i = 0; i <= TDC_POOL_PATIENCE; i++)
		publish_value(client, "y", data, (float)i);
	cr_expect_leq(pool_count(client, &bytes), TDC_POOL_MAX_SEGMENTS);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}
