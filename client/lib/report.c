/* SPDX-License-Identifier: Apache-2.0 */
/* What all public functions do at their beginning and end. */
#include "client/lib/report.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Far more than any version's options: what is longer is a wild `size`. */
enum { OPTIONS_MAX_BYTES = 4096 };

static _Thread_local char last_error[TDP_FAULT_TEXT_MAX];
static _Thread_local int last_detail;

int tdc_report(int result, const struct tdp_fault *fault)
{
	const char *text = fault->text;

	if (result >= 0)
		return result;
	last_detail = fault->code == result ? fault->detail : 0;
	if (fault->code != result || text[0] == '\0')
		text = tdp_error_text(result);
	(void)snprintf(last_error, sizeof(last_error), "%s", text);
	return result;
}

const char *tdc_report_last(void)
{
	return last_error;
}

int tdc_report_last_detail(void)
{
	return last_detail;
}

static bool is_zero(const unsigned char *bytes, size_t size_bytes)
{
	for (size_t i = 0; i < size_bytes; i++) {
		if (bytes[i] != 0)
			return false;
	}
	return true;
}

int tdc_options_copy(const void *options, void *ret_options, size_t size_bytes,
		     struct tdp_fault *fault)
{
	size_t given_bytes;

	if (options == NULL)
		return 0;
	memcpy(&given_bytes, options, sizeof(given_bytes));
	if (given_bytes < sizeof(given_bytes) || given_bytes > OPTIONS_MAX_BYTES)
		return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT,
				     "the options have no valid `size`: set it to the size of "
				     "their struct");
	if (given_bytes > size_bytes &&
	    !is_zero((const unsigned char *)options + size_bytes, given_bytes - size_bytes))
		return tdp_fault_set(fault, TIDL_ERR_UNSUPPORTED,
				     "the options have members that this version of the library "
				     "does not know: update it, or leave them 0");
	memcpy(ret_options, options, given_bytes < size_bytes ? given_bytes : size_bytes);
	return 0;
}

int tdc_refuse_null(const char *argument, struct tdp_fault *fault)
{
	return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT, "`%s` may not be NULL", argument);
}
