/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_DRAFT_H
#define TDC_DRAFT_H

#include "client/lib/placement.h"
#include "include/tidl/bundle.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

struct tidl_draft *tdc_draft_new(void);

/* Exactly one of @versioned and @legacy is set; it belongs to the draft on success. */
int tdc_draft_add(struct tidl_draft *draft, const char *key,
		  struct DLManagedTensorVersioned *versioned, struct DLManagedTensor *legacy,
		  struct tdp_fault *fault) TDP_MUST_CHECK;
int tdc_draft_add_mapping(struct tidl_draft *draft, const char *key,
			  struct tdp_fault *fault) TDP_MUST_CHECK;

/* Do the keys go together? What the draft holds, borrowed, if so. */
int tdc_draft_finish(const struct tidl_draft *draft, struct tdc_content *ret_content,
		     struct tdp_fault *fault) TDP_MUST_CHECK;

#endif
