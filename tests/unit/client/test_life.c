/* SPDX-License-Identifier: Apache-2.0 */
/* A tensor's life against a real broker: allocate, publish, get, look, remove. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <dlpack/dlpack.h>

#include "client/lib/client.h"
#include "tests/support/leak.h"
#include "tests/unit/client/support/broker.h"
#include "tests/unit/client/support/foreign.h"

static const int64_t shape[] = {4, 6};

TT_TEST(life, what_one_client_writes_the_other_sees, .timeout = 60)
{
	struct tt_broker broker;
	struct tidl_client *producer, *consumer;
	struct tidl_tensor *written, *seen;
	struct tidl_publication publication = {.size = sizeof(publication)};

	tt_broker_start(&broker);
	producer = tt_broker_connect(&broker);
	consumer = tt_broker_connect(&broker);
	written = tt_tensor_counting(producer, 2, shape);
	cr_assert_eq((uintptr_t)tidl_tensor_data(written) % (uintptr_t)getpagesize(), 0);
	cr_assert_eq(tidl_tensor_generation(written), 0);
	cr_assert_null(tidl_tensor_name(written));
	tt_publish(producer, "sim/x", written, NULL, &publication);
	cr_assert_eq(publication.path, TIDL_PATH_ALLOCATED);
	cr_assert_eq(publication.reason, TIDL_COPY_REASON_NONE);
	cr_assert_eq(publication.copied, 0);
	cr_assert_eq(publication.tensor_bytes, 96);
	cr_assert_eq(publication.exposed_bytes, (uint64_t)getpagesize());
	cr_assert_eq(publication.retention, TIDL_RETENTION_UNTIL_IDLE);
	cr_assert_gt(publication.generation, 0);

	seen = tt_get(consumer, "sim/x", TIDL_ATTACH_WRITE);
	cr_assert_eq(tidl_tensor_generation(seen), publication.generation);
	cr_assert_str_eq(tidl_tensor_name(seen), "sim/x");
	cr_assert_eq(tidl_tensor_owner_uid(seen), geteuid());
	cr_assert_eq(tidl_tensor_ndim(seen), 2);
	cr_assert_eq(tidl_tensor_shape(seen)[1], 6);
	cr_assert_eq(tidl_tensor_strides(seen)[0], 6);
	cr_assert_eq(tidl_tensor_nbytes(seen), 96);
	cr_assert_eq(tidl_tensor_access(seen), TIDL_ACCESS_SHARED);
	cr_assert_eq(tidl_tensor_attach(seen), TIDL_ATTACH_WRITE);
	cr_assert_null(tidl_tensor_metadata(seen));
	cr_assert_neq(tidl_tensor_data(seen), tidl_tensor_data(written));
	cr_assert_float_eq(((float *)tidl_tensor_data(seen))[23], 23.0f, 0.0f);
	((float *)tidl_tensor_data(seen))[7] = -7.0f;
	cr_assert_float_eq(((float *)tidl_tensor_data(written))[7], -7.0f, 0.0f);
	tidl_tensor_unref(written);
	cr_assert_float_eq(((float *)tidl_tensor_data(seen))[7], -7.0f, 0.0f);
	tidl_tensor_unref(seen);
	tidl_disconnect(consumer);
	tidl_disconnect(producer);
	tt_broker_stop(&broker);
}

TT_TEST(life, read_is_read_only_and_follows_writes, .timeout = 60)
{
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_tensor *written, *seen;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	written = tt_tensor_counting(client, 2, shape);
	tt_publish(client, "x", written, NULL, NULL);
	seen = tt_get(client, "x", TIDL_ATTACH_READ);
	cr_assert(tidl_tensor_is_readonly(seen));
	((float *)tidl_tensor_data(written))[0] = 9.0f;
	cr_assert_float_eq(((float *)tidl_tensor_data(seen))[0], 9.0f, 0.0f);
	/* What cannot be written cannot be made writable either. */
	cr_assert_lt(mprotect(tidl_tensor_data(seen), 4096, PROT_READ | PROT_WRITE), 0);
	tidl_tensor_unref(seen);
	tidl_tensor_unref(written);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

