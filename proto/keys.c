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

#define KEY_EMPTY_LEVEL "it has an empty level: name every level of the mapping"

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
	const char *reason = NULL;
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
	for (const char *at = key; at < end && !reason; at++) {
		if (*at == '/' && is_level_empty)
			reason = KEY_EMPTY_LEVEL;
		if (*at == '~' && (at + 1 == end || (at[1] != '0' && at[1] != '1')))
			reason = "'~' stands only before '0' or '1': write ~0 for it";
		is_level_empty = *at == '/';
	}
	if (!reason && is_level_empty)
		reason = KEY_EMPTY_LEVEL;
	return reason ? key_refuse(fault, key, size_bytes, reason) : 0;
}

bool tdp_key_is_within(const char *key, size_t size_bytes, const char *what, size_t what_bytes)
{
	return size_bytes >= what_bytes && memcmp(key, what, what_bytes) == 0 &&
	       (size_bytes == what_bytes || key[what_bytes] == '/');
}

/* ---- all keys ---- */

__extension__ typedef unsigned __int128 key_wide;

/*
 * The hash of a text is a polynomial, its bytes being the coefficients, at a point that nobody else
 * knows, modulo a prime: two texts of up to 255 bytes have the same value at 254 points at most.
 * The value of each prefix comes on the way.
 */
static const uint64_t PRIME = ((uint64_t)1 << 61) - 1;

static uint64_t sum_add(uint64_t sum, uint64_t point, unsigned char byte)
{
	key_wide product = (key_wide)sum * point + byte + 1;
	uint64_t folded = (uint64_t)(product & PRIME) + (uint64_t)(product >> 61);

	return folded >= PRIME ? folded - PRIME : folded;
}

static uint64_t text_sum(const struct tdp_keyset *set, const char *text, size_t size_bytes)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < size_bytes; i++)
		sum = sum_add(sum, set->point, (unsigned char)text[i]);
	return sum;
}

/* Spreads it, since slots and bits of the filter are chosen by parts of it. */
static uint64_t sum_spread(uint64_t sum)
{
	return sum * 0x9e3779b97f4a7c15u;
}

static uint32_t sum_hash(uint64_t sum)
{
	return (uint32_t)(sum_spread(sum) >> 16);
}

/* Where its bit is in the filter. */
static uint64_t *filter_word(const struct tdp_keyset *set, uint64_t sum, uint64_t *ret_bit)
{
	uint64_t position = sum_spread(sum) >> set->filter_shift;

	*ret_bit = (uint64_t)1 << position % 64;
	return &set->filter[position / 64];
}

int tdp_keyset_init(struct tdp_keyset *set, size_t capacity, uint64_t secret,
		    struct tdp_fault *fault)
{
	/* Any number will do where it need not be secret. */
	uint64_t point = secret ? secret : 0x6a09e667f3bcc908u;
	unsigned int slot_bits = 3;
	size_t slot_count;

	/* At most half of the slots are in use, and an eighth of the filter. */
	while (((size_t)1 << slot_bits) < 2 * capacity)
		slot_bits++;
	slot_count = (size_t)1 << slot_bits;
	*set = (struct tdp_keyset){
		.point = point % PRIME,
		.capacity = capacity,
		.entries = malloc((capacity ? capacity : 1) * sizeof(set->entries[0])),
		.slots = calloc(slot_count, sizeof(set->slots[0])),
		.slot_mask = slot_count - 1,
		.filter = calloc((4 * slot_count + 63) / 64, sizeof(set->filter[0])),
		.filter_shift = 64 - (slot_bits + 2),
	};
	if (set->entries && set->slots && set->filter)
		return 0;
	tdp_keyset_deinit(set);
	return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
}

