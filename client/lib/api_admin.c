/* SPDX-License-Identifier: Apache-2.0 */
/* Public functions of administration: check arguments, call inward, keep the sentence of a
 * refusal. Their results are read in listing.c and inspection.c. */
#include "include/tidl/admin.h"

#include "client/lib/call.h"
#include "client/lib/inspection.h"
#include "client/lib/listing.h"
#include "client/lib/owner.h"
#include "client/lib/report.h"

/* Everything in the caller's own namespace. */
static const char pattern_default[] = "**";

int tidl_list(struct tidl_client *client, const char *pattern, struct tidl_listing **ret_listing)
{
	struct tdp_fault fault = {.code = 0};
	struct tdc_name parsed;
	int r;

	if (client == NULL)
		return tdc_report(tdc_refuse_null("client", &fault), &fault);
	if (ret_listing == NULL)
		return tdc_report(tdc_refuse_null("ret_listing", &fault), &fault);
	r = tdc_pattern_parse(pattern ? pattern : pattern_default, &parsed, &fault);
	if (r == 0)
		r = tdc_list(client, &parsed, ret_listing, &fault);
	return tdc_report(r, &fault);
}

int tidl_inspect(struct tidl_client *client, const char *name,
		 struct tidl_inspection **ret_inspection)
{
	struct tdp_fault fault = {.code = 0};
	struct tdc_name parsed;
	int r;

	if (client == NULL)
		return tdc_report(tdc_refuse_null("client", &fault), &fault);
	if (name == NULL)
		return tdc_report(tdc_refuse_null("name", &fault), &fault);
	if (ret_inspection == NULL)
		return tdc_report(tdc_refuse_null("ret_inspection", &fault), &fault);
	r = tdc_name_parse(name, &parsed, &fault);
	if (r == 0)
		r = tdc_inspect(client, &parsed, ret_inspection, &fault);
	return tdc_report(r, &fault);
}

int tidl_shutdown(struct tidl_client *client)
{
	struct tdp_message request = {.kind = TDP_MESSAGE_SHUTDOWN};
	struct tdp_fault fault = {.code = 0};
	tdc_auto_reply *reply = NULL;
	int r;

	if (client == NULL)
		return tdc_report(tdc_refuse_null("client", &fault), &fault);
	r = tdc_call(client, &request, TDC_ANSWER_DUE, TDP_MESSAGE_DONE, &reply, &fault);
	return tdc_report(r, &fault);
}
