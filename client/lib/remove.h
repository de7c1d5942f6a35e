/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_REMOVE_H
#define TDC_REMOVE_H

#include "client/lib/owner.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

struct tidl_client;

/* Take a name out of the listing. One round trip. What this client has moved for it becomes private
 * when nobody holds it any more. */
int tdc_remove(struct tidl_client *client, const struct tdc_name *name,
	       struct tdp_fault *fault) TDP_MUST_CHECK;

#endif
