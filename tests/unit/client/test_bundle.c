/* SPDX-License-Identifier: Apache-2.0 */
/* Bundles against a fake broker: what is asked, how often, and which answers are believed. */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proto/mem/sealed.h"
#include "tests/support/leak.h"
#include "tests/unit/client/support/broker.h"
#include "tests/unit/client/support/foreign.h"
#include "tests/unit/client/support/scene.h"

/* head, an empty mapping, n/other, tied: head's memory once more. All foreign. */
static void publish_tied(struct tt_scene *scene, struct tidl_publication *ret_publication)
{
	static float weight[12] = {1.0f, 2.0f, 3.0f};
	static float other[5];
	struct tt_foreign foreign[3];
	struct tidl_draft *draft;

	tt_foreign_init(&foreign[0], weight, 2, (int64_t[]){3, 4}, NULL);
	tt_foreign_init(&foreign[1], other, 1, (int64_t[]){5}, NULL);
	tt_foreign_init(&foreign[2], weight, 2, (int64_t[]){3, 4}, NULL);
	cr_assert_eq(tidl_draft_new(&draft), 0);
	cr_assert_eq(tidl_draft_add(draft, "head", &foreign[0].managed), 0);
	cr_assert_eq(tidl_draft_add_mapping(draft, "nothing"), 0);
	cr_assert_eq(tidl_draft_add_legacy(draft, "n/other", &foreign[1].legacy), 0);
	cr_assert_eq(tidl_draft_add(draft, "tied", &foreign[2].managed), 0);
	cr_assert_eq(tidl_publish_bundle(scene->client, "x", draft, NULL, ret_publication), 0, "%s",
		     tidl_last_error());
	cr_assert_eq(foreign[0].deleted, 0, "the draft still owns it");
	tidl_draft_free(draft);
	cr_assert_eq(foreign[0].deleted + foreign[1].deleted + foreign[2].deleted, 3);
}

TT_TEST(bundle, one_round_trip_publishes_all, .timeout = 60)
{
	struct tidl_publication publication = {.size = sizeof(publication)};
	struct tt_scene scene;

	tt_scene_begin(&scene);
	publish_tied(&scene, &publication);
	cr_assert_eq(scene.store.allocate_count, 1);
	cr_assert_eq(scene.store.publish_count, 1);
	cr_assert(scene.store.published.is_bundle);
	cr_assert(scene.store.published.hands_over);
	cr_assert_not(scene.store.published.has_manifest);
	cr_assert_eq(publication.tensor_count, 3);
	cr_assert_eq(publication.copied_count, 3);
	cr_assert_eq(publication.tensor_bytes, 48 + 20 + 48);
	tt_scene_end(&scene);
}

TT_TEST(bundle, what_is_in_it, .timeout = 60)
{
	struct tidl_tensor *tensor = NULL;
	struct tidl_bundle *bundle;
	struct tt_scene scene;
	size_t index, position;

	tt_scene_begin(&scene);
	publish_tied(&scene, NULL);
	cr_assert_eq(tidl_get_bundle(scene.client, "x", NULL, &bundle), 0, "%s", tidl_last_error());
	cr_assert_eq(scene.store.get_count, 1);
	cr_assert_eq(tidl_bundle_count(bundle), 3);
	cr_assert_str_eq(tidl_bundle_key(bundle, 1), "n/other");
	cr_assert_eq(tidl_bundle_mapping_count(bundle), 1);
	cr_assert_str_eq(tidl_bundle_mapping(bundle, 0, &position), "nothing");
	cr_assert_eq(position, 1);
	cr_assert_eq(tidl_bundle_find(bundle, "tied", &index), 0);
	cr_assert_eq(index, 2);
	cr_assert_eq(tidl_bundle_find(bundle, "nothing", &index), TIDL_ERR_NOT_FOUND);
	cr_assert_eq(tidl_bundle_find(bundle, "n", &index), TIDL_ERR_NOT_FOUND);
	cr_assert_eq(tidl_bundle_tensor(bundle, 3, &tensor), TIDL_ERR_INVALID_ARGUMENT);
	cr_assert_null(tensor);
	cr_assert_eq(tidl_bundle_nbytes(bundle), 116);
	cr_assert_eq(tidl_bundle_segment_count(bundle), 1);
	cr_assert_eq(tidl_bundle_generation(bundle), 7);
	cr_assert_eq(tidl_bundle_owner_uid(bundle), geteuid());
	cr_assert_eq(tidl_bundle_attach(bundle), TIDL_ATTACH_READ);
	cr_assert_eq(tidl_bundle_access(bundle), TIDL_ACCESS_SHARED);
	cr_assert_str_eq(tidl_bundle_name(bundle), "x");
	cr_assert_null(tidl_bundle_metadata(bundle));
	tidl_bundle_unref(bundle);
	tt_scene_end(&scene);
}

