/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_PUBLISH_H
#define TDC_PUBLISH_H

#include "client/lib/owner.h"
#include "client/lib/placement.h"
#include "include/tidl/publish.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

/* Are these options within their documented ranges? Fills in defaults that are not 0. */
int tdc_publish_options_check(struct tidl_publish_options *options,
			      struct tdp_fault *fault) TDP_MUST_CHECK;

/* Publish checked tensors under a checked name. @ret_publication is filled in whole but `size`. */
int tdc_publish(struct tidl_client *client, const struct tdc_name *name,
		const struct tdc_content *content, const struct tidl_publish_options *options,
		struct tidl_publication *ret_publication, struct tdp_fault *fault) TDP_MUST_CHECK;

#endif
