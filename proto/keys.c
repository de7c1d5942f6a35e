/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules for keys of bundles. A key set belongs to whoever checks one bundle, and goes with it;
 * it borrows the texts. Knows nothing of tensors.
 */
#include "proto/keys.h"

#include <stdlib.h>
#include <string.h>

#include "proto/names.h"
#include "proto/wire/limits.h"

/* ---- one key ---- */

static int key_refuse(struct tdp_fault *fault, const char *key, size_t size_bytes,
		      const char *reason)
{
	if (!tdp_text_is_clean(key, size_bytes))
		return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT, "a key is not valid: %s",
				     reason);
	return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT, "the key \"%.*s\" is not valid: %s",
			     (int)size_bytes, key, reason);
}

int tdp_key_check(const char *key, size_t size_bytes, struct tdp_fault *fault)
{
	const char *end = key + size_bytes;
	bool is_level_empty = true;

	if (size_bytes == 0)
		return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT,
				     "a key is empty: give each tensor of a bundle one");
	if (size_bytes > TDP_KEY_MAX_BYTES)
		return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT,
				     "a key has %zu bytes, its levels joined, and may have %d: "
				     "shorten it",
				     size_bytes, TDP_KEY_MAX_BYTES);
	if (!tdp_text_is_clean(key, size_bytes))
		return key_refuse(fault, key, size_bytes,
				  "it is not UTF-8 without control characters");
	for (const char *at = key; at <= end; at++) {
		if ((at == end || *at == '/') && is_level_empty)
			return key_refuse(fault, key, size_bytes,
					  "it has an empty level: name every level of the mapping");
		is_level_empty = at < end && *at == '/';
		if (at < end && *at == '~' && (at + 1 == end || (at[1] != '0' && at[1] != '1')))
			return key_refuse(fault, key, size_bytes,
					  "'~' stands only before '0' or '1': write ~0 for it");
	}
	return 0;
}

bool tdp_key_is_within(const char *key, size_t size_bytes, const char *what, size_t what_bytes)
{
	return size_bytes >= what_bytes && memcmp(key, what, what_bytes) == 0 &&
	       (size_bytes == what_bytes || key[what_bytes] == '/');
}

/* FNV-1a. */
uint32_t tdp_key_hash(const void *key, size_t size_bytes)
{
	const unsigned char *bytes = key;
	uint32_t hash = 2166136261u;

	for (size_t i = 0; i < size_bytes; i++)
		hash = (hash ^ bytes[i]) * 16777619u;
	return hash;
}

/* ---- all keys ---- */

int tdp_keyset_init(struct tdp_keyset *set, size_t capacity, tdp_key_hash_fn hash,
		    struct tdp_fault *fault)
{
	size_t slot_count = 8;

	/* At most half of the slots are in use. */
	while (slot_count < 2 * capacity)
		slot_count *= 2;
	*set = (struct tdp_keyset){
		.hash = hash,
		.capacity = capacity,
		.entries = malloc((capacity ? capacity : 1) * sizeof(set->entries[0])),
		.slots = calloc(slot_count, sizeof(set->slots[0])),
		.slot_mask = slot_count - 1,
	};
	if (set->entries && set->slots)
		return 0;
	tdp_keyset_deinit(set);
	return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
}

void tdp_keyset_deinit(struct tdp_keyset *set)
{
	free(set->entries);
	free(set->slots);
	set->entries = NULL;
	set->slots = NULL;
	set->count = 0;
}

/* The slot that the key is in, or would be put into. */
static uint32_t *keyset_slot(const struct tdp_keyset *set, const char *key, size_t size_bytes,
			     uint32_t hash)
{
	size_t position = hash & set->slot_mask;

	for (;; position = (position + 1) & set->slot_mask) {
		uint32_t *slot = &set->slots[position];
		const struct tdp_keyset_entry *entry;

		if (*slot == 0)
			return slot;
		entry = &set->entries[*slot - 1];
		if (entry->hash == hash && entry->size_bytes == size_bytes &&
		    memcmp(entry->key, key, size_bytes) == 0)
			return slot;
	}
}

int tdp_keyset_add(struct tdp_keyset *set, const char *key, size_t size_bytes,
		   struct tdp_fault *fault)
{
	uint32_t hash = set->hash(key, size_bytes);
	uint32_t *slot = keyset_slot(set, key, size_bytes, hash);

	if (*slot != 0)
		return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT,
				     "the key \"%.*s\" comes twice: give every tensor its own",
				     (int)size_bytes, key);
	if (set->count == set->capacity)
		return tdp_fault_code(fault, TIDL_ERR_LIMIT);
	set->entries[set->count++] = (struct tdp_keyset_entry){
		.key = key, .size_bytes = (uint32_t)size_bytes, .hash = hash};
	*slot = (uint32_t)set->count;
	return 0;
}

int64_t tdp_keyset_find(const struct tdp_keyset *set, const char *key, size_t size_bytes)
{
	uint32_t hash = set->hash(key, size_bytes);

	return (int64_t)*keyset_slot(set, key, size_bytes, hash) - 1;
}

/* How much of two keys, up to a `/` in both, is the same. */
static size_t common_levels(const struct tdp_keyset_entry *a, const struct tdp_keyset_entry *b)
{
	size_t limit = a->size_bytes < b->size_bytes ? a->size_bytes : b->size_bytes;
	size_t common = 0;

	for (size_t i = 0; i < limit && a->key[i] == b->key[i]; i++) {
		if (a->key[i] == '/')
			common = i + 1;
	}
	return common;
}

int tdp_keyset_check(const struct tdp_keyset *set, struct tdp_fault *fault)
{
	for (size_t i = 0; i < set->count; i++) {
		const struct tdp_keyset_entry *entry = &set->entries[i];
		const char *at = entry->key;
		const char *end = entry->key + entry->size_bytes;

		/* The mappings that it shares with the key before have been looked up for that. */
		if (i > 0)
			at += common_levels(entry, entry - 1);
		while ((at = memchr(at, '/', (size_t)(end - at))) != NULL) {
			size_t size_bytes = (size_t)(at - entry->key);

			if (tdp_keyset_find(set, entry->key, size_bytes) >= 0)
				return tdp_fault_set(
					fault, TIDL_ERR_INVALID_ARGUMENT,
					"the key \"%.*s\" is a tensor or an empty mapping, and "
					"also a mapping with \"%.*s\" in it: rename one of them",
					(int)size_bytes, entry->key, (int)entry->size_bytes,
					entry->key);
			at++;
		}
	}
	return 0;
}