TT_TEST(bundle, the_last_of_it_gives_the_lease_back, .timeout = 60)
{
	struct tidl_tensor *head, *tied;
	struct tidl_bundle *bundle;
	struct tt_scene scene;

	tt_scene_begin(&scene);
	publish_tied(&scene, NULL);
	cr_assert_eq(tidl_get_bundle(scene.client, "x", NULL, &bundle), 0);
	cr_assert_eq(tidl_bundle_tensor(bundle, 0, &head), 0);
	cr_assert_eq(tidl_bundle_tensor(bundle, 2, &tied), 0);
	cr_assert_str_eq(tidl_tensor_key(tied), "tied");
	cr_assert_eq(tidl_tensor_data(head), tidl_tensor_data(tied), "tied weights come back tied");
	cr_assert_float_eq(((float *)tidl_tensor_data(head))[2], 3.0f, 0.0f);
	cr_assert_eq(tidl_bundle_ref(bundle), bundle);
	tidl_bundle_unref(bundle);
	tidl_bundle_unref(bundle);
	tidl_tensor_unref(head);
	tt_scene_settle(&scene);
	cr_assert_eq(scene.store.released_leases, 0, "a tensor of it is left");
	tidl_tensor_unref(tied);
	tt_scene_settle(&scene);
	cr_assert_eq(scene.store.released_leases, 1);
	tt_scene_end(&scene);
}

TT_TEST(bundle, allocations_that_stay_mapped_are_not_handed_over, .timeout = 60)
{
	static float data[4];
	struct tidl_tensor *mine;
	struct tt_foreign foreign;
	struct tidl_draft *draft;
	struct tt_scene scene;

	tt_scene_begin(&scene);
	mine = tt_tensor_counting(scene.client, 1, (int64_t[]){4});
	tt_foreign_init(&foreign, data, 1, (int64_t[]){4}, NULL);
	cr_assert_eq(tidl_draft_new(&draft), 0);
	tt_draft_add_tensor(draft, "mine", mine);
	cr_assert_eq(tidl_draft_add(draft, "foreign", &foreign.managed), 0);
	cr_assert_eq(tidl_publish_bundle(scene.client, "x", draft, NULL, NULL), 0);
	cr_assert_not(scene.store.published.hands_over);
	tt_scene_settle(&scene);
	cr_assert_eq(scene.store.released_segments, 1, "the copy's");
	tidl_draft_free(draft);
	tidl_tensor_unref(mine);
	tt_scene_settle(&scene);
	cr_assert_eq(scene.store.released_segments, 2);
	tt_scene_end(&scene);
}

TT_TEST(bundle, a_refused_publish_leaves_nothing, .timeout = 60)
{
	static float data[4];
	struct tt_foreign foreign;
	struct tidl_draft *draft;
	struct tt_scene scene;

	tt_scene_begin(&scene);
	scene.store.fail_publish = TIDL_ERR_QUOTA;
	tt_foreign_init(&foreign, data, 1, (int64_t[]){4}, NULL);
	cr_assert_eq(tidl_draft_new(&draft), 0);
	cr_assert_eq(tidl_draft_add(draft, "foreign", &foreign.managed), 0);
	cr_assert_eq(tidl_publish_bundle(scene.client, "x", draft, NULL, NULL), TIDL_ERR_QUOTA);
	tt_scene_settle(&scene);
	cr_assert_eq(scene.store.released_segments, 1);
	scene.store.fail_publish = 0;
	cr_assert_eq(tidl_publish_bundle(scene.client, "x", draft, NULL, NULL), 0,
		     "the draft is as it was");
	tidl_draft_free(draft);
	cr_assert_eq(foreign.deleted, 1);
	tt_scene_end(&scene);
}

