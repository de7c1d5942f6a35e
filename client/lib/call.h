/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_CALL_H
#define TDC_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include "client/lib/reply.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"
#include "proto/wire/message.h"

struct tidl_client;

/*
 * Send a request and wait for its answer; other threads' calls go on meanwhile. Waits until
 * @deadline, in a forked child also while connecting.
 *
 * Returns 0 with an answer of kind @expected, or the broker's refusal, TIDL_ERR_TIMEOUT,
 * _INTERRUPTED, _DESCRIPTORS or a connection error. Leases in an answer that is not handed on are
 * given back.
 */
int tdc_call(struct tidl_client *client, struct tdp_message *request, int64_t deadline,
	     enum tdp_message_kind expected, struct tdc_reply **ret_reply,
	     struct tdp_fault *fault) TDP_MUST_CHECK;

/* Handle what has arrived and send what is queued, without waiting. */
int tdc_call_dispatch(struct tidl_client *client, struct tdp_fault *fault) TDP_MUST_CHECK;

#endif
