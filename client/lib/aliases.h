/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_ALIASES_H
#define TDC_ALIASES_H

#include <stddef.h>

#include "client/lib/import.h"
#include "client/lib/inplace/maps.h"
#include "client/lib/segment.h"
#include "include/tidl/publish.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

struct tdc_placement;

/* A segment that tensors of one placement lie in, as it is mapped. */
struct tdc_alias {
	struct tdc_segment *segment;
	size_t index; /* of the segment in the placement */
	UT_hash_handle hh;
};

/* All found so far, while a placement is being worked out. Lists them in the placement, whose arena
 * they live in. */
struct tdc_aliases {
	struct tidl_client *client;
	struct tdc_placement *placement;
	struct tdc_alias *known; /* hash */
	struct tdc_alias *last;	 /* the one just found: the next tensor often lies there too */
	struct tdc_maps maps;	 /* loaded when moved memory was found; else empty */
};

/* Look memory up: NONE, and its segment becomes `last`; or why it cannot be published as it is. */
int tdc_alias_find(struct tdc_aliases *aliases, const struct tdc_import *import,
		   enum tidl_copy_reason *ret_reason, struct tdp_fault *fault) TDP_MUST_CHECK;

/* Would memory [@begin, @end) be published as it is? NONE, or why not. Enters nothing. */
int tdc_alias_ask(struct tidl_client *client, uintptr_t begin, uintptr_t end,
		  enum tidl_copy_reason *ret_reason, struct tdp_fault *fault) TDP_MUST_CHECK;

/* Enter a segment that tensors lie in; it becomes `last`. Takes the reference over in any case. */
int tdc_alias_add(struct tdc_aliases *aliases, struct tdc_segment *segment,
		  struct tdp_fault *fault) TDP_MUST_CHECK;

/* Forgets how they were found; what the placement lists stays. */
void tdc_aliases_deinit(struct tdc_aliases *aliases);

#endif
