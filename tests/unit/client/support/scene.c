/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/client/support/scene.h"

#include <stdio.h>

#include <criterion/criterion.h>
#include <dlpack/dlpack.h>

#include "tests/unit/client/support/broker.h"

void tt_scene_begin(struct tt_scene *scene)
{
	tt_store_init(&scene->store);
	scene->fake = (struct tt_fake){.serve = tt_store_serve, .context = &scene->store};
	tt_fake_start(&scene->fake);
	scene->client = tt_fake_connect(&scene->fake);
}

void tt_scene_settle(struct tt_scene *scene)
{
	cr_assert_eq(tidl_remove(scene->client, "x"), TIDL_ERR_NOT_FOUND, "%s", tidl_last_error());
}

void tt_scene_end(struct tt_scene *scene)
{
	tidl_disconnect(scene->client);
	tt_fake_stop(&scene->fake);
	tt_store_deinit(&scene->store);
}

void tt_draft_add_tensor(struct tidl_draft *draft, const char *key, struct tidl_tensor *tensor)
{
	DLManagedTensorVersioned *managed;

	cr_assert_eq(tidl_tensor_export(tensor, &managed), 0);
	cr_assert_eq(tidl_draft_add(draft, key, managed), 0, "%s", tidl_last_error());
}

void tt_scene_publish(struct tt_scene *scene, size_t count)
{
	static const int64_t shape[] = {4};
	struct tidl_draft *draft;

	cr_assert_eq(tidl_draft_new(&draft), 0);
	for (size_t i = 0; i < count; i++) {
		struct tidl_tensor *tensor = tt_tensor_counting(scene->client, 1, shape);
		char key[24];

		((float *)tidl_tensor_data(tensor))[3] = (float)i;
		(void)snprintf(key, sizeof(key), "k%zu", i);
		tt_draft_add_tensor(draft, key, tensor);
		tidl_tensor_unref(tensor);
	}
	cr_assert_eq(tidl_publish_bundle(scene->client, "x", draft, NULL, NULL), 0, "%s",
		     tidl_last_error());
	tidl_draft_free(draft);
}

void tt_scene_check(struct tidl_bundle *bundle, size_t count)
{
	cr_assert_eq(tidl_bundle_segment_count(bundle), count);
	for (size_t i = 0; i < count; i++) {
		struct tidl_tensor *tensor;

		cr_assert_eq(tidl_bundle_tensor(bundle, i, &tensor), 0);
		cr_assert_float_eq(((float *)tidl_tensor_data(tensor))[3], (float)i, 0.0f);
		tidl_tensor_unref(tensor);
	}
}
