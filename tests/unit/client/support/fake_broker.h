/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CLIENT_FAKE_BROKER_H
#define TT_CLIENT_FAKE_BROKER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/paths.h"
#include "proto/wire/fdset.h"
#include "proto/wire/message.h"

#include <tidl/tidl.h>

/*
 * A listening socket in a thread that behaves as the test says: no assertions in there, since they
 * would end the wrong thread.
 */
struct tt_fake {
	char folder[TDP_PATH_MAX / 2];
	char address[TDP_PATH_MAX];
	int listen_fd;
	pthread_t thread;

	/* Answers a HELLO; NULL: with an ordinary WELCOME. False ends the connection. */
	bool (*greet)(struct tt_fake *fake, int fd);
	/* What happens after the greeting, until it returns. NULL: nothing. */
	void (*serve)(struct tt_fake *fake, int fd);
	void *context;
};

/* Fill in greet, serve and context before. */
void tt_fake_start(struct tt_fake *fake);
void tt_fake_stop(struct tt_fake *fake);

struct tidl_client *tt_fake_connect(const struct tt_fake *fake);

/* For the thread: wait for one message; false at the end of the connection. */
bool tt_fake_receive(int fd, struct tdp_arena *arena, struct tdp_message *ret_message);
bool tt_fake_send(int fd, const struct tdp_message *message, const int *fds, uint32_t fd_count);
bool tt_fake_send_failure(int fd, uint64_t request_id, int code);

/* An honest GRANTED of 4 float32 with these ids, and its descriptor. */
struct tt_grant {
	struct tdp_message message;
	struct tdp_segment segment;
	struct tdp_tensor tensor;
	int64_t shape[1];
	int64_t strides[1];
	int write_fd;
	int read_fd;
};

void tt_grant_init(struct tt_grant *grant, const struct tdp_message *request, uint64_t lease_id,
		   uint64_t segment_id);
void tt_grant_deinit(struct tt_grant *grant);

#endif
