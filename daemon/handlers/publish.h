/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_HANDLERS_PUBLISH_H
#define TDD_HANDLERS_PUBLISH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/exposure.h"
#include "daemon/manifest.h"
#include "daemon/publication.h"
#include "daemon/session.h"
#include "proto/base/arena.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"
#include "proto/keys.h"
#include "proto/wire/manifest.h"
#include "proto/wire/message.h"

/* How far the checks have come. */
enum tdd_draft_stage {
	TDD_DRAFT_BEGIN,
	TDD_DRAFT_READ, /* with a manifest, as what follows */
	TDD_DRAFT_ROWS,
	TDD_DRAFT_KEYS,
	TDD_DRAFT_DONE
};

/*
 * What the checks of a PUBLISH find out, and all that making it visible needs. Rows are added one
 * by one, whether they come from the packet or from a manifest: segments, then tensors, then empty
 * mappings.
 */
struct tdd_draft {
	const struct tdd_session *session;
	const struct tdp_publish *publish;
	struct tdd_publication_spec spec;
	struct tdp_arena arena;
	struct tdd_segment **segments; /* spec.segment_count of them */
	bool *is_used;
	uint64_t mark;		/* on the segments that are in the list */
	struct tdp_keyset keys; /* of a bundle */
	bool is_exposing;	/* others may read: what they see has to be found out */
	struct tdd_exposure exposure;
	size_t empty_mapping_count;
	uint32_t last_position; /* of an empty mapping */
	enum tdd_draft_stage stage;
	/* With a manifest, whose check may take several turns. */
	bool has_paused;
	struct tdp_manifest_reader reader;
	size_t key_position;	       /* keys that were compared with the others */
	struct tdd_manifest *manifest; /* until a publication takes it over */
	char *manifest_bytes;	       /* which the keys lie in */
	size_t manifest_size_bytes;
	size_t read_bytes;
	struct tdp_manifest_row first; /* the first tensor */
};

void tdd_draft_init(struct tdd_draft *draft, const struct tdd_session *session,
		    const struct tdp_publish *publish);
void tdd_draft_deinit(struct tdd_draft *draft);

/* Check everything that does not depend on memory and quota (publish_check.c). Changes nothing but
 * marks; the draft borrows from its publish. Returns TDD_WORK_LEFT when it is to be called again,
 * as a manifest's may. */
int tdd_draft_check(struct tdd_draft *draft, struct tdp_fault *fault) TDP_MUST_CHECK;

/* One segment that the publish names (publish_check.c). */
int tdd_draft_check_segment(const struct tdd_draft *draft, const struct tdp_segment *asked,
			    struct tdd_segment **ret_segment,
			    struct tdp_fault *fault) TDP_MUST_CHECK;

/* The rows (publish_rows.c): room for so many of each, one after the other, and what can be said
 * when all are there. */
int tdd_draft_begin_rows(struct tdd_draft *draft, const struct tdp_manifest *counts,
			 struct tdp_fault *fault) TDP_MUST_CHECK;
int tdd_draft_add_segment(struct tdd_draft *draft, const struct tdp_segment *asked,
			  struct tdp_fault *fault) TDP_MUST_CHECK;
/* @key is that of the tensor, in memory that outlives the draft. */
int tdd_draft_add_tensor(struct tdd_draft *draft, const struct tdp_tensor *tensor, const char *key,
			 struct tdp_fault *fault) TDP_MUST_CHECK;
int tdd_draft_add_empty_mapping(struct tdd_draft *draft, const struct tdp_empty_mapping *mapping,
				const char *key, struct tdp_fault *fault) TDP_MUST_CHECK;
int tdd_draft_end_rows(const struct tdd_draft *draft, struct tdp_fault *fault) TDP_MUST_CHECK;
/* Compare some of the keys with all others. Returns TDD_WORK_LEFT while there are more. */
int tdd_draft_check_keys(struct tdd_draft *draft, struct tdp_fault *fault) TDP_MUST_CHECK;

/* A manifest has come with session::request, to which it belongs from now on. */
int tdd_manifest_arrive(struct tdd_session *session, struct tdp_fault *fault) TDP_MUST_CHECK;

/* All rows of the packet (publish_rows.c), or of its manifest (publish_manifest.c). */
int tdd_draft_take_rows(struct tdd_draft *draft, struct tdp_fault *fault) TDP_MUST_CHECK;
int tdd_draft_take_manifest(struct tdd_draft *draft, struct tdp_fault *fault) TDP_MUST_CHECK;

#define tdd_auto_draft TDP_CLEANUP(tdd_draft_deinit) struct tdd_draft

#endif
