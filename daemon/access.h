/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_ACCESS_H
#define TDD_ACCESS_H

#include <stdbool.h>

#include "daemon/segment.h"
#include "include/tidl/tensor.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

/*
 * What the access of a publication makes of its segments. It belongs to the segment: the first
 * publication decides, all others have to agree.
 */

/*
 * May the segment be published as @name with @access? TIDL_ERR_ACCESS if it has another one, or
 * seals that say something else. @is_trial: it need not be sealed yet. Changes nothing.
 */
int tdd_access_check(const struct tdd_segment *segment, enum tidl_access access, const char *name,
		     bool is_trial, struct tdp_fault *fault) TDP_MUST_CHECK;

/*
 * Let the kernel enforce it, before anybody gets the segment. Cannot be undone, so everything else
 * that can refuse a publication comes first.
 */
int tdd_access_seal(struct tdd_segment *segment, enum tidl_access access,
		    struct tdp_fault *fault) TDP_MUST_CHECK;

/* The publication is there. Cannot fail. */
void tdd_access_settle(struct tdd_segment *segment, enum tidl_access access);

#endif
