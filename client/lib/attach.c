/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors of other processes, by name: one round trip, one map for each segment. Knows how to ask;
 * what is granted is for grant.c to believe or not.
 */
#include "client/lib/attach.h"

#include <string.h>

#include "client/lib/call.h"
#include "client/lib/client.h"
#include "client/lib/deadline.h"
#include "client/lib/generation.h"
#include "client/lib/report.h"
#include "proto/keys.h"

static int keys_check(const struct tdc_attach_request *request, struct tdp_fault *fault)
{
	int r = 0;

	if (request->key_count > 0 && request->keys == NULL)
		return tdc_refuse_null("keys", fault);
	for (size_t i = 0; i < request->key_count && r == 0; i++) {
		const char *key = request->keys[i];

		r = key == NULL ? tdc_refuse_null("keys[i]", fault)
				: tdp_key_check(key, strlen(key), fault);
	}
	return r;
}

int tdc_attach_request_parse(const char *text, const struct tidl_get_options *options,
			     struct tdc_name *ret_name, struct tdc_attach_request *ret_request,
			     struct tdp_fault *fault)
{
	struct tidl_get_options complete = {.size = sizeof(complete)};
	int r = tdc_options_copy(options, &complete, sizeof(complete), fault);

	if (r < 0)
		return r;
	*ret_request = (struct tdc_attach_request){
		.name = ret_name,
		.attach = complete.attach ? complete.attach : TIDL_ATTACH_READ,
		.timeout_ms = complete.timeout_ms,
		.generation = complete.generation,
		.newer_than = complete.newer_than,
		.key_count = complete.key_count,
		.keys = complete.keys,
	};
	if (ret_request->attach < TIDL_ATTACH_READ ||
	    ret_request->attach > TIDL_ATTACH_COPY_ON_WRITE)
		return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT,
				     "there is no such way to attach: use one of enum "
				     "tidl_attach");
	r = keys_check(ret_request, fault);
	return r < 0 ? r : tdc_name_parse(text, ret_name, fault);
}

struct tdp_message tdc_attach_message(const struct tdc_attach_request *request)
{
	return (struct tdp_message){
		.kind = TDP_MESSAGE_GET,
		.get = {.name = request->name->path,
			.has_owner = request->name->has_owner,
			.owner_uid = request->name->owner_uid,
			.attach = request->attach,
			.wait = request->timeout_ms != 0,
			.generation = request->generation,
			.newer_than = request->newer_than,
			.key_count = request->key_count,
			.keys = request->keys},
	};
}

int tdc_attach(struct tidl_client *client, const struct tdc_attach_request *request,
	       struct tdc_grant *ret_grant, struct tdp_fault *fault)
{
	struct tdp_message message = tdc_attach_message(request);
	struct tdc_grant_request wanted = {
		.name = request->name->path,
		.attach = request->attach,
		.key_count = request->key_count,
		.keys = request->keys,
	};
	int64_t deadline =
		request->timeout_ms == 0 ? TDC_ANSWER_DUE : tdc_deadline_after(request->timeout_ms);
	tdc_auto_reply *reply = NULL;
	struct tdc_lease *lease;
	int r = tdc_lease_new(TDC_LEASE_PUBLICATION, &lease, fault);

	if (r < 0)
		return r;
	r = tdc_call(client, &message, deadline, TDP_MESSAGE_GRANTED, &reply, fault);
	if (r != 0) {
		tdc_lease_end(client, lease);
		return r != TDC_CALL_EXPIRED
			       ? r
			       : tdc_generation_expired(request->name, request->newer_than,
							request->timeout_ms, fault);
	}
	r = tdc_grant_init(client, &wanted, reply, lease, ret_grant, fault);
	if (r == 0)
		reply = NULL;
	return r;
}
