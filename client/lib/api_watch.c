/* SPDX-License-Identifier: Apache-2.0 */
/* Public functions of events, waits and pins: check arguments, call inward, keep the sentence of a
 * refusal. */
#include "include/tidl/watch.h"

#include <string.h>

#include "client/lib/call.h"
#include "client/lib/generation.h"
#include "client/lib/report.h"
#include "client/lib/tensor.h"
#include "client/lib/watch.h"

/* Everything in the caller's own namespace. */
static const char pattern_default[] = "**";

static int watch_check_kinds(uint32_t kinds, struct tdp_fault *fault)
{
	if ((kinds & ~TDP_EVENT_KINDS_ALL) == 0)
		return 0;
	return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT,
			     "`kinds` has bits of no event: use TIDL_EVENT_BIT() of enum "
			     "tidl_event_kind");
}

int tidl_watch(struct tidl_client *client, const char *pattern,
	       const struct tidl_watch_options *options, struct tidl_watch **ret_watch)
{
	struct tidl_watch_options complete = {.size = sizeof(complete)};
	struct tdp_fault fault = {.code = 0};
	struct tdc_name parsed;
	int r;

	if (client == NULL)
		return tdc_report(tdc_refuse_null("client", &fault), &fault);
	if (ret_watch == NULL)
		return tdc_report(tdc_refuse_null("ret_watch", &fault), &fault);
	r = tdc_options_copy(options, &complete, sizeof(complete), &fault);
	if (r == 0)
		r = watch_check_kinds(complete.kinds, &fault);
	if (r == 0)
		r = tdc_pattern_parse(pattern ? pattern : pattern_default, &parsed, &fault);
	if (r == 0)
		r = tdc_watch_open(client, &parsed, complete.kinds, ret_watch, &fault);
	return tdc_report(r, &fault);
}

/* As much as the caller's version of the struct has room for. */
static void event_hand_out(struct tidl_event *event, struct tidl_event *ret_event)
{
	size_t size_bytes = ret_event->size;

	event->size = size_bytes;
	memcpy(ret_event, event, size_bytes < sizeof(*event) ? size_bytes : sizeof(*event));
}

int tidl_watch_next(struct tidl_watch *watch, int64_t timeout_ms, struct tidl_event *ret_event)
{
	struct tdp_fault fault = {.code = 0};
	struct tidl_event event;
	int r;

	if (watch == NULL)
		return tdc_report(tdc_refuse_null("watch", &fault), &fault);
	if (ret_event == NULL)
		return tdc_report(tdc_refuse_null("ret_event", &fault), &fault);
	if (ret_event->size < sizeof(ret_event->size))
		r = tdp_fault_set(&fault, TIDL_ERR_INVALID_ARGUMENT,
				  "the event has no valid `size`: set it to the size of its "
				  "struct");
	else
		r = tdc_watch_next(watch, timeout_ms, &event, &fault);
	if (r == TDC_CALL_EXPIRED)
		r = tdp_fault_set(&fault, TIDL_ERR_TIMEOUT,
				  "no event came within %lld ms: wait longer",
				  (long long)timeout_ms);
	if (r == 0)
		event_hand_out(&event, ret_event);
	return tdc_report(r, &fault);
}

int tidl_wait(struct tidl_client *client, const char *name, const struct tidl_wait_options *options,
	      uint64_t *ret_generation)
{
	struct tidl_wait_options complete;
	struct tdp_fault fault = {.code = 0};
	struct tdc_name parsed;
	uint64_t generation;
	int r;

	if (client == NULL)
		r = tdc_refuse_null("client", &fault);
	else if (name == NULL)
		r = tdc_refuse_null("name", &fault);
	else
		r = tdc_wait_parse(name, options, &parsed, &complete, &fault);
	if (r == 0)
		r = tdc_wait(client, &parsed, &complete, &generation, &fault);
	if (r == 0 && ret_generation != NULL)
		*ret_generation = generation;
	return tdc_report(r, &fault);
}

static int pin_check_generation(uint64_t generation, struct tdp_fault *fault)
{
	if (generation != 0)
		return 0;
	return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT,
			     "no generation has the number 0: give that of a publication");
}

int tidl_pin(struct tidl_client *client, const char *name, uint64_t generation)
{
	struct tdp_fault fault = {.code = 0};
	struct tdc_name parsed;
	int r;

	if (client == NULL)
		r = tdc_refuse_null("client", &fault);
	else if (name == NULL)
		r = tdc_refuse_null("name", &fault);
	else
		r = pin_check_generation(generation, &fault);
	if (r == 0)
		r = tdc_name_parse(name, &parsed, &fault);
	if (r == 0)
		r = tdc_pin(client, &parsed, generation, &fault);
	return tdc_report(r, &fault);
}

int tidl_tensor_pin(struct tidl_tensor *tensor)
{
	struct tdp_fault fault = {.code = 0};
	int r;

	if (tensor == NULL)
		return tdc_report(tdc_refuse_null("tensor", &fault), &fault);
	r = tdc_pin_origin(tensor->origin, &fault);
	return tdc_report(r, &fault);
}
