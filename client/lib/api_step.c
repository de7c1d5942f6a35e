/* SPDX-License-Identifier: Apache-2.0 */
/* Public functions of steps: check arguments, call inward, keep the sentence of a refusal. */
#include "include/tidl/step.h"

#include "client/lib/report.h"
#include "client/lib/step_wait.h"
#include "client/lib/steps.h"
#include "client/lib/tensor.h"

/* Untouched on failure; NULL: not wanted. */
static int step_report(int r, uint64_t step, uint64_t *ret_step, const struct tdp_fault *fault)
{
	if (r == 0 && ret_step != NULL)
		*ret_step = step;
	return tdc_report(r, fault);
}

int tidl_update_begin(struct tidl_tensor *tensor, uint32_t flags)
{
	struct tdp_fault fault = {.code = 0};
	int r;

	if (tensor == NULL)
		r = tdc_refuse_null("tensor", &fault);
	else if ((flags & ~TIDL_UPDATE_TAKE_OVER) != 0)
		r = tdp_fault_set(&fault, TIDL_ERR_INVALID_ARGUMENT,
				  "`flags` has bits that mean nothing: use TIDL_UPDATE_* only");
	else
		r = tdc_update_begin(tensor, (flags & TIDL_UPDATE_TAKE_OVER) != 0, &fault);
	return tdc_report(r, &fault);
}

int tidl_update_end(struct tidl_tensor *tensor, uint64_t *ret_step)
{
	struct tdp_fault fault = {.code = 0};
	uint64_t step = 0;
	int r = tensor == NULL ? tdc_refuse_null("tensor", &fault)
			       : tdc_update_end(tensor, &step, &fault);

	return step_report(r, step, ret_step, &fault);
}

int tidl_commit(struct tidl_tensor *tensor, uint64_t *ret_step)
{
	struct tdp_fault fault = {.code = 0};
	uint64_t step = 0;
	int r = tensor == NULL ? tdc_refuse_null("tensor", &fault)
			       : tdc_commit(tensor, &step, &fault);

	return step_report(r, step, ret_step, &fault);
}

int tidl_step(struct tidl_tensor *tensor, uint64_t *ret_step)
{
	struct tdp_fault fault = {.code = 0};
	uint64_t step = 0;
	int r;

	if (tensor == NULL)
		r = tdc_refuse_null("tensor", &fault);
	else if (ret_step == NULL)
		r = tdc_refuse_null("ret_step", &fault);
	else
		r = tdc_step(tensor, &step, &fault);
	return step_report(r, step, ret_step, &fault);
}

int tidl_wait_step(struct tidl_tensor *tensor, uint64_t step, int64_t timeout_ms,
		   uint64_t *ret_step)
{
	struct tdp_fault fault = {.code = 0};
	uint64_t reached = 0;
	int r = tensor == NULL ? tdc_refuse_null("tensor", &fault)
			       : tdc_wait_step(tensor, step, timeout_ms, &reached, &fault);

	return step_report(r, reached, ret_step, &fault);
}

int tidl_snapshot(struct tidl_tensor *tensor, void *buffer, uint64_t buffer_bytes,
		  int64_t timeout_ms, uint64_t *ret_step)
{
	struct tdp_fault fault = {.code = 0};
	uint64_t step = 0;
	int r;

	if (tensor == NULL)
		r = tdc_refuse_null("tensor", &fault);
	else if (buffer == NULL)
		r = tdc_refuse_null("buffer", &fault);
	else if (buffer_bytes != tensor->nbytes)
		r = tdp_fault_set(&fault, TIDL_ERR_INVALID_ARGUMENT,
				  "the tensor has %llu bytes and the buffer %llu: they must be "
				  "the same",
				  (unsigned long long)tensor->nbytes,
				  (unsigned long long)buffer_bytes);
	else
		r = tdc_snapshot(tensor, buffer, timeout_ms, &step, &fault);
	return step_report(r, step, ret_step, &fault);
}
