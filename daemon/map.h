/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_MAP_H
#define TDD_MAP_H

#include <stddef.h>
#include <stdint.h>

/*
 * uthash as the broker uses it. Include this, never <uthash.h>.
 *
 * Without memory an insertion fails instead of ending the process: after HASH_ADD_KEYPTR() and the
 * like, `element->hh.tbl` is NULL when there was none.
 *
 * Keys that clients choose are hashed with a secret seed, so that nobody can choose them to
 * collide.
 */
#define HASH_NONFATAL_OOM	     1
#define uthash_nonfatal_oom(element) ((void)0)
#define HASH_FUNCTION(key, length, hash)                                                           \
	do {                                                                                       \
		(hash) = tdd_map_hash((key), (length));                                            \
	} while (0)

uint32_t tdd_map_hash(const void *key, size_t length);

/* A number that nobody else knows, for hashes of other kinds. */
uint64_t tdd_map_secret(void);

/* Choose the seed; once, before the first map is used. Returns 0 or a negative errno. */
int tdd_map_seed(void);

#include <uthash.h>
#include <utlist.h>

#endif
