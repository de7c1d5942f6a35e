/* SPDX-License-Identifier: Apache-2.0 */
/* Public functions around memory that is shared where it lies: check arguments, call inward, keep
 * the sentence of a refusal. */
#include "include/tidl/inplace.h"

#include "client/lib/inplace/threshold.h"
#include "client/lib/inplace/uses.h"
#include "client/lib/owner.h"
#include "client/lib/remove.h"
#include "client/lib/report.h"

/* The broker has not said what became of the name, and will not any more. */
static bool answer_is_lost(int code)
{
	return code == TIDL_ERR_TIMEOUT || code <= TIDL_ERR_NO_BROKER;
}

/* Only the name needs the broker. */
static int path_unshare_alone(struct tidl_client *client, const char *path,
			      const struct tdp_fault *lost, struct tdp_fault *fault)
{
	int r = tdc_unshare(client, path, fault);

	if (r < 0)
		return r;
	(void)tdp_fault_set(fault, lost->code,
			    "the memory of '%s' is private again, but the name may still be "
			    "listed: %s",
			    path, lost->text);
	return lost->code;
}

static int name_unshare(struct tidl_client *client, const char *text, struct tdp_fault *fault)
{
	struct tdp_fault removal;
	struct tdc_name name;
	int r = tdc_name_parse(text, &name, fault);

	if (r == 0)
		r = tdc_unshare_check(client, name.path, fault);
	if (r < 0)
		return r;
	r = tdc_remove(client, &name, &removal);
	/* Removed by somebody else, or before. */
	if (r == 0 || r == TIDL_ERR_NOT_FOUND)
		return tdc_unshare(client, name.path, fault);
	if (answer_is_lost(r))
		return path_unshare_alone(client, name.path, &removal, fault);
	*fault = removal;
	return r;
}

int tidl_unshare(struct tidl_client *client, const char *name)
{
	struct tdp_fault fault = {.code = 0};
	int r;

	if (client == NULL)
		r = tdc_refuse_null("client", &fault);
	else if (name == NULL)
		r = tdc_refuse_null("name", &fault);
	else
		r = name_unshare(client, name, &fault);
	return tdc_report(r, &fault);
}

int tidl_prefer_shareable(size_t min_bytes, size_t *ret_from_bytes)
{
	struct tdp_fault fault = {.code = 0};
	size_t from_bytes;
	int r = tdc_prefer_shareable(min_bytes != 0 ? min_bytes : TIDL_SHAREABLE_MIN_BYTES,
				     &from_bytes, &fault);

	if (r == 0 && ret_from_bytes != NULL)
		*ret_from_bytes = from_bytes;
	return tdc_report(r, &fault);
}

enum tidl_copy_reason tidl_last_copy_reason(void)
{
	return (enum tidl_copy_reason)tdc_report_last_detail();
}
