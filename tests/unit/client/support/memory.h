/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CLIENT_MEMORY_H
#define TT_CLIENT_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

#include "tests/unit/client/support/broker.h"
#include "tests/unit/client/support/foreign.h"

#include <tidl/tidl.h>

enum { TT_ELEMENT_BYTES = 4 };

#define TT_PAGE_BYTES ((size_t)4096)

/* Memory as a framework has it: a map of its own, floats 0, 1, 2, ... */
struct tt_memory {
	float *data;
	size_t bytes;
	struct tt_foreign foreign;
	struct tidl_block block;
	struct tidl_publish_options options;
	struct tidl_publication publication;
};

/* A map of its own. */
void tt_memory_init(struct tt_memory *memory, size_t bytes);

/* Over memory that is there; @bytes of it. */
void tt_memory_init_over(struct tt_memory *memory, void *data, size_t bytes);
void tt_memory_deinit(struct tt_memory *memory);

/* Where it lies, unless the options are changed. */
int tt_memory_publish(struct tt_memory *memory, struct tidl_client *client, const char *name);

/* Asserts that the floats are still those. */
void tt_memory_expect_intact(const struct tt_memory *memory);

/* Is it this process's own, all of it? */
bool tt_memory_is_private(const struct tt_memory *memory);

/* A broker with two clients. */
struct tt_world {
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_client *other;
};

void tt_world_init(struct tt_world *world);
void tt_world_deinit(struct tt_world *world);

#endif