TT_TEST(bundle, long_lists_travel_in_a_manifest, .timeout = 60)
{
	static float data[4096];
	static struct tt_foreign foreign[2000];
	struct tidl_bundle *bundle;
	struct tidl_tensor *tensor;
	struct tidl_draft *draft;
	struct tt_scene scene;
	char key[40];

	tt_scene_begin(&scene);
	cr_assert_eq(tidl_draft_new(&draft), 0);
	for (size_t i = 0; i < 2000; i++) {
		data[2 * i] = (float)i;
		(void)snprintf(key, sizeof(key), "layer.%zu/weight", i);
		tt_foreign_init(&foreign[i], &data[2 * i], 1, (int64_t[]){2}, NULL);
		cr_assert_eq(tidl_draft_add(draft, key, &foreign[i].managed), 0);
	}
	cr_assert_eq(tidl_publish_bundle(scene.client, "x", draft, NULL, NULL), 0, "%s",
		     tidl_last_error());
	tidl_draft_free(draft);
	cr_assert_eq(scene.store.manifest_count, 1);
	cr_assert_eq(tidl_get_bundle(scene.client, "x", NULL, &bundle), 0, "%s", tidl_last_error());
	cr_assert_eq(scene.store.get_count, 1);
	cr_assert_eq(tidl_bundle_count(bundle), 2000);
	cr_assert_str_eq(tidl_bundle_key(bundle, 1999), "layer.1999/weight");
	cr_assert_eq(tidl_bundle_tensor(bundle, 1999, &tensor), 0);
	tidl_bundle_unref(bundle);
	cr_assert_float_eq(((float *)tidl_tensor_data(tensor))[0], 1999.0f, 0.0f);
	tidl_tensor_unref(tensor);
	tt_scene_end(&scene);
}

TT_TEST(bundle, more_segments_come_in_more_packets, .timeout = 60)
{
	static const size_t limits[] = {0, 1, 7};
	struct tidl_bundle *bundle;
	struct tt_scene scene;

	tt_scene_begin(&scene);
	tt_scene_publish(&scene, 300);
	for (size_t i = 0; i < TDP_ARRAY_LENGTH(limits); i++) {
		scene.store.part_limit = limits[i];
		scene.store.more_count = 0;
		cr_assert_eq(tidl_get_bundle(scene.client, "x", NULL, &bundle), 0, "%s",
			     tidl_last_error());
		cr_assert_eq(scene.store.more_count,
			     limits[i] == 0 ? 1 : (300 + limits[i] - 1) / limits[i] - 1);
		tt_scene_check(bundle, 300);
		tidl_bundle_unref(bundle);
	}
	tt_scene_settle(&scene);
	cr_assert_eq(scene.store.released_leases, 3);
	tt_scene_end(&scene);
}

TT_TEST(bundle, tensors_and_bundles_are_told_apart, .timeout = 60)
{
	struct tidl_bundle *bundle = NULL;
	struct tidl_tensor *tensor = NULL;
	struct tt_scene scene;

	tt_scene_begin(&scene);
	tt_scene_publish(&scene, 1);
	cr_assert_eq(tidl_get(scene.client, "x", NULL, &tensor), TIDL_ERR_INVALID_ARGUMENT);
	cr_assert_not_null(strstr(tidl_last_error(), "tidl_get_bundle"));
	tt_scene_settle(&scene);
	cr_assert_eq(scene.store.released_leases, 1);
	cr_assert_eq(tidl_get_any(scene.client, "x", NULL, &tensor, &bundle), 0);
	cr_assert_null(tensor);
	cr_assert_eq(tidl_bundle_count(bundle), 1);
	tidl_bundle_unref(bundle);
	tensor = tt_tensor_counting(scene.client, 1, (int64_t[]){2});
	tt_publish(scene.client, "x", tensor, NULL, NULL);
	tidl_tensor_unref(tensor);
	cr_assert_eq(tidl_get_bundle(scene.client, "x", NULL, &bundle), TIDL_ERR_INVALID_ARGUMENT);
	cr_assert_not_null(strstr(tidl_last_error(), "tidl_get()"));
	cr_assert_eq(tidl_get_any(scene.client, "x", NULL, &tensor, &bundle), 0);
	cr_assert_null(bundle);
	tidl_tensor_unref(tensor);
	tt_scene_end(&scene);
}

