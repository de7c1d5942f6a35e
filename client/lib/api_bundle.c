/* SPDX-License-Identifier: Apache-2.0 */
/* Public functions of bundles that ask the broker, and of drafts: check arguments, call inward,
 * keep the sentence of a refusal. Reading a bundle is in bundle.c. */
#include "include/tidl/bundle.h"

#include "client/lib/attach.h"
#include "client/lib/bundle.h"
#include "client/lib/draft.h"
#include "client/lib/publish.h"
#include "client/lib/report.h"

int tidl_draft_new(struct tidl_draft **ret_draft)
{
	struct tdp_fault fault = {.code = 0};

	if (ret_draft == NULL)
		return tdc_report(tdc_refuse_null("ret_draft", &fault), &fault);
	*ret_draft = tdc_draft_new();
	if (*ret_draft == NULL)
		return tdc_report(tdp_fault_code(&fault, TIDL_ERR_NO_MEMORY), &fault);
	return tdc_report(0, &fault);
}

static int draft_add(struct tidl_draft *draft, const char *key,
		     struct DLManagedTensorVersioned *versioned, struct DLManagedTensor *legacy)
{
	struct tdp_fault fault = {.code = 0};
	int r;

	if (draft == NULL)
		r = tdc_refuse_null("draft", &fault);
	else if (key == NULL)
		r = tdc_refuse_null("key", &fault);
	else if (versioned == NULL && legacy == NULL)
		r = tdc_refuse_null("managed", &fault);
	else
		r = tdc_draft_add(draft, key, versioned, legacy, &fault);
	return tdc_report(r, &fault);
}

int tidl_draft_add(struct tidl_draft *draft, const char *key,
		   struct DLManagedTensorVersioned *managed)
{
	return draft_add(draft, key, managed, NULL);
}

int tidl_draft_add_legacy(struct tidl_draft *draft, const char *key,
			  struct DLManagedTensor *managed)
{
	return draft_add(draft, key, NULL, managed);
}

int tidl_draft_add_mapping(struct tidl_draft *draft, const char *key)
{
	struct tdp_fault fault = {.code = 0};
	int r;

	if (draft == NULL)
		r = tdc_refuse_null("draft", &fault);
	else if (key == NULL)
		r = tdc_refuse_null("key", &fault);
	else
		r = tdc_draft_add_mapping(draft, key, &fault);
	return tdc_report(r, &fault);
}

int tidl_publish_bundle(struct tidl_client *client, const char *name,
			const struct tidl_draft *draft, const struct tidl_publish_options *options,
			struct tidl_publication *ret_publication)
{
	struct tdp_fault fault = {.code = 0};
	struct tdc_content content;
	int r;

	if (client == NULL)
		r = tdc_refuse_null("client", &fault);
	else if (draft == NULL)
		r = tdc_refuse_null("draft", &fault);
	else
		r = tdc_draft_finish(draft, &content, &fault);
	if (r == 0)
		r = tdc_publish_text(client, name, &content, options, ret_publication, &fault);
	return tdc_report(r, &fault);
}

static int any_get(struct tidl_client *client, const char *name,
		   const struct tidl_get_options *options, struct tdc_grant *ret_grant,
		   struct tdp_fault *fault)
{
	struct tdc_attach_request request;
	struct tdc_name parsed;
	int r;

	if (client == NULL)
		return tdc_refuse_null("client", fault);
	if (name == NULL)
		return tdc_refuse_null("name", fault);
	r = tdc_attach_request_parse(name, options, &parsed, &request, fault);
	return r < 0 ? r : tdc_attach(client, &request, ret_grant, fault);
}

int tidl_get_bundle(struct tidl_client *client, const char *name,
		    const struct tidl_get_options *options, struct tidl_bundle **ret_bundle)
{
	struct tdp_fault fault = {.code = 0};
	tdc_auto_grant grant = TDC_GRANT_NONE;
	int r;

	if (ret_bundle == NULL)
		return tdc_report(tdc_refuse_null("ret_bundle", &fault), &fault);
	r = any_get(client, name, options, &grant, &fault);
	if (r == 0 && !grant.is_bundle)
		r = tdp_fault_set(&fault, TIDL_ERR_INVALID_ARGUMENT,
				  "'%s' is a single tensor: attach it with tidl_get()", name);
	if (r == 0)
		r = tdc_bundle_new(&grant, ret_bundle, &fault);
	return tdc_report(r, &fault);
}

int tidl_get_any(struct tidl_client *client, const char *name,
		 const struct tidl_get_options *options, struct tidl_tensor **ret_tensor,
		 struct tidl_bundle **ret_bundle)
{
	struct tdp_fault fault = {.code = 0};
	tdc_auto_grant grant = TDC_GRANT_NONE;
	int r;

	if (ret_tensor == NULL || ret_bundle == NULL)
		return tdc_report(tdc_refuse_null(ret_tensor ? "ret_bundle" : "ret_tensor", &fault),
				  &fault);
	r = any_get(client, name, options, &grant, &fault);
	if (r == 0)
		r = tdc_bundle_or_tensor(&grant, ret_tensor, ret_bundle, &fault);
	return tdc_report(r, &fault);
}
