/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_ATTENTION_H
#define TDC_ATTENTION_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/attr.h"
#include "proto/base/fault.h"

struct tidl_client;

/* Something that nobody's thread waits for, and whom to tell when it is ready. */
struct tdc_ready {
	uint64_t key; /* the user's; 0: nobody asked to be told */
	bool is_queued;
	struct tdc_ready *prev, *next;
};

/* How event loops learn of what arrives. Guarded by the client's lock. */
struct tdc_attention {
	int epoll_fd; /* what loops watch; -1 until one asks for it */
	int event_fd; /* in it, beside the socket */
	bool is_awaiting_room;
	struct tdc_ready *queue;
};

#define TDC_ATTENTION_NONE ((struct tdc_attention){.epoll_fd = -1, .event_fd = -1})

/* All of these: client locked. */

/* The descriptor for loops, made at the first call. Client open. */
int tdc_attention_fd(struct tidl_client *client, struct tdp_fault *fault) TDP_MUST_CHECK;

/* Queue it unless it is queued or has no key, and wake a loop in any case: this may run in a thread
 * that took from the socket what the loop would have seen there. */
void tdc_attention_tell(struct tidl_client *client, struct tdc_ready *ready);

/* Wake a loop to dispatch, without a key. */
void tdc_attention_wake(struct tidl_client *client);

/* Its owner goes. */
void tdc_attention_forget(struct tidl_client *client, struct tdc_ready *ready);

/* The next key; 0: none. */
uint64_t tdc_attention_take(struct tidl_client *client);

/* A loop is awake: what made it so is about to be handled. */
void tdc_attention_settle(struct tidl_client *client);

/* Whether loops are to be woken too when the socket takes packets again. */
void tdc_attention_await_room(struct tidl_client *client, bool is_awaiting);

/* The connection is over, here or by fork(). Keeps the queue. */
void tdc_attention_close(struct tidl_client *client);

#endif
