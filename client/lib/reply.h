/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_REPLY_H
#define TDC_REPLY_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/arena.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"
#include "proto/wire/fdset.h"
#include "proto/wire/message.h"

struct tidl_client;

/*
 * A received packet: the message lives in the arena, descriptors in the set until taken out. Made
 * by each call before it sends, so that receiving never has to ask for memory.
 */
struct tdc_reply {
	struct tdp_arena arena;
	struct tdp_message message;
	struct tdp_fdset fds;
	uint64_t era;	     /* connection it came over */
	bool is_missing_fds; /* they were sent, but this process is at its limit of descriptors */
	struct tdc_reply *next;
};

int tdc_reply_new(struct tdc_reply **ret_reply, struct tdp_fault *fault) TDP_MUST_CHECK;
struct tdc_reply *tdc_reply_free(struct tdc_reply *reply);

/* Forget the message and close what descriptors are left. */
void tdc_reply_reset(struct tdc_reply *reply);

/* Give back the lease, allocation or watch that an answer grants when nobody wants it. Client
 * locked. */
void tdc_reply_give_back(struct tidl_client *client, const struct tdc_reply *reply);

static inline void tdc_reply_freep(struct tdc_reply **reply)
{
	*reply = tdc_reply_free(*reply);
}

#define tdc_auto_reply TDP_CLEANUP(tdc_reply_freep) struct tdc_reply

#endif