TT_TEST(life, copy_on_write_keeps_its_writes_to_itself, .timeout = 60)
{
	struct tt_broker broker;
	struct tidl_client *producer, *consumer;
	struct tidl_get_options options = {
		.size = sizeof(options),
		.attach = TIDL_ATTACH_COPY_ON_WRITE,
	};
	struct tidl_tensor *written, *own, *other, *seen;

	tt_broker_start(&broker);
	producer = tt_broker_connect(&broker);
	consumer = tt_broker_connect(&broker);
	written = tt_tensor_counting(producer, 2, shape);
	tt_publish(producer, "x", written, NULL, NULL);
	cr_assert_eq(tidl_get(consumer, "x", &options, &own), TIDL_ERR_BUSY,
		     "the producer can still write");
	tidl_tensor_unref(written);
	/* A release is one-way, but the broker reads one client's packets in order. */
	seen = tt_get(producer, "x", TIDL_ATTACH_READ);
	own = tt_get(consumer, "x", TIDL_ATTACH_COPY_ON_WRITE);
	other = tt_get(consumer, "x", TIDL_ATTACH_COPY_ON_WRITE);
	cr_assert_not(tidl_tensor_is_readonly(own));
	((float *)tidl_tensor_data(own))[3] = 100.0f;
	cr_assert_float_eq(((float *)tidl_tensor_data(other))[3], 3.0f, 0.0f);
	cr_assert_float_eq(((float *)tidl_tensor_data(seen))[3], 3.0f, 0.0f);
	tidl_tensor_unref(other);
	tidl_tensor_unref(own);
	tidl_tensor_unref(seen);
	tidl_disconnect(consumer);
	tidl_disconnect(producer);
	tt_broker_stop(&broker);
}

