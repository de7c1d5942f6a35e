/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_PENDING_H
#define TDC_PENDING_H

#include "client/lib/attach.h"
#include "include/tidl/pending.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"
#include "proto/wire/message.h"

struct tdp_control;

/* Send a request without waiting for its answer, or have it sent when the socket has room. @message
 * is consumed; texts in it are borrowed for the call only. */
int tdc_pending_begin(struct tidl_client *client, struct tdp_message *message,
		      enum tdp_message_kind expected, struct tidl_pending **ret_pending,
		      struct tdp_fault *fault) TDP_MUST_CHECK;

/* The same for a checked attach. */
int tdc_pending_attach(struct tidl_client *client, const struct tdc_attach_request *request,
		       struct tidl_pending **ret_pending, struct tdp_fault *fault) TDP_MUST_CHECK;

/* The answer of a request of this kind, once; it is owned by the pending. TIDL_ERR_BUSY before
 * there is one, TIDL_ERR_INVALID_ARGUMENT when it is of another kind or taken. */
int tdc_pending_take(struct tidl_pending *pending, enum tdp_message_kind expected,
		     struct tdc_reply **ret_reply, struct tdp_fault *fault) TDP_MUST_CHECK;

/* What was granted to tdc_pending_attach(), under the same conditions. */
int tdc_pending_grant(struct tidl_pending *pending, struct tdc_grant *ret_grant,
		      struct tdp_fault *fault) TDP_MUST_CHECK;

/* tdc_call_dispatch(), and the next step for what came in part. */
int tdc_pending_dispatch(struct tidl_client *client, struct tdp_fault *fault) TDP_MUST_CHECK;

/* Wake who sleeps on this page when it is done. The page stays mapped until the pending is freed.
 * Client locked. */
void tdc_pending_wakes(struct tidl_pending *pending, const struct tdp_control *control);

/* What the request was refused with, or ended for; 0 while there is no answer. Client locked. */
int tdc_pending_peek(const struct tidl_pending *pending, struct tdp_fault *fault) TDP_MUST_CHECK;

#endif
