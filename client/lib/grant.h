/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_GRANT_H
#define TDC_GRANT_H

#include <stddef.h>
#include <stdint.h>

#include "client/lib/origin.h"
#include "client/lib/reply.h"
#include "include/tidl/tensor.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"
#include "proto/wire/message.h"

struct tidl_client;

/* What a GET brought: descriptions of tensors, checked, over segments that are mapped. */
struct tdc_grant {
	struct tdc_origin *origin;
	struct tdc_reply *reply; /* the rows live in it */
	size_t row_count;
	const struct tdp_tensor *rows;
};

/* What a grant has to be, as it was asked for. */
struct tdc_grant_request {
	const char *name; /* path */
	enum tidl_attach attach;
};

/*
 * From an answer to mapped memory. Takes @reply over when it succeeds and @lease in any case: what
 * does not fit is given back and refused.
 */
int tdc_grant_init(struct tidl_client *client, const struct tdc_grant_request *request,
		   struct tdc_reply *reply, struct tdc_lease *lease, struct tdc_grant *ret_grant,
		   struct tdp_fault *fault) TDP_MUST_CHECK;

/* One of its tensors. The grant is needed no more after that. */
int tdc_grant_tensor(const struct tdc_grant *grant, size_t index, struct tidl_tensor **ret_tensor,
		     struct tdp_fault *fault) TDP_MUST_CHECK;

/* Tensors that were made keep the memory. Idempotent. */
void tdc_grant_deinit(struct tdc_grant *grant);

#define tdc_auto_grant TDP_CLEANUP(tdc_grant_deinit) struct tdc_grant

#endif
