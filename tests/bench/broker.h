/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_BROKER_H
#define BENCH_BROKER_H

#include <stdint.h>
#include <sys/types.h>

#include <tidl/tidl.h>

/* What all tensors here are made of: bytes. */
extern const struct tidl_dtype bench_dtype;

/* A private tidld in the foreground, so that it can be pinned. */
struct bench_broker {
	pid_t pid;
	const char *address;
};

/* Start @tidld on @address and return once it answers. */
void bench_broker_start(struct bench_broker *broker, const char *tidld, const char *address);

/* Ask it to stop through @client, which is closed, and wait for its end. */
void bench_broker_stop(struct bench_broker *broker, struct tidl_client *client);

struct tidl_client *bench_broker_connect(const struct bench_broker *broker);

/* The name that bench_broker_publish() gave to a size. */
const char *bench_broker_name(uint64_t size_bytes, char buffer[64]);

/* Have a process of its own publish one filled tensor of bytes for each size, and end. */
void bench_broker_publish(const struct bench_broker *broker, const uint64_t *sizes_bytes,
			  size_t size_count);

/* End the program with the sentence of the last failed call. */
void bench_check(int result, const char *what);

#endif
