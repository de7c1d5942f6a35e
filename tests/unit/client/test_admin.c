/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/support/leak.h"
#include "tests/unit/client/support/broker.h"

static const int64_t shape[] = {2, 3};

TT_TEST(admin, listing_of_many_pages, .timeout = 120)
{
	enum { COUNT = 300 };
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_tensor *tensor;
	struct tidl_listing *listing;
	uint64_t last = 0;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	tensor = tt_tensor_counting(client, 2, shape);
	cr_assert_eq(tidl_list(client, NULL, &listing), 0);
	cr_assert_eq(tidl_listing_count(listing), 0);
	cr_assert_null(tidl_listing_entry(listing, 0));
	tidl_listing_free(listing);
	for (int i = 0; i < COUNT; i++) {
		char name[64];

		(void)snprintf(name, sizeof(name), "%s/%d", i % 3 ? "odd" : "third", i);
		tt_publish(client, name, tensor, NULL, NULL);
	}
	cr_assert_eq(tidl_list(client, NULL, &listing), 0);
	cr_assert_eq(tidl_listing_count(listing), COUNT);
	for (size_t i = 0; i < COUNT; i++) {
		const struct tidl_list_entry *entry = tidl_listing_entry(listing, i);

		cr_assert_gt(entry->generation, last, "oldest first");
		last = entry->generation;
		cr_assert_eq(entry->owner_uid, geteuid());
		cr_assert_eq(entry->ndim, 2);
		cr_assert_eq(entry->shape[1], 3);
		cr_assert_eq(entry->tensor_bytes, 24);
		cr_assert_eq(entry->publisher_pid, getpid());
		cr_assert_eq(entry->mode, 0600);
		cr_assert_eq(entry->tensor_count, 1);
		cr_assert_eq(entry->access, TIDL_ACCESS_SHARED);
	}
	tidl_listing_free(listing);
	cr_assert_eq(tidl_list(client, "third/*", &listing), 0);
	cr_assert_eq(tidl_listing_count(listing), COUNT / 3);
	tidl_listing_free(listing);
	cr_assert_eq(tidl_list(client, "*:third/*", &listing), 0);
	cr_assert_eq(tidl_listing_count(listing), COUNT / 3);
	tidl_listing_free(listing);
	cr_assert_eq(tidl_list(client, "65533:**", &listing), 0);
	cr_assert_eq(tidl_listing_count(listing), 0);
	tidl_listing_free(listing);
	cr_assert_eq(tidl_list(client, "a**", &listing), TIDL_ERR_NAME_INVALID);
	tidl_tensor_unref(tensor);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

TT_TEST(admin, inspection, .timeout = 60)
{
	struct tt_broker broker;
	struct tidl_client *client, *other;
	struct tidl_tensor *tensor, *seen;
	struct tidl_inspection *inspection;
	const struct tidl_inspect_info *info;
	const struct tidl_segment_info *segment;
	const struct tidl_tensor_info *described;
	struct tidl_publish_options options = {
		.size = sizeof(options),
		.metadata = "{\"a\": 1}",
		.mode = 0640,
	};

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	other = tt_broker_connect(&broker);
	tensor = tt_tensor_counting(client, 2, shape);
	tt_publish(client, "x", tensor, &options, NULL);
	seen = tt_get(other, "x", TIDL_ATTACH_READ);
	cr_assert_eq(tidl_inspect(client, "x", &inspection), 0, "%s", tidl_last_error());
	info = tidl_inspection_info(inspection);
	cr_assert_str_eq(info->name, "x");
	cr_assert_eq(info->owner_uid, geteuid());
	cr_assert_eq(info->mode, 0640);
	cr_assert_eq(info->path, TIDL_PATH_ALLOCATED);
	cr_assert_not_null(strstr(info->metadata, "\"a\""));
	cr_assert_eq(info->publisher.pid, getpid());
	cr_assert_eq(info->publisher.uid, geteuid());
	cr_assert(info->publisher.is_connected);
	cr_assert_str_not_empty(info->publisher.command);
	cr_assert_str_not_empty(info->publisher.name);
	cr_assert_eq(info->segment_count, 1);
	cr_assert_eq(info->tensor_count, 1);
	cr_assert_eq(info->holder_count, 2);
	segment = tidl_inspection_segment(inspection, 0);
	cr_assert_eq(segment->data_size_bytes, (uint64_t)getpagesize());
	cr_assert_eq(segment->size_bytes, 2 * (uint64_t)getpagesize());
	cr_assert_neq(segment->inode, 0);
	cr_assert_eq(segment->seals & (F_SEAL_SHRINK | F_SEAL_GROW), F_SEAL_SHRINK | F_SEAL_GROW);
	cr_assert_null(tidl_inspection_segment(inspection, 1));
	described = tidl_inspection_tensor(inspection, 0);
	cr_assert_str_eq(described->key, "");
	cr_assert_eq(described->segment_index, 0);
	cr_assert_eq(described->nbytes, 24);
	cr_assert_eq(described->strides[0], 3);
	cr_assert_null(tidl_inspection_tensor(inspection, 1));
	cr_assert_eq(tidl_inspection_holder(inspection, 0)->kind +
			     tidl_inspection_holder(inspection, 1)->kind,
		     TIDL_HOLDER_LEASE + TIDL_HOLDER_ALLOCATION);
	cr_assert_null(tidl_inspection_holder(inspection, 2));
	tidl_inspection_free(inspection);
	cr_assert_eq(tidl_inspect(client, "y", &inspection), TIDL_ERR_NOT_FOUND);
	tidl_tensor_unref(seen);
	tidl_tensor_unref(tensor);
	tidl_disconnect(other);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

TT_TEST(admin, inspection_of_many_holders, .timeout = 120)
{
	enum { HOLDERS = 130 };
	struct tt_broker broker;
	struct tidl_client *clients[HOLDERS];
	struct tidl_tensor *seen[HOLDERS];
	struct tidl_tensor *tensor;
	struct tidl_inspection *inspection;

	tt_broker_start(&broker);
	for (size_t i = 0; i < HOLDERS; i++)
		clients[i] = tt_broker_connect(&broker);
	tensor = tt_tensor_counting(clients[0], 2, shape);
	tt_publish(clients[0], "x", tensor, NULL, NULL);
	tidl_tensor_unref(tensor);
	for (size_t i = 0; i < HOLDERS; i++)
		seen[i] = tt_get(clients[i], "x", i % 2 ? TIDL_ATTACH_READ : TIDL_ATTACH_WRITE);
	cr_assert_eq(tidl_inspect(clients[0], "x", &inspection), 0, "%s", tidl_last_error());
	cr_assert_eq(tidl_inspection_info(inspection)->holder_count, HOLDERS);
	cr_assert_eq(tidl_inspection_info(inspection)->tensor_count, 1);
	cr_assert_eq(tidl_inspection_info(inspection)->segment_count, 1);
	for (size_t i = 0; i < HOLDERS; i++) {
		const struct tidl_holder *holder = tidl_inspection_holder(inspection, i);

		cr_assert_eq(holder->kind, TIDL_HOLDER_LEASE);
		cr_assert_eq(holder->process.pid, getpid());
	}
	tidl_inspection_free(inspection);
	for (size_t i = 0; i < HOLDERS; i++) {
		tidl_tensor_unref(seen[i]);
		tidl_disconnect(clients[i]);
	}
	tt_broker_stop(&broker);
}

TT_TEST(admin, remove_takes_the_name_and_leaves_the_memory, .timeout = 60)
{
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_tensor *tensor, *seen, *again = NULL;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	tensor = tt_tensor_counting(client, 2, shape);
	tt_publish(client, "x", tensor, NULL, NULL);
	seen = tt_get(client, "x", TIDL_ATTACH_READ);
	cr_assert_eq(tidl_remove(client, "x"), 0);
	cr_assert_eq(tidl_get(client, "x", NULL, &again), TIDL_ERR_NOT_FOUND);
	((float *)tidl_tensor_data(tensor))[2] = 8.0f;
	cr_assert_float_eq(((float *)tidl_tensor_data(seen))[2], 8.0f, 0.0f);
	tidl_tensor_unref(seen);
	tidl_tensor_unref(tensor);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

TT_TEST(admin, shutdown_ends_the_broker_and_not_the_memory, .timeout = 60)
{
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_tensor *tensor;
	struct tidl_listing *listing;
	int r;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	tensor = tt_tensor_counting(client, 2, shape);
	cr_assert_eq(tidl_shutdown(client), 0, "%s", tidl_last_error());
	/* It may answer what came before it stops. */
	while ((r = tidl_list(client, NULL, &listing)) == 0)
		tidl_listing_free(listing);
	cr_assert_eq(r, TIDL_ERR_BROKER_GONE, "%s", tidl_last_error());
	((float *)tidl_tensor_data(tensor))[2] = 8.0f;
	tidl_tensor_unref(tensor);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

TT_TEST(admin, inspection_of_what_stays_and_what_ends, .timeout = 60)
{
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_tensor *tensor;
	struct tidl_inspection *inspection;
	const struct tidl_inspect_info *info;
	const struct tidl_holder *pin;
	struct tidl_publish_options options = {.size = sizeof(options), .replace = 1, .keep = 3};
	struct tidl_publication made[3];

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	tensor = tt_tensor_counting(client, 2, shape);
	for (size_t i = 0; i < 3; i++) {
		made[i] = (struct tidl_publication){.size = sizeof(made[i])};
		if (i == 2) {
			options.retention = TIDL_RETENTION_SECONDS;
			options.retain_ms = 1000000;
		}
		tt_publish(client, "x", tensor, &options, &made[i]);
	}
	cr_assert_eq(tidl_pin(client, "x", made[2].generation), 0, "%s", tidl_last_error());
	cr_assert_eq(tidl_inspect(client, "x", &inspection), 0, "%s", tidl_last_error());
	info = tidl_inspection_info(inspection);
	cr_expect_eq(info->retention, TIDL_RETENTION_SECONDS);
	cr_expect(info->left_ms > 900000 && info->left_ms <= 1000000);
	cr_assert_eq(info->kept_count, 2);
	cr_expect_eq(info->kept_generations[0], made[1].generation, "newest first");
	cr_expect_eq(info->kept_generations[1], made[0].generation);
	cr_assert_eq(info->holder_count, 2);
	cr_expect_eq(tidl_inspection_holder(inspection, 0)->left_ms, 0);
	pin = tidl_inspection_holder(inspection, 1);
	cr_expect_eq(pin->kind, TIDL_HOLDER_PIN);
	cr_expect_eq(pin->process.pid, getpid());
	cr_expect(pin->left_ms > 0 && pin->left_ms <= 60000);
	tidl_inspection_free(inspection);
	tidl_tensor_unref(tensor);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}
