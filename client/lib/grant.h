/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_GRANT_H
#define TDC_GRANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/lib/origin.h"
#include "client/lib/parts.h"
#include "client/lib/reply.h"
#include "include/tidl/tensor.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"
#include "proto/keys.h"
#include "proto/wire/message.h"

struct tidl_client;

/* What a GET brought: descriptions of tensors, checked, over segments that are mapped. */
struct tdc_grant {
	struct tdc_origin *origin;
	struct tdc_reply *reply; /* the rows live in it */
	bool is_bundle;
	size_t row_count;
	const struct tdp_tensor *rows;
	size_t mapping_count;
	const struct tdp_empty_mapping *mappings;
	struct tdp_keyset keys; /* of a bundle: of its rows, then of its mappings */
	uint64_t tensor_bytes;	/* of all rows */
	size_t mapped_count;	/* segments */
	struct tdc_parts parts;
};

/* What a grant has to be, as it was asked for. */
struct tdc_grant_request {
	const char *name; /* path */
	enum tidl_attach attach;
	size_t key_count; /* 0: all of it */
	const char *const *keys;
};

/*
 * From an answer to mapped memory; more round trips when there are more segments than one packet
 * can bring. Takes @reply over when it succeeds and @lease in any case: what does not fit is given
 * back and refused.
 */
int tdc_grant_init(struct tidl_client *client, const struct tdc_grant_request *request,
		   struct tdc_reply *reply, struct tdc_lease *lease, struct tdc_grant *ret_grant,
		   struct tdp_fault *fault) TDP_MUST_CHECK;

/*
 * The same step by step, for those who must not wait: while `parts` has a cursor, its request and
 * tdc_parts_more(); then the checks of the whole. Until those have succeeded it is good for
 * tdc_grant_deinit() only.
 */
int tdc_grant_begin(struct tidl_client *client, const struct tdc_grant_request *request,
		    struct tdc_reply *reply, struct tdc_lease *lease, struct tdc_grant *ret_grant,
		    struct tdp_fault *fault) TDP_MUST_CHECK;
int tdc_grant_finish(struct tdc_grant *grant, const struct tdc_grant_request *request,
		     struct tdp_fault *fault) TDP_MUST_CHECK;

/* One of its tensors. The grant is needed no more after that. */
int tdc_grant_tensor(const struct tdc_grant *grant, size_t index, struct tidl_tensor **ret_tensor,
		     struct tdp_fault *fault) TDP_MUST_CHECK;

/* The tensor of a grant that is no bundle; TIDL_ERR_INVALID_ARGUMENT when it is one. */
int tdc_grant_single(const struct tdc_grant *grant, struct tidl_tensor **ret_tensor,
		     struct tdp_fault *fault) TDP_MUST_CHECK;

/* Tensors that were made keep the memory. Idempotent. */
void tdc_grant_deinit(struct tdc_grant *grant);

#define TDC_GRANT_NONE ((struct tdc_grant){.origin = NULL})

#define tdc_auto_grant TDP_CLEANUP(tdc_grant_deinit) struct tdc_grant

#endif
