/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_ATTACH_H
#define TDC_ATTACH_H

#include <stddef.h>
#include <stdint.h>

#include "client/lib/grant.h"
#include "client/lib/owner.h"
#include "include/tidl/tensor.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

struct tdc_attach_request {
	const struct tdc_name *name;
	enum tidl_attach attach;
	int64_t timeout_ms;  /* 0: does not wait; negative: for ever */
	uint64_t generation; /* 0: the current one */
	uint64_t newer_than; /* 0: any */
	size_t key_count;    /* of a bundle; 0: all of it */
	const char *const *keys;
};

/* A user's request, checked. @ret_name keeps pointing into @text, and @ret_request to @ret_name. */
int tdc_attach_request_parse(const char *text, const struct tidl_get_options *options,
			     struct tdc_name *ret_name, struct tdc_attach_request *ret_request,
			     struct tdp_fault *fault) TDP_MUST_CHECK;

/* The message that asks for it, with the request's texts in it. */
struct tdp_message tdc_attach_message(const struct tdc_attach_request *request);

/* Attach what is published under a name; the request is checked. */
int tdc_attach(struct tidl_client *client, const struct tdc_attach_request *request,
	       struct tdc_grant *ret_grant, struct tdp_fault *fault) TDP_MUST_CHECK;

#endif