/* ---- answers that are not believed ---- */

enum lie {
	LIE_NO_MORE,
	LIE_FEWER_SEGMENTS,
	LIE_CURSOR_WITHOUT_END,
	LIE_NUMBER_TWICE,
	LIE_NUMBER_BEYOND,
	LIE_KEY_TWICE,
	LIE_KEY_EMPTY,
	LIE_KEY_CLASHES,
	LIE_OUT_OF_SEGMENT,
	LIE_SEGMENT_INDEX,
	LIE_MAPPING_BEHIND,
	LIE_MANIFEST_UNSEALED,
	LIE_MANIFEST_PIPE,
	LIE_MANIFEST_GARBAGE,
	LIE_COUNT
};

static const struct {
	const char *what;
	int expected;
	bool has_manifest;
} lies[LIE_COUNT] = {
	[LIE_NO_MORE] = {"no further part", TIDL_ERR_PROTOCOL, true},
	[LIE_FEWER_SEGMENTS] = {"a part without segments", TIDL_ERR_PROTOCOL, false},
	[LIE_CURSOR_WITHOUT_END] = {"parts without end", TIDL_ERR_PROTOCOL, false},
	[LIE_NUMBER_TWICE] = {"one segment twice", TIDL_ERR_PROTOCOL, true},
	[LIE_NUMBER_BEYOND] = {"a segment beyond", TIDL_ERR_PROTOCOL, true},
	[LIE_KEY_TWICE] = {"a key twice", TIDL_ERR_PROTOCOL, false},
	[LIE_KEY_EMPTY] = {"an empty key", TIDL_ERR_PROTOCOL, false},
	[LIE_KEY_CLASHES] = {"a tensor in a tensor", TIDL_ERR_PROTOCOL, true},
	[LIE_OUT_OF_SEGMENT] = {"outside its segment", TIDL_ERR_PROTOCOL, true},
	[LIE_SEGMENT_INDEX] = {"in no segment", TIDL_ERR_PROTOCOL, true},
	[LIE_MAPPING_BEHIND] = {"an empty mapping behind the end", TIDL_ERR_PROTOCOL, false},
	[LIE_MANIFEST_UNSEALED] = {"a manifest that can change", TIDL_ERR_SEGMENT_BAD, true},
	[LIE_MANIFEST_PIPE] = {"a manifest that is a pipe", TIDL_ERR_SEGMENT_BAD, true},
	[LIE_MANIFEST_GARBAGE] = {"a manifest of garbage", TIDL_ERR_PROTOCOL, true},
};

static void lie_in_rows(struct tt_store *store, struct tdp_tensor *rows, size_t count)
{
	switch (*(enum lie *)store->context) {
	case LIE_KEY_TWICE:
		rows[count - 1].key = rows[0].key;
		break;
	case LIE_KEY_EMPTY:
		rows[1].key = "";
		break;
	case LIE_KEY_CLASHES:
		rows[1].key = "k0/below";
		break;
	case LIE_OUT_OF_SEGMENT:
		rows[2].byte_offset = 4096;
		break;
	case LIE_SEGMENT_INDEX:
		rows[2].segment_index = (int64_t)count;
		break;
	default:
		break;
	}
}

