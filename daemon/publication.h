/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_PUBLICATION_H
#define TDD_PUBLICATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/deadline.h"
#include "daemon/holder.h"
#include "daemon/milestones.h"
#include "daemon/policy.h"
#include "daemon/process.h"
#include "daemon/quota.h"
#include "daemon/segment.h"
#include "include/tidl/publish.h"
#include "include/tidl/tensor.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"
#include "proto/wire/message.h"

struct tdd_manifest;
struct tdd_name;
struct tdd_pin;
struct tdd_registry;
struct tdd_waiter;

/*
 * The content of a name: segments, tensors over them, and what its owner decided. Never changes
 * once made. It is listed by the registry, as what its name stands for now or as one of the
 * replaced ones that its owner keeps, and lives on while a lease or a pin holds it;
 * tdd_publication_settle() frees it.
 */
struct tdd_publication {
	uint64_t generation; /* 0 until listed */
	const char *name;
	struct tdd_rights rights;
	enum tidl_access access;
	enum tidl_retention retention;
	enum tidl_path path;
	uint64_t ttl_ms; /* of retention SECONDS */
	uint64_t since_ms;
	uint64_t tensor_bytes;	/* elements x element size */
	uint64_t segment_bytes; /* as charged */
	uint64_t exposed_bytes; /* what readers reach */
	const char *metadata;	/* NULL: none */
	struct tdd_process *publisher;
	size_t segment_count;
	struct tdd_segment_use *uses;
	bool is_bundle;
	size_t tensor_count;
	struct tdp_tensor *tensors; /* all of them, or with a manifest the first */
	size_t empty_mapping_count; /* without a manifest */
	struct tdp_empty_mapping *empty_mappings;
	struct tdd_manifest *manifest;		       /* owned; NULL: none */
	struct tdd_registry *registry;		       /* NULL: never listed yet */
	struct tdd_name *entry;			       /* of the registry; NULL: not listed */
	struct tdd_publication *kept_prev, *kept_next; /* name::kept */
	struct tdd_hold *leases;		       /* in order of their serials */
	struct tdd_milestones milestones;
	uint32_t lease_count;
	uint32_t reader_count; /* holders that have leases, or are about to */
	struct tdd_pin *pins;
	struct tdd_waiter *waiters;   /* for all leases and pins to end */
	struct tdd_deadline deadline; /* seconds to live; the owner's death and the grace period */
	struct tdd_holder *owner;     /* retention OWNER: who it ends with */
	struct tdd_publication *owner_prev, *owner_next; /* holder::owned */
	struct tdd_charge count;
	struct tdd_charge rows;
	struct tdd_charge bytes;
	struct tdd_charge descriptors;
};

/* What a publication is made of; everything is borrowed and copied, but the manifest, which is
 * taken over on success. */
struct tdd_publication_spec {
	const char *name;
	struct tdd_rights rights;
	enum tidl_access access;
	enum tidl_retention retention;
	uint64_t ttl_ms;	       /* of retention SECONDS */
	struct tdd_timeline *timeline; /* needed for SECONDS and OWNER */
	enum tidl_path path;
	uint64_t tensor_bytes;
	const char *metadata;
	size_t segment_count;
	struct tdd_segment *const *segments;
	bool is_bundle;
	size_t tensor_count;
	const struct tdp_tensor *tensors; /* with a manifest the first, if there is any */
	size_t empty_mapping_count;	  /* 0 with a manifest */
	const struct tdp_empty_mapping *empty_mappings;
	struct tdd_manifest *manifest;
};

/* Charged to the uid of @publisher. Not listed yet: list it, or settle it. */
int tdd_publication_new(const struct tdd_publication_spec *spec, struct tdd_holder *publisher,
			struct tdd_publication **ret_publication,
			struct tdp_fault *fault) TDP_MUST_CHECK;

static inline bool tdd_publication_is_listed(const struct tdd_publication *publication)
{
	return publication->entry != NULL;
}

bool tdd_publication_is_current(const struct tdd_publication *publication);

/* May it be had by its number? While it is listed or pinned. */
static inline bool tdd_publication_is_attachable(const struct tdd_publication *publication)
{
	return tdd_publication_is_listed(publication) || publication->pins;
}

/* Its owner is no more: its grace period runs, or is about to. */
bool tdd_publication_is_orphaned(const struct tdd_publication *publication);

/* It was unlisted, or a lease or pin on it ended: free it, or let the oldest lease's uid pay, or
 * that of a pin. */
void tdd_publication_settle(struct tdd_publication *publication);

/* Do the two share memory? */
bool tdd_publication_shares_segment(const struct tdd_publication *a,
				    const struct tdd_publication *b);

/* Leases and pins on it and allocations of its segments. */
uint32_t tdd_publication_holder_count(const struct tdd_publication *publication);

#endif
