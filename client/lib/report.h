/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_REPORT_H
#define TDC_REPORT_H

#include <stddef.h>

#include "proto/base/attr.h"
#include "proto/base/fault.h"

/* The end of every public function: keep the sentence for tidl_last_error(), return the code. */
int tdc_report(int result, const struct tdp_fault *fault);

const char *tdc_report_last(void);

/* The detail that came with it. */
int tdc_report_last_detail(void);

/*
 * Copy a caller's options over zeroed @ret_options of @size_bytes. The caller's struct may be of an
 * older version (shorter: the rest stays 0) or a newer one (longer: refused unless what this
 * version does not know is 0). Its first member is its size. NULL: all defaults.
 */
int tdc_options_copy(const void *options, void *ret_options, size_t size_bytes,
		     struct tdp_fault *fault) TDP_MUST_CHECK;

/* TIDL_ERR_INVALID_ARGUMENT, naming the argument that may not be NULL. */
int tdc_refuse_null(const char *argument, struct tdp_fault *fault) TDP_MUST_CHECK;

#endif