void tdp_keyset_deinit(struct tdp_keyset *set)
{
	free(set->entries);
	free(set->slots);
	free(set->filter);
	set->entries = NULL;
	set->slots = NULL;
	set->filter = NULL;
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
	uint64_t sum = text_sum(set, key, size_bytes);
	uint32_t hash = sum_hash(sum);
	uint32_t *slot = keyset_slot(set, key, size_bytes, hash);
	uint64_t *word;
	uint64_t bit;

	if (*slot != 0)
		return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT,
				     "the key \"%.*s\" comes twice: give every tensor its own",
				     (int)size_bytes, key);
	if (set->count == set->capacity)
		return tdp_fault_code(fault, TIDL_ERR_LIMIT);
	set->entries[set->count++] = (struct tdp_keyset_entry){
		.key = key, .size_bytes = (uint32_t)size_bytes, .hash = hash};
	*slot = (uint32_t)set->count;
	word = filter_word(set, sum, &bit);
	*word |= bit;
	return 0;
}

static int64_t keyset_find_sum(const struct tdp_keyset *set, const char *key, size_t size_bytes,
			       uint64_t sum)
{
	uint64_t bit;
	const uint64_t *word = filter_word(set, sum, &bit);

	if ((*word & bit) == 0)
		return -1;
	return (int64_t)*keyset_slot(set, key, size_bytes, sum_hash(sum)) - 1;
}

int64_t tdp_keyset_find(const struct tdp_keyset *set, const char *key, size_t size_bytes)
{
	return keyset_find_sum(set, key, size_bytes, text_sum(set, key, size_bytes));
}

void tdp_keyset_walk_init(struct tdp_keyset_walk *walk, const struct tdp_keyset *set,
			  const char *key, size_t size_bytes)
{
	*walk = (struct tdp_keyset_walk){.set = set, .key = key, .size_bytes = size_bytes};
}

bool tdp_keyset_walk_next(struct tdp_keyset_walk *walk, int64_t *ret_index)
{
	size_t at = walk->prefix_bytes;

	if (at == walk->size_bytes)
		return false;
	/* The first byte is that of a level, or the `/` in front of it. */
	do {
		walk->sum = sum_add(walk->sum, walk->set->point, (unsigned char)walk->key[at++]);
	} while (at < walk->size_bytes && walk->key[at] != '/');
	walk->prefix_bytes = at;
	*ret_index = keyset_find_sum(walk->set, walk->key, at, walk->sum);
	return true;
}

static int keyset_check_key(const struct tdp_keyset *set, const struct tdp_keyset_entry *entry,
			    struct tdp_fault *fault)
{
	struct tdp_keyset_walk walk;
	int64_t index;

	tdp_keyset_walk_init(&walk, set, entry->key, entry->size_bytes);
	while (tdp_keyset_walk_next(&walk, &index) && walk.prefix_bytes < entry->size_bytes) {
		if (index >= 0)
			return tdp_fault_set(
				fault, TIDL_ERR_INVALID_ARGUMENT,
				"the key \"%.*s\" is a tensor or an empty mapping, and also a "
				"mapping with \"%.*s\" in it: rename one of them",
				(int)walk.prefix_bytes, entry->key, (int)entry->size_bytes,
				entry->key);
	}
	return 0;
}

/* Do both lie in the same mapping? */
static bool is_sibling(const struct tdp_keyset_entry *a, const struct tdp_keyset_entry *b)
{
	const char *slash = memrchr(a->key, '/', a->size_bytes);
	size_t parent_bytes = slash ? (size_t)(slash - a->key) + 1 : 0;

	return b->size_bytes > parent_bytes && memcmp(a->key, b->key, parent_bytes) == 0 &&
	       memchr(b->key + parent_bytes, '/', b->size_bytes - parent_bytes) == NULL;
}

int tdp_keyset_check(const struct tdp_keyset *set, size_t first, size_t count,
		     struct tdp_fault *fault)
{
	for (size_t i = first; i < first + count; i++) {
		const struct tdp_keyset_entry *entry = &set->entries[i];
		int r;

		/* What it lies in has been looked up for the one before. */
		if (i > 0 && is_sibling(entry, entry - 1))
			continue;
		r = keyset_check_key(set, entry, fault);
		if (r < 0)
			return r;
	}
	return 0;
}
