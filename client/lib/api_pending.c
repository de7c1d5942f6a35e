/* SPDX-License-Identifier: Apache-2.0 */
/* Public functions of requests that no thread waits for: check arguments, call inward, keep the
 * sentence of a refusal. */
#include "include/tidl/pending.h"

#include "client/lib/bundle.h"
#include "client/lib/generation.h"
#include "client/lib/pending.h"
#include "client/lib/report.h"

int tidl_get_begin(struct tidl_client *client, const char *name,
		   const struct tidl_get_options *options, struct tidl_pending **ret_pending)
{
	struct tdp_fault fault = {.code = 0};
	struct tdc_attach_request request;
	struct tdc_name parsed;
	int r;

	if (client == NULL)
		r = tdc_refuse_null("client", &fault);
	else if (name == NULL)
		r = tdc_refuse_null("name", &fault);
	else if (ret_pending == NULL)
		r = tdc_refuse_null("ret_pending", &fault);
	else
		r = tdc_attach_request_parse(name, options, &parsed, &request, &fault);
	if (r == 0)
		r = tdc_pending_attach(client, &request, ret_pending, &fault);
	return tdc_report(r, &fault);
}

int tidl_pending_tensor(struct tidl_pending *pending, struct tidl_tensor **ret_tensor)
{
	struct tdp_fault fault = {.code = 0};
	tdc_auto_grant grant = {.origin = NULL};
	int r;

	if (pending == NULL)
		r = tdc_refuse_null("pending", &fault);
	else if (ret_tensor == NULL)
		r = tdc_refuse_null("ret_tensor", &fault);
	else
		r = tdc_pending_grant(pending, &grant, &fault);
	if (r == 0)
		r = tdc_grant_single(&grant, ret_tensor, &fault);
	return tdc_report(r, &fault);
}

int tidl_pending_any(struct tidl_pending *pending, struct tidl_tensor **ret_tensor,
		     struct tidl_bundle **ret_bundle)
{
	struct tdp_fault fault = {.code = 0};
	tdc_auto_grant grant = TDC_GRANT_NONE;
	int r;

	if (pending == NULL)
		r = tdc_refuse_null("pending", &fault);
	else if (ret_tensor == NULL)
		r = tdc_refuse_null("ret_tensor", &fault);
	else if (ret_bundle == NULL)
		r = tdc_refuse_null("ret_bundle", &fault);
	else
		r = tdc_pending_grant(pending, &grant, &fault);
	if (r == 0)
		r = tdc_bundle_or_tensor(&grant, ret_tensor, ret_bundle, &fault);
	return tdc_report(r, &fault);
}

int tidl_wait_begin(struct tidl_client *client, const char *name,
		    const struct tidl_wait_options *options, struct tidl_pending **ret_pending)
{
	struct tidl_wait_options complete;
	struct tdp_fault fault = {.code = 0};
	struct tdp_message message;
	struct tdc_name parsed;
	int r;

	if (client == NULL)
		r = tdc_refuse_null("client", &fault);
	else if (name == NULL)
		r = tdc_refuse_null("name", &fault);
	else if (ret_pending == NULL)
		r = tdc_refuse_null("ret_pending", &fault);
	else
		r = tdc_wait_parse(name, options, &parsed, &complete, &fault);
	if (r == 0) {
		message = tdc_wait_message(&parsed, &complete);
		r = tdc_pending_begin(client, &message, TDP_MESSAGE_WAITED, ret_pending, &fault);
	}
	return tdc_report(r, &fault);
}

int tidl_pending_generation(struct tidl_pending *pending, uint64_t *ret_generation)
{
	struct tdp_fault fault = {.code = 0};
	struct tdc_reply *reply;
	int r;

	if (pending == NULL)
		return tdc_report(tdc_refuse_null("pending", &fault), &fault);
	if (ret_generation == NULL)
		return tdc_report(tdc_refuse_null("ret_generation", &fault), &fault);
	r = tdc_pending_take(pending, TDP_MESSAGE_WAITED, &reply, &fault);
	if (r == 0)
		*ret_generation = reply->message.waited.generation;
	return tdc_report(r, &fault);
}