TT_TEST(life, the_same_segment_is_mapped_once, .timeout = 60)
{
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_tensor *written, *first, *second, *reader;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	written = tt_tensor_counting(client, 2, shape);
	tt_publish(client, "x", written, NULL, NULL);
	first = tt_get(client, "x", TIDL_ATTACH_WRITE);
	second = tt_get(client, "x", TIDL_ATTACH_WRITE);
	reader = tt_get(client, "x", TIDL_ATTACH_READ);
	cr_assert_eq(tidl_tensor_data(first), tidl_tensor_data(written));
	cr_assert_eq(tidl_tensor_data(second), tidl_tensor_data(written));
	cr_assert_neq(tidl_tensor_data(reader), tidl_tensor_data(written));
	tidl_tensor_unref(written);
	tidl_tensor_unref(first);
	((float *)tidl_tensor_data(second))[1] = 5.0f;
	cr_assert_float_eq(((float *)tidl_tensor_data(reader))[1], 5.0f, 0.0f);
	cr_assert_eq(tt_holder_count(client, "x"), 2);
	tidl_tensor_unref(second);
	tidl_tensor_unref(reader);
	cr_assert_eq(tt_holder_count(client, "x"), 0);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

TT_TEST(life, refusals_have_their_own_codes, .timeout = 60)
{
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_get_options options = {.size = sizeof(options)};
	struct tidl_tensor *tensor, *got = NULL;
	struct DLManagedTensorVersioned *managed;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	cr_assert_eq(tidl_get(client, "nothing", NULL, &got), TIDL_ERR_NOT_FOUND);
	cr_assert_not_null(strstr(tidl_last_error(), "nothing"));
	cr_assert_eq(tidl_get(client, "a//b", NULL, &got), TIDL_ERR_NAME_INVALID);
	cr_assert_eq(tidl_get(client, "", NULL, &got), TIDL_ERR_NAME_INVALID);
	cr_assert_eq(tidl_remove(client, "nothing"), TIDL_ERR_NOT_FOUND);
	options.attach = (enum tidl_attach)9;
	cr_assert_eq(tidl_get(client, "x", &options, &got), TIDL_ERR_INVALID_ARGUMENT);
	tensor = tt_tensor_counting(client, 2, shape);
	tt_publish(client, "x", tensor, NULL, NULL);
	cr_assert_eq(tidl_tensor_export(tensor, &managed), 0);
	cr_assert_eq(tidl_publish(client, "x", managed, NULL, NULL), TIDL_ERR_EXISTS);
	cr_assert_eq(tidl_publish(client, "65533:y", managed, NULL, NULL), TIDL_ERR_PERMISSION);
	cr_assert_eq(tidl_publish(client, "..", managed, NULL, NULL), TIDL_ERR_NAME_INVALID);
	options = (struct tidl_get_options){.size = sizeof(options), .generation = 1 << 20};
	cr_assert_eq(tidl_get(client, "x", &options, &got), TIDL_ERR_GENERATION_GONE, "%s",
		     tidl_last_error());
	cr_assert_null(got);
	managed->deleter(managed);
	tidl_tensor_unref(tensor);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

TT_TEST(life, publish_options, .timeout = 60)
{
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_publish_options options;
	struct tidl_tensor *tensor, *seen;
	struct DLManagedTensorVersioned *managed;
	struct tidl_publication first = {.size = sizeof(first)};
	struct tidl_publication second = {.size = sizeof(second)};
	static const struct {
		struct tidl_publish_options options;
		int expected;
	} cases[] = {
		{{.mode = 0777}, TIDL_ERR_INVALID_ARGUMENT},
		{{.group = -1}, TIDL_ERR_INVALID_ARGUMENT},
		{{.group = UINT32_MAX}, TIDL_ERR_INVALID_ARGUMENT},
		{{.access = (enum tidl_access)4}, TIDL_ERR_INVALID_ARGUMENT},
		{{.access = TIDL_ACCESS_LIVE, .copy = TIDL_COPY_ALWAYS}, TIDL_ERR_COPY_NEEDED},
		{{.retention = TIDL_RETENTION_UNTIL_IDLE}, TIDL_ERR_INVALID_ARGUMENT},
		{{.retention = TIDL_RETENTION_SECONDS}, TIDL_ERR_INVALID_ARGUMENT},
		{{.copy = (enum tidl_copy)3}, TIDL_ERR_INVALID_ARGUMENT},
		{{.keep = 1000}, TIDL_ERR_LIMIT},
		{{.metadata = "[1]"}, TIDL_ERR_METADATA},
		{{.metadata = "{"}, TIDL_ERR_METADATA},
		{{.metadata = "{\"a\": \"\xff\"}"}, TIDL_ERR_METADATA},
	};

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	tensor = tt_tensor_counting(client, 2, shape);
	cr_assert_eq(tidl_tensor_export(tensor, &managed), 0);
	for (size_t i = 0; i < TDP_ARRAY_LENGTH(cases); i++) {
		options = cases[i].options;
		options.size = sizeof(options);
		cr_assert_eq(tidl_publish(client, "x", managed, &options, NULL), cases[i].expected,
			     "case %zu: %s", i, tidl_last_error());
	}
	managed->deleter(managed);
	options = (struct tidl_publish_options){
		.size = sizeof(options),
		.metadata = "{\n\t\"step\": 7}",
		.retention = TIDL_RETENTION_OWNER,
	};
	tt_publish(client, "x", tensor, &options, &first);
	cr_assert_eq(first.retention, TIDL_RETENTION_OWNER);
	seen = tt_get(client, "x", TIDL_ATTACH_READ);
	cr_assert_not_null(strstr(tidl_tensor_metadata(seen), "\"step\""));
	options.replace = 1;
	tt_publish(client, "x", tensor, &options, &second);
	cr_assert_gt(second.generation, first.generation);
	cr_assert_eq(second.aliases_previous, 1);
	tidl_tensor_unref(seen);
	tidl_tensor_unref(tensor);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

TT_TEST(life, a_publication_of_an_older_struct_is_not_overrun, .timeout = 60)
{
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_tensor *tensor;
	struct tidl_publication publication;
	struct tidl_publication untouched;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	tensor = tt_tensor_counting(client, 2, shape);
	memset(&publication, 0x5a, sizeof(publication));
	memset(&untouched, 0x5a, sizeof(untouched));
	publication.size = offsetof(struct tidl_publication, exposed_bytes);
	tt_publish(client, "x", tensor, NULL, &publication);
	cr_assert_eq(publication.tensor_bytes, 96);
	cr_assert_eq(publication.size, offsetof(struct tidl_publication, exposed_bytes));
	cr_assert_eq(memcmp(&publication.exposed_bytes, &untouched.exposed_bytes,
			    sizeof(publication) - publication.size),
		     0);
	tidl_tensor_unref(tensor);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

TT_TEST(life, shapes_that_overflow_are_refused_unsent, .timeout = 60)
{
	static const struct {
		uint32_t ndim;
		int64_t shape[4];
		struct tidl_dtype dtype;
		int expected;
	} cases[] = {
		{2, {INT64_MAX, INT64_MAX}, {2, 32, 1}, TIDL_ERR_LAYOUT},
		{1, {INT64_MAX}, {2, 32, 1}, TIDL_ERR_LAYOUT},
		{4, {1 << 20, 1 << 20, 1 << 20, 1 << 20}, {2, 32, 1}, TIDL_ERR_LAYOUT},
		{1, {-1}, {2, 32, 1}, TIDL_ERR_LAYOUT},
		{65, {1}, {2, 32, 1}, TIDL_ERR_LAYOUT},
		{UINT32_MAX, {1}, {2, 32, 1}, TIDL_ERR_LAYOUT},
		{1, {4}, {2, 33, 1}, TIDL_ERR_DTYPE},
		{1, {4}, {3, 64, 1}, TIDL_ERR_DTYPE},
		{1, {4}, {2, 32, 0}, TIDL_ERR_DTYPE},
		{1, {4}, {200, 32, 1}, TIDL_ERR_DTYPE},
	};
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_tensor *tensor = NULL;
	uint64_t next_request_id;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	next_request_id = client->next_request_id;
	for (size_t i = 0; i < TDP_ARRAY_LENGTH(cases); i++)
		cr_assert_eq(
			tidl_empty(client, cases[i].ndim, cases[i].shape, cases[i].dtype, &tensor),
			cases[i].expected, "case %zu: %s", i, tidl_last_error());
	cr_assert_null(tensor);
	cr_assert_eq(client->next_request_id, next_request_id);
	/* This one is a valid request, but more than there is. */
	cr_assert_eq(tidl_empty(client, 1, (int64_t[]){INT64_C(1) << 58}, tt_float32, &tensor),
		     TIDL_ERR_QUOTA, "%s", tidl_last_error());
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

TT_TEST(life, ten_thousand_cycles_leave_nothing_behind, .timeout = 300)
{
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_publish_options options = {.size = sizeof(options), .replace = 1};
	struct tidl_listing *listing;
	int descriptors;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	descriptors = tt_descriptor_count();
	for (int i = 0; i < 10000; i++) {
		struct tidl_tensor *tensor = tt_tensor_counting(client, 2, shape);
		struct tidl_tensor *seen;

		tt_publish(client, "x", tensor, &options, NULL);
		seen = tt_get(client, "x", TIDL_ATTACH_READ);
		tidl_tensor_unref(tensor);
		tidl_tensor_unref(seen);
	}
	cr_assert_eq(tt_descriptor_count(), descriptors);
	cr_assert_eq(tt_holder_count(client, "x"), 0);
	cr_assert_eq(client->segments.count, 0);
	cr_assert_null(client->outbound.head);
	cr_assert_eq(tidl_list(client, "**", &listing), 0);
	cr_assert_eq(tidl_listing_count(listing), 1);
	tidl_listing_free(listing);
	cr_assert_eq(tidl_remove(client, "x"), 0);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}
