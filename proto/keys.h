/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDP_KEYS_H
#define TDP_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/attr.h"
#include "proto/base/fault.h"

/*
 * Keys of bundles: the path of a tensor, or of an empty mapping, in a nested mapping. Levels are
 * joined by `/`; inside a level `~1` stands for `/` and `~0` for `~`, as in JSON pointers. No level
 * is empty, the whole has 1 to 255 bytes of printable UTF-8.
 */

/* 0, or TIDL_ERR_INVALID_ARGUMENT with the reason. */
int tdp_key_check(const char *key, size_t size_bytes, struct tdp_fault *fault) TDP_MUST_CHECK;

/* Is @key itself, or in the mapping that is called, @what? */
bool tdp_key_is_within(const char *key, size_t size_bytes, const char *what, size_t what_bytes);

/*
 * All keys of one bundle, to find those that clash. Borrows the texts, which need no termination.
 * One pass over a key finds all mappings that it lies in, so that deep keys cost no more than long
 * ones.
 */
struct tdp_keyset_entry {
	const char *key;
	uint32_t size_bytes;
	uint32_t hash;
};

struct tdp_keyset {
	uint64_t point; /* of the hash */
	size_t count;
	size_t capacity;
	struct tdp_keyset_entry *entries; /* in order of addition */
	uint32_t *slots;		  /* index into entries, and 1; 0: free */
	size_t slot_mask;
	uint64_t *filter; /* a bit for each hash that is there: most of what is not, ends here */
	unsigned int filter_shift;
};

/*
 * Room for @capacity keys. @secret is a random number of this process where keys come from
 * strangers, so that they cannot be chosen to collide; 0 elsewhere. TIDL_ERR_NO_MEMORY.
 */
int tdp_keyset_init(struct tdp_keyset *set, size_t capacity, uint64_t secret,
		    struct tdp_fault *fault) TDP_MUST_CHECK;
void tdp_keyset_deinit(struct tdp_keyset *set);

/* Add a checked key. TIDL_ERR_INVALID_ARGUMENT when it is there already. */
int tdp_keyset_add(struct tdp_keyset *set, const char *key, size_t size_bytes,
		   struct tdp_fault *fault) TDP_MUST_CHECK;

/* Once all are added, look at @count of them from @first on: TIDL_ERR_INVALID_ARGUMENT when one of
 * the others is also a mapping that one of these lies in. */
int tdp_keyset_check(const struct tdp_keyset *set, size_t first, size_t count,
		     struct tdp_fault *fault) TDP_MUST_CHECK;

/* The index of a key, or -1. */
int64_t tdp_keyset_find(const struct tdp_keyset *set, const char *key, size_t size_bytes);

/* A walk along a key: the mappings that it lies in, the outermost first, and then itself. */
struct tdp_keyset_walk {
	const struct tdp_keyset *set;
	const char *key;
	size_t size_bytes;
	size_t prefix_bytes; /* of the mapping just found, or of the key */
	uint64_t sum;
};

void tdp_keyset_walk_init(struct tdp_keyset_walk *walk, const struct tdp_keyset *set,
			  const char *key, size_t size_bytes);

/* False at the end; else the index in the set, or -1. */
bool tdp_keyset_walk_next(struct tdp_keyset_walk *walk, int64_t *ret_index);

#define tdp_auto_keyset TDP_CLEANUP(tdp_keyset_deinit) struct tdp_keyset

#endif