static void lie_in_message(struct tt_store *store, struct tdp_message *message)
{
	static const struct tdp_empty_mapping behind = {.key = "empty", .position = 9};
	static const uint32_t twice[] = {0, 1, 1, 2};
	static const uint32_t beyond[] = {0, 1, 2, 4};
	struct tdp_granted *granted = &message->granted;
	bool is_granted = message->kind == TDP_MESSAGE_GRANTED;

	switch (*(enum lie *)store->context) {
	case LIE_NO_MORE:
		if (is_granted)
			granted->next_cursor = 0;
		break;
	case LIE_FEWER_SEGMENTS:
		if (!is_granted)
			message->more.segment_count = 0;
		break;
	case LIE_CURSOR_WITHOUT_END:
		store->next_part = 0;
		if (is_granted)
			granted->next_cursor = 99;
		else
			message->more.next_cursor = 99;
		break;
	case LIE_NUMBER_TWICE:
		granted->segment_number_count = granted->segment_count;
		granted->segment_numbers = twice;
		break;
	case LIE_NUMBER_BEYOND:
		granted->segment_number_count = granted->segment_count;
		granted->segment_numbers = beyond;
		break;
	case LIE_MAPPING_BEHIND:
		if (is_granted) {
			granted->empty_mapping_count = 1;
			granted->empty_mappings = &behind;
		}
		break;
	default:
		break;
	}
}

/* What is sent for a manifest; 0: an honest one. */
static int lie_open(enum lie lie)
{
	static const unsigned char garbage[] = {0xff, 0xff, 0xff, 0xff};
	struct tdp_fault fault;
	int ends[2];
	int fd = 0;

	if (lie == LIE_MANIFEST_UNSEALED) {
		fd = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		cr_assert_eq(write(fd, garbage, sizeof(garbage)), (ssize_t)sizeof(garbage));
	} else if (lie == LIE_MANIFEST_PIPE) {
		cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
		close(ends[1]);
		fd = ends[0];
	} else if (lie == LIE_MANIFEST_GARBAGE) {
		cr_assert_eq(tdp_sealed_create("bad", garbage, sizeof(garbage), &fd, &fault), 0);
	}
	return fd;
}

/* As an event loop does. */
static int get_begun(struct tidl_client *client, struct tidl_bundle **ret_bundle)
{
	struct pollfd item = {.fd = tidl_fd(client), .events = POLLIN};
	struct tidl_tensor *tensor = NULL;
	struct tidl_pending *pending;
	int r = tidl_get_begin(client, "x", NULL, &pending);

	if (r < 0)
		return r;
	while (!tidl_pending_is_done(pending)) {
		(void)poll(&item, 1, -1);
		(void)tidl_dispatch(client);
	}
	r = tidl_pending_any(pending, &tensor, ret_bundle);
	tidl_pending_free(pending);
	return r;
}

static void lie_try(enum lie lie, bool is_begun)
{
	bool is_split = lie <= LIE_CURSOR_WITHOUT_END;
	struct tidl_bundle *bundle;
	struct tt_scene scene;
	int r;

	tt_scene_begin(&scene);
	tt_scene_publish(&scene, 4);
	scene.store.context = &lie;
	scene.store.bend_rows = lie_in_rows;
	scene.store.bend = lie_in_message;
	scene.store.has_manifest = lies[lie].has_manifest;
	scene.store.part_limit = is_split ? 2 : 0;
	scene.store.replaced_manifest_fd = lie_open(lie);
	r = is_begun ? get_begun(scene.client, &bundle)
		     : tidl_get_bundle(scene.client, "x", NULL, &bundle);
	cr_assert_eq(r, lies[lie].expected, "%s: %d %s", lies[lie].what, r, tidl_last_error());
	cr_assert_eq(scene.store.get_count, 1);
	tt_scene_settle(&scene);
	cr_assert_eq(scene.store.released_leases, 1, "%s", lies[lie].what);
	if (scene.store.replaced_manifest_fd > 0)
		close(scene.store.replaced_manifest_fd);
	tt_scene_end(&scene);
}

TT_TEST(bundle, lies_are_refused_and_cost_nothing, .timeout = 120)
{
	for (enum lie lie = 0; lie < LIE_COUNT; lie++)
		for (int is_begun = 0; is_begun <= 1; is_begun++)
			lie_try(lie, is_begun);
}
