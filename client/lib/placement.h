/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_PLACEMENT_H
#define TDC_PLACEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/lib/import.h"
#include "client/lib/inplace/plan.h"
#include "client/lib/lease.h"
#include "client/lib/segment.h"
#include "client/lib/source.h"
#include "include/tidl/publish.h"
#include "proto/base/arena.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"
#include "proto/wire/message.h"

/* One tensor that is being published. Borrowed, as its import is. */
struct tdc_member {
	const char *key; /* path in a bundle; "" for a single tensor */
	struct tdc_import import;
	struct tdc_source *source; /* of the import */
};

/* What is published under one name. Borrowed. */
struct tdc_content {
	bool is_bundle;
	size_t member_count;
	const struct tdc_member *members;
	size_t mapping_count;
	const struct tdp_empty_mapping *mappings;
};

/*
 * Where the bytes of tensors that are being published lie: in segments already, moved into one
 * where they lie, or copied into one. Keeps those segments alive until the broker does.
 */
struct tdc_placement {
	enum tidl_path path;	      /* of what was published: COPIED if anything was */
	enum tidl_access access;      /* as asked for, or LIVE for constants that were moved */
	enum tidl_copy_reason reason; /* of the first copy */
	size_t copied_count;	      /* tensors */
	uint64_t tensor_bytes;	      /* of all tensors */
	size_t aliased_count;	      /* maps of segments that tensors lie in */
	struct tdc_segment **aliased; /* one reference each */
	size_t id_count;	      /* of those segments: several maps may be of one */
	uint64_t *ids;
	struct tdc_move_result move; /* what was moved; `moved` NULL: nothing, or it has a name */
	struct tdc_lease *lease;     /* of the copy's segment; NULL: nothing was copied */
	struct tdc_pooled *pooled;   /* where it was copied to, if that is kept; has the lease */
	size_t segment_count;	     /* by `ids`, then the copy's */
	struct tdp_segment *segments;
	size_t tensor_count;
	struct tdp_tensor *tensors; /* keys and shapes are borrowed from the members */
	struct tdp_arena arena;	    /* all these lists; the placement must not be moved */
};

/*
 * Find the memory of each, or copy it if @options allow; copies are sealed as their access wants
 * it. TIDL_ERR_COPY_NEEDED if they do not. Refusals of a member with a key name it.
 */
int tdc_placement_init(struct tdc_placement *placement, struct tidl_client *client,
		       const struct tdc_content *content,
		       const struct tidl_publish_options *options,
		       struct tdp_fault *fault) TDP_MUST_CHECK;

/* Do all segments end here as the name appears? Then the broker may take the allocations over. */
bool tdc_placement_hands_over(const struct tdc_placement *placement);

/* Is nothing exposed beside the tensors but what an allocator put around moved memory? */
bool tdc_placement_is_padded(const struct tdc_placement *placement);

/* The broker has taken the copy's allocation over: nothing is left to give back. */
void tdc_placement_handed_over(struct tidl_client *client, struct tdc_placement *placement);

void tdc_placement_deinit(struct tidl_client *client, struct tdc_placement *placement);

/* Say in a refusal which member it is about; the empty key of a single tensor changes nothing. */
int tdc_member_fault(struct tdp_fault *fault, const char *key);

#endif
