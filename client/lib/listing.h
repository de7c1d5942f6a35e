/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_LISTING_H
#define TDC_LISTING_H

#include "client/lib/owner.h"
#include "include/tidl/admin.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

/* All pages of a listing. Free with tidl_listing_free(). */
int tdc_list(struct tidl_client *client, const struct tdc_name *pattern,
	     struct tidl_listing **ret_listing, struct tdp_fault *fault) TDP_MUST_CHECK;

#endif
