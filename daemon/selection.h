/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_SELECTION_H
#define TDD_SELECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/publication.h"
#include "proto/base/arena.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"
#include "proto/keys.h"
#include "proto/wire/message.h"

/*
 * What of a publication somebody gets: all of it, or what some keys name. Rows keep their order.
 * Borrows from the publication and from the arena that it was made in.
 */
struct tdd_selection {
	/* Some of the segments: their numbers in the publication, rising. Else all of them. */
	bool is_partial;
	size_t segment_count;
	const uint32_t *segment_numbers;
	/* Rows, with segments counted as above; none for a manifest, which has them all. */
	size_t tensor_count;
	const struct tdp_tensor *tensors;
	size_t empty_mapping_count;
	const struct tdp_empty_mapping *empty_mappings;
};

struct tdd_wanted_keys {
	size_t count;
	const char *const *keys;
};

/*
 * A selection by keys that is being made. A large bundle takes some milliseconds, so it is done in
 * as many turns as it takes: publication, keys and arena must stay meanwhile.
 */
struct tdd_search {
	const struct tdd_publication *publication;
	struct tdd_wanted_keys keys;
	struct tdp_arena *arena;
	size_t key_position; /* how many have been looked at */
	size_t row_position;
	struct tdp_keyset wanted;
	bool *is_found; /* of each wanted key */
	bool *is_used;	/* of each segment */
	struct tdp_tensor *tensors;
	struct tdd_selection selection; /* once it is there */
};

/* Returns 0, or as tdd_select(). */
int tdd_search_init(struct tdd_search *search, const struct tdd_publication *publication,
		    const struct tdd_wanted_keys *keys, struct tdp_arena *arena,
		    struct tdp_fault *fault) TDP_MUST_CHECK;
void tdd_search_deinit(struct tdd_search *search);

/* Returns 0 when it is there, TDD_WORK_LEFT, or as tdd_select(). */
int tdd_search_go_on(struct tdd_search *search, struct tdp_fault *fault) TDP_MUST_CHECK;

/* What a selection may take of an arena. */
enum { TDD_SELECTION_MAX_BYTES = 1 << 20 };

/*
 * All at once. No keys: everything. Returns 0, TIDL_ERR_NOT_FOUND (a key that names nothing),
 * TIDL_ERR_INVALID_ARGUMENT (a key that cannot be one, or keys for a single tensor) or
 * TIDL_ERR_NO_MEMORY.
 */
int tdd_select(const struct tdd_publication *publication, const struct tdd_wanted_keys *wanted,
	       struct tdp_arena *arena, struct tdd_selection *ret_selection,
	       struct tdp_fault *fault) TDP_MUST_CHECK;

#endif
