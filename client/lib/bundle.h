/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_BUNDLE_H
#define TDC_BUNDLE_H

#include "client/lib/grant.h"
#include "include/tidl/bundle.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

/* One reference to a bundle over a grant of one, which is taken over on success. */
int tdc_bundle_new(struct tdc_grant *grant, struct tidl_bundle **ret_bundle,
		   struct tdp_fault *fault) TDP_MUST_CHECK;

/* One of both, whichever it is; the other becomes NULL. A bundle takes the grant over. */
int tdc_bundle_or_tensor(struct tdc_grant *grant, struct tidl_tensor **ret_tensor,
			 struct tidl_bundle **ret_bundle, struct tdp_fault *fault) TDP_MUST_CHECK;

#endif
