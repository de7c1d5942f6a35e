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
 * @hash is seeded where keys come from strangers, so that they cannot be chosen to collide.
 */
typedef uint32_t (*tdp_key_hash_fn)(const void *key, size_t size_bytes);

struct tdp_keyset_entry {
	const char *key;
	uint32_t size_bytes;
	uint32_t hash;
};

struct tdp_keyset {
	tdp_key_hash_fn hash;
	size_t count;
	size_t capacity;
	struct tdp_keyset_entry *entries; /* in order of addition */
	uint32_t *slots;		  /* index into entries, and 1; 0: free */
	size_t slot_mask;
};

/* Room for @capacity keys. TIDL_ERR_NO_MEMORY. */
int tdp_keyset_init(struct tdp_keyset *set, size_t capacity, tdp_key_hash_fn hash,
		    struct tdp_fault *fault) TDP_MUST_CHECK;
void tdp_keyset_deinit(struct tdp_keyset *set);

/* Add a checked key. TIDL_ERR_INVALID_ARGUMENT when it is there already. */
int tdp_keyset_add(struct tdp_keyset *set, const char *key, size_t size_bytes,
		   struct tdp_fault *fault) TDP_MUST_CHECK;

/* Once all are added: TIDL_ERR_INVALID_ARGUMENT when one of them is also a mapping that another
 * lies in. */
int tdp_keyset_check(const struct tdp_keyset *set, struct tdp_fault *fault) TDP_MUST_CHECK;

/* The index of a key, or -1. */
int64_t tdp_keyset_find(const struct tdp_keyset *set, const char *key, size_t size_bytes);

/* A hash for those who need not fear chosen keys. */
uint32_t tdp_key_hash(const void *key, size_t size_bytes);

#define tdp_auto_keyset TDP_CLEANUP(tdp_keyset_deinit) struct tdp_keyset

#endif
