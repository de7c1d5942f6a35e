/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_INSPECTION_H
#define TDC_INSPECTION_H

#include "client/lib/owner.h"
#include "include/tidl/admin.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

/* All pages about one name. Free with tidl_inspection_free(). */
int tdc_inspect(struct tidl_client *client, const struct tdc_name *name,
		struct tidl_inspection **ret_inspection, struct tdp_fault *fault) TDP_MUST_CHECK;

#endif
