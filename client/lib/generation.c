/* SPDX-License-Identifier: Apache-2.0 */
/* Generations of a name without their memory: waiting for one, for its end of use, pinning one. */
#include "client/lib/generation.h"

#include "client/lib/call.h"
#include "client/lib/report.h"

int tdc_wait_parse(const char *text, const struct tidl_wait_options *options,
		   struct tdc_name *ret_name, struct tidl_wait_options *ret_options,
		   struct tdp_fault *fault)
{
	struct tidl_wait_options complete = {.size = sizeof(complete)};
	int r = tdc_options_copy(options, &complete, sizeof(complete), fault);

	if (r < 0)
		return r;
	if (complete.released != 0 && complete.newer_than != 0)
		return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT,
				     "a wait is for a newer generation or for the release of one: "
				     "leave `newer_than` or `released` 0");
	if (complete.released == 0 && complete.generation != 0)
		return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT,
				     "a generation can only be waited for to be released: use "
				     "`newer_than`, or set `released`");
	*ret_options = complete;
	return tdc_name_parse(text, ret_name, fault);
}

struct tdp_message tdc_wait_message(const struct tdc_name *name,
				    const struct tidl_wait_options *options)
{
	return (struct tdp_message){
		.kind = TDP_MESSAGE_WAIT,
		.wait = {.name = name->path,
			 .has_owner = name->has_owner,
			 .owner_uid = name->owner_uid,
			 .newer_than = options->newer_than,
			 .released = options->released != 0,
			 .generation = options->generation},
	};
}

int tdc_generation_expired(const struct tdc_name *name, uint64_t newer_than, int64_t timeout_ms,
			   struct tdp_fault *fault)
{
	if (newer_than != 0)
		return tdp_fault_set(fault, TIDL_ERR_TIMEOUT,
				     "'%s' got no generation above %llu within %lld ms: wait "
				     "longer, or check that its publisher runs",
				     name->path, (unsigned long long)newer_than,
				     (long long)timeout_ms);
	return tdp_fault_set(fault, TIDL_ERR_TIMEOUT,
			     "nothing that you may read was published as '%s' within %lld ms: "
			     "wait longer, or check that its publisher runs",
			     name->path, (long long)timeout_ms);
}

static int wait_expired(const struct tdc_name *name, const struct tidl_wait_options *options,
			struct tdp_fault *fault)
{
	if (options->released != 0)
		return tdp_fault_set(fault, TIDL_ERR_TIMEOUT,
				     "somebody still holds '%s' after %lld ms: wait longer, or "
				     "see who it is with `tidlctl inspect`",
				     name->path, (long long)options->timeout_ms);
	return tdc_generation_expired(name, options->newer_than, options->timeout_ms, fault);
}

int tdc_wait(struct tidl_client *client, const struct tdc_name *name,
	     const struct tidl_wait_options *options, uint64_t *ret_generation,
	     struct tdp_fault *fault)
{
	struct tdp_message request = tdc_wait_message(name, options);
	tdc_auto_reply *reply = NULL;
	int r = tdc_call(client, &request, tdc_deadline_after(options->timeout_ms),
			 TDP_MESSAGE_WAITED, &reply, fault);

	if (r == TDC_CALL_EXPIRED)
		return wait_expired(name, options, fault);
	if (r == 0)
		*ret_generation = reply->message.waited.generation;
	return r;
}

int tdc_pin(struct tidl_client *client, const struct tdc_name *name, uint64_t generation,
	    struct tdp_fault *fault)
{
	struct tdp_message request = {
		.kind = TDP_MESSAGE_PIN,
		.pin = {.name = name->path,
			.has_owner = name->has_owner,
			.owner_uid = name->owner_uid,
			.generation = generation},
	};
	tdc_auto_reply *reply = NULL;

	return tdc_call(client, &request, TDC_ANSWER_DUE, TDP_MESSAGE_DONE, &reply, fault);
}

int tdc_pin_origin(const struct tdc_origin *origin, struct tdp_fault *fault)
{
	const struct tdc_name name = {
		.has_owner = true,
		.owner_uid = origin->owner_uid,
		.path = origin->name,
	};

	if (origin->name == NULL)
		return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT,
				     "this was not got by name: publish it, and pin it by its name "
				     "and generation");
	return tdc_pin(origin->client, &name, origin->generation, fault);
}
