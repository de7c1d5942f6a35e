/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDP_BASE_FAULT_H
#define TDP_BASE_FAULT_H

#include <stdarg.h>

#include "include/tidl/error.h"

/*
 * One refusal: a stable code and a sentence that tells the user what to do next. Owned by whoever
 * started the operation and handed down as the last parameter; the function that knows the reason
 * fills it in once, everybody above only passes the code on.
 */

enum { TDP_FAULT_TEXT_MAX = 512 };

struct tdp_fault {
	int code;   /* TIDL_ERR_*, 0 when nothing failed */
	int detail; /* what kind of that: enum tidl_copy_reason, with TIDL_ERR_COPY_NEEDED; else 0
		     */
	char text[TDP_FAULT_TEXT_MAX];
};

/* Record a refusal and return @code, so that `return tdp_fault_set(...)` reads as one step. */
__attribute__((format(printf, 3, 4))) int tdp_fault_set(struct tdp_fault *fault, int code,
							const char *format, ...);

/* The same with `: <strerror(errno_value)>` behind it; ENOMEM and EMFILE get their own codes. */
__attribute__((format(printf, 3, 4))) int tdp_fault_errno(struct tdp_fault *fault, int errno_value,
							  const char *format, ...);

/* Record a code with its general sentence. */
int tdp_fault_code(struct tdp_fault *fault, int code);

/* A refusal is never 0. Said here, where compilers and analysers see it: they would otherwise
 * follow every refused call as if it had filled in its results. */
static inline int tdp_fault_refusal(int code)
{
	if (code >= 0)
		__builtin_unreachable();
	return code;
}

#define tdp_fault_set(...)   tdp_fault_refusal(tdp_fault_set(__VA_ARGS__))
#define tdp_fault_errno(...) tdp_fault_refusal(tdp_fault_errno(__VA_ARGS__))
#define tdp_fault_code(...)  tdp_fault_refusal(tdp_fault_code(__VA_ARGS__))

/* Stable name and general sentence of a code; "UNKNOWN" for codes that do not exist. */
const char *tdp_error_name(int code);
const char *tdp_error_text(int code);
int tdp_error_is_known(int code);

#endif
