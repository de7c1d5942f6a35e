/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_SEGMENT_H
#define TDC_SEGMENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Tables that cannot grow for want of memory say so instead of ending the process. */
#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "include/tidl/tensor.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"
#include "proto/wire/message.h"

struct tdc_moved;
struct tdc_steps;
struct tidl_client;

/* What tells one map from another. Zeroed before it is filled in, since its bytes are hashed. */
struct tdc_segment_key {
	uint64_t id;
	uint64_t era;
	uint64_t attach;
};

/* One segment as this process has it mapped. */
struct tdc_segment {
	size_t refs; /* guarded by the client's lock, as the tables that find it */
	struct tdc_segment_key key;
	enum tidl_attach attach;
	uint32_t owner_uid;
	bool is_allocated;	 /* by this client, rather than attached */
	atomic_int access;	 /* enum tidl_access; 0: not published, as far as is known here */
	atomic_bool is_readonly; /* mapped so, from the beginning or made immutable in place */
	bool is_sealing;	 /* a thread is at it; guarded by the client's lock */
	bool is_linked;		 /* in the table; guarded by the client's lock */
	bool is_leaving;	 /* becoming private: not to be found; guarded so, too */
	struct tdc_moved *moved; /* the map is its owner's, one part of this; NULL: our own */
	void *base;
	size_t map_bytes;
	uint64_t data_offset_bytes; /* of `base` from the segment's start */
	struct tdc_steps *steps;    /* guarded by the client's lock; NULL: not used yet */
	UT_hash_handle hh;
};

/* How to map a received segment. */
struct tdc_segment_spec {
	const struct tdp_segment *wire; /* as the broker announced it */
	int fd;				/* borrowed */
	uint64_t era;
	enum tidl_attach attach;
	uint32_t owner_uid;
	enum tidl_access access; /* 0: not published */
	bool is_allocated;
};

/* A segment that lies where somebody else has mapped it: a part of moved memory. */
struct tdc_segment_place {
	uint64_t id;
	uint64_t era;
	uint32_t owner_uid;
	void *base;
	size_t size_bytes;
	uint64_t offset_bytes; /* of `base` from the segment's start */
	struct tdc_moved *moved;
};

/* One reference, in no table yet; NULL when there is no memory. */
struct tdc_segment *tdc_segment_place(const struct tdc_segment_place *place);

/* Is what the broker announced a segment that can be mapped? Looks at numbers only. */
int tdc_segment_check(const struct tdp_segment *wire, struct tdp_fault *fault) TDP_MUST_CHECK;

/* The kernel's word on the received descriptor: shared memory, large enough, cannot shrink, and
 * sealed as @access promises (0: nothing). */
int tdc_segment_verify(const struct tdp_segment *wire, int fd, enum tidl_access access,
		       struct tdp_fault *fault) TDP_MUST_CHECK;

/*
 * Map a checked and verified segment and enter it into the client's tables; when another thread was
 * faster, its map is used. One reference.
 */
int tdc_segment_map(struct tidl_client *client, const struct tdc_segment_spec *spec,
		    struct tdc_segment **ret_segment, struct tdp_fault *fault) TDP_MUST_CHECK;

/* One reference to the map of just this segment that exists already, or NULL. Locks the client. */
struct tdc_segment *tdc_segment_find(struct tidl_client *client, const struct tdp_segment *wire,
				     uint64_t era, enum tidl_attach attach);

/* One reference to the segment of this client that holds all of [@begin, @end), or NULL. */
struct tdc_segment *tdc_segment_find_range(struct tidl_client *client, uintptr_t begin,
					   uintptr_t end);

/* One more reference. Locks the client. */
struct tdc_segment *tdc_segment_ref(struct tidl_client *client, struct tdc_segment *segment);

/* Unmaps with the last reference; NULL is allowed. Locks the client. */
struct tdc_segment *tdc_segment_unref(struct tidl_client *client, struct tdc_segment *segment);

#endif
