/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CLIENT_SCENE_H
#define TT_CLIENT_SCENE_H

#include <stddef.h>

#include "tests/unit/client/support/fake_store.h"

/* A fake broker with one bundle, and a client. */
struct tt_scene {
	struct tt_store store;
	struct tt_fake fake;
	struct tidl_client *client;
};

void tt_scene_begin(struct tt_scene *scene);
void tt_scene_end(struct tt_scene *scene);

/* Everything that was sent has been looked at once this is answered. */
void tt_scene_settle(struct tt_scene *scene);

/* A bundle of @count tensors of 4 floats, each in a segment of its own, published. */
void tt_scene_publish(struct tt_scene *scene, size_t count);
void tt_scene_check(struct tidl_bundle *bundle, size_t count);

void tt_draft_add_tensor(struct tidl_draft *draft, const char *key, struct tidl_tensor *tensor);

#endif
