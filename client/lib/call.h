/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_CALL_H
#define TDC_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/lib/deadline.h"
#include "client/lib/reply.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"
#include "proto/wire/message.h"

struct tdc_call;
struct tidl_client;
struct tidl_watch;

/* How long a broker may take to answer what it never holds back. It answers within milliseconds:
 * one that takes longer is stopped, or its machine stands still. */
enum { TDC_ANSWER_TIMEOUT_MS = 30 * 1000 };

/* The deadline of what is answered at once. */
#define TDC_ANSWER_DUE TDC_DEADLINE_NEVER

/*
 * Send a request and wait for its answer; other threads' calls go on meanwhile. A GET or
 * WAIT that the broker may hold back is given up at @deadline; every other request when the
 * client's `answer_timeout_ms` have passed, and at once when interrupted.
 *
 * Returns 0 with an answer of kind @expected; TDC_CALL_EXPIRED without one when the deadline
 * passed, whose sentence is the caller's to write; or the broker's refusal,
 * TIDL_ERR_TIMEOUT (the broker does not answer), _INTERRUPTED, _DESCRIPTORS or a connection error.
 * Leases in an answer that is not handed on are given back.
 */
enum { TDC_CALL_EXPIRED = 1 };

int tdc_call(struct tidl_client *client, struct tdp_message *request, int64_t deadline,
	     enum tdp_message_kind expected, struct tdc_reply **ret_reply,
	     struct tdp_fault *fault) TDP_MUST_CHECK;

/* Send a WATCH; the answer, which events may follow at once, turns @watch into one. */
int tdc_call_watch(struct tidl_client *client, struct tdp_message *request,
		   struct tidl_watch *watch, struct tdp_fault *fault) TDP_MUST_CHECK;

/* Wait until the watch may have something to take. Returns 0, TDC_CALL_EXPIRED at the deadline, or
 * TIDL_ERR_INTERRUPTED, _DESCRIPTORS, _NO_MEMORY or a connection error. */
int tdc_call_await_event(struct tidl_client *client, struct tidl_watch *watch, int64_t deadline,
			 struct tdp_fault *fault) TDP_MUST_CHECK;
/* The same for a request that is answered at once, and carries a descriptor. Borrows @fd. */
int tdc_call_with_fd(struct tidl_client *client, struct tdp_message *request, int fd,
		     enum tdp_message_kind expected, struct tdc_reply **ret_reply,
		     struct tdp_fault *fault) TDP_MUST_CHECK;

/* What the end of a call means for its caller: as for tdc_call(). No lock held. */
int tdc_call_conclude(struct tidl_client *client, const struct tdc_call *call,
		      enum tdp_message_kind expected) TDP_MUST_CHECK;

/* Send a linked call's packet, unless the socket is full: `is_sent` tells. Client locked. */
void tdc_call_transmit(struct tidl_client *client, struct tdc_call *call, const void *packet,
		       size_t size_bytes);

/* For threads that wait for something else than the socket: handle what has arrived, if no other
 * thread does, and send what is queued. Costs one system call when there is nothing. */
void tdc_call_look(struct tidl_client *client);

/* Handle what has arrived and send what is queued, without waiting. */
int tdc_call_dispatch(struct tidl_client *client, struct tdp_fault *fault) TDP_MUST_CHECK;

#endif
