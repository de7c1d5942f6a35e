/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_PUBLISH_H
#define TDC_PUBLISH_H

#include "client/lib/placement.h"
#include "include/tidl/publish.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

/*
 * Publish checked tensors. Checks the name, the options, which may be NULL, and @ret_publication,
 * which may be too; fills in as much of it as its `size` allows.
 */
int tdc_publish_text(struct tidl_client *client, const char *text,
		     const struct tdc_content *content, const struct tidl_publish_options *options,
		     struct tidl_publication *ret_publication,
		     struct tdp_fault *fault) TDP_MUST_CHECK;

#endif
