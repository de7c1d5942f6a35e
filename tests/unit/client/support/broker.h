/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CLIENT_BROKER_H
#define TT_CLIENT_BROKER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/paths.h"

#include <tidl/tidl.h>

/*
 * A real, private tidld in a folder of its own, which is the runtime folder of this process too.
 * Which one: $TIDL_DAEMON; without it the test is skipped.
 */
struct tt_broker {
	char folder[TDP_PATH_MAX / 2];
	char address[TDP_PATH_MAX];
	pid_t pid;
};

void tt_broker_start(struct tt_broker *broker);

/* As start, but with nobody listening: for what starts one itself. */
void tt_broker_prepare(struct tt_broker *broker);

/* Learn which process serves the address, and how many do. */
size_t tt_broker_find(struct tt_broker *broker);

/* SIGKILL, and wait until it is gone. */
void tt_broker_kill(struct tt_broker *broker);

/* Kill what still runs and remove the folder. */
void tt_broker_stop(struct tt_broker *broker);

struct tidl_client *tt_broker_connect(const struct tt_broker *broker);

/* The same with somebody to ask after signals. */
struct tidl_client *tt_broker_connect_interruptible(const struct tt_broker *broker,
						    int (*handler)(void *context), void *context);

/* Leases and allocations that the broker counts for a name. */
size_t tt_holder_count(struct tidl_client *client, const char *name);

/* A new float32 tensor with 0, 1, 2, ... in it. */
struct tidl_tensor *tt_tensor_counting(struct tidl_client *client, uint32_t ndim,
				       const int64_t *shape);

/* Publish a tensor as it is; asserts success. */
void tt_publish(struct tidl_client *client, const char *name, struct tidl_tensor *tensor,
		const struct tidl_publish_options *options,
		struct tidl_publication *ret_publication);

/* Get with @attach, without waiting; asserts success. */
struct tidl_tensor *tt_get(struct tidl_client *client, const char *name, enum tidl_attach attach);

extern const struct tidl_dtype tt_float32;

#endif
