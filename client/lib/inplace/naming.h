/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_INPLACE_NAMING_H
#define TDC_INPLACE_NAMING_H

#include <stddef.h>
#include <stdint.h>

#include "client/lib/inplace/moved.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

/* The moved memory, if any, that one publish gives a name. Prepared before it is sent, so that
 * nothing can fail behind it. */
struct tdc_naming {
	size_t count;
	struct tdc_moved **moved;    /* each once; borrowed: the publish holds their segments */
	struct tdc_moved_use **uses; /* owned until entered */
};

int tdc_naming_init(struct tdc_naming *naming, const char *path, size_t segment_count,
		    struct tdc_segment *const *segments, struct tdp_fault *fault) TDP_MUST_CHECK;

/*
 * Published as @generation. What had this name before has it no longer; @fresh, what was moved for
 * this publish, is not busy any more (NULL: nothing was).
 */
void tdc_naming_finish(struct tidl_client *client, struct tdc_naming *naming, const char *path,
		       uint64_t generation, struct tdc_moved *fresh);

void tdc_naming_deinit(struct tdc_naming *naming);

#endif
