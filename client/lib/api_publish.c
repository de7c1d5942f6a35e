/* SPDX-License-Identifier: Apache-2.0 */
/* Public functions around names: check arguments, call inward, keep the sentence of a refusal. */
#include "include/tidl/publish.h"

#include <string.h>

#include <dlpack/dlpack.h>

#include "client/lib/aliases.h"
#include "client/lib/import.h"
#include "client/lib/inplace/listed.h"
#include "client/lib/inplace/uses.h"
#include "client/lib/owner.h"
#include "client/lib/publish.h"
#include "client/lib/remove.h"
#include "client/lib/report.h"
#include "client/lib/source.h"
#include "proto/tensor/dtype.h"

/* On success the source's reference is the library's; on failure the tensor stays with the caller.
 */
static int publish_single(struct tidl_client *client, const char *name, struct tdc_member *member,
			  const struct tidl_publish_options *options,
			  struct tidl_publication *ret_publication, struct tdp_fault *fault)
{
	struct tdc_content content = {.member_count = 1, .members = member};
	int r;

	if (member->source == NULL)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	r = tdc_publish_text(client, name, &content, options, ret_publication, fault);
	if (r < 0)
		(void)tdc_source_forget(member->source);
	else
		(void)tdc_source_unref(member->source);
	return r;
}

static int publish_check_arguments(const struct tidl_client *client, const void *managed,
				   struct tdp_fault *fault)
{
	if (client == NULL)
		return tdc_refuse_null("client", fault);
	return managed == NULL ? tdc_refuse_null("managed", fault) : 0;
}

int tidl_publish(struct tidl_client *client, const char *name,
		 struct DLManagedTensorVersioned *managed,
		 const struct tidl_publish_options *options,
		 struct tidl_publication *ret_publication)
{
	struct tdp_fault fault = {.code = 0};
	struct tdc_member member = {.key = ""};
	int r = publish_check_arguments(client, managed, &fault);

	if (r == 0)
		r = tdc_import(managed, &member.import, &fault);
	if (r < 0)
		return tdc_report(r, &fault);
	member.source = tdc_source_new(managed, NULL);
	r = publish_single(client, name, &member, options, ret_publication, &fault);
	return tdc_report(r, &fault);
}

int tidl_publish_legacy(struct tidl_client *client, const char *name,
			struct DLManagedTensor *managed, const struct tidl_publish_options *options,
			struct tidl_publication *ret_publication)
{
	struct tdp_fault fault = {.code = 0};
	struct tdc_member member = {.key = ""};
	int r = publish_check_arguments(client, managed, &fault);

	if (r == 0)
		r = tdc_import_legacy(managed, &member.import, &fault);
	if (r < 0)
		return tdc_report(r, &fault);
	member.source = tdc_source_new(NULL, managed);
	r = publish_single(client, name, &member, options, ret_publication, &fault);
	return tdc_report(r, &fault);
}

static int recognise_check_arguments(const struct tidl_client *client, const void *address,
				     size_t bytes, const enum tidl_copy_reason *ret_reason,
				     struct tdp_fault *fault)
{
	if (client == NULL)
		return tdc_refuse_null("client", fault);
	if (address == NULL)
		return tdc_refuse_null("address", fault);
	if (ret_reason == NULL)
		return tdc_refuse_null("ret_reason", fault);
	if (bytes == 0 || bytes > UINTPTR_MAX - (uintptr_t)address)
		return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT,
				     "%zu bytes are no memory at %p", bytes, address);
	return 0;
}

int tidl_recognise(struct tidl_client *client, const void *address, size_t bytes,
		   enum tidl_copy_reason *ret_reason)
{
	struct tdp_fault fault = {.code = 0};
	enum tidl_copy_reason reason;
	int r = recognise_check_arguments(client, address, bytes, ret_reason, &fault);

	if (r == 0)
		r = tdc_alias_ask(client, (uintptr_t)address, (uintptr_t)address + bytes, &reason,
				  &fault);
	if (r == 0)
		*ret_reason = reason;
	return tdc_report(r, &fault);
}

static int name_remove(struct tidl_client *client, const char *text, struct tdp_fault *fault)
{
	struct tdc_name name;
	int r = tdc_name_parse(text, &name, fault);

	if (r == 0)
		r = tdc_remove(client, &name, fault);
	if (r == 0) {
		tdc_listed_ask(client);
		tdc_moved_reap(client);
	}
	return r;
}

int tidl_remove(struct tidl_client *client, const char *name)
{
	struct tdp_fault fault = {.code = 0};
	int r;

	if (client == NULL)
		r = tdc_refuse_null("client", &fault);
	else if (name == NULL)
		r = tdc_refuse_null("name", &fault);
	else
		r = name_remove(client, name, &fault);
	return tdc_report(r, &fault);
}

int tidl_dtype_parse(const char *text, struct tidl_dtype *ret_dtype)
{
	struct tdp_fault fault = {.code = 0};
	int r;

	if (text == NULL || ret_dtype == NULL)
		return tdc_report(tdc_refuse_null(text ? "ret_dtype" : "text", &fault), &fault);
	r = tdp_dtype_parse(text, ret_dtype);
	if (r < 0)
		r = tdp_fault_set(&fault, r,
				  "'%s' is not a data type: use a word such as float32, int64, "
				  "bfloat16 or bool",
				  text);
	return tdc_report(r, &fault);
}
