/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys of a bundle to rows and segments. A row is wanted when its key, or a mapping that it lies
 * in, was asked for, so each row costs one walk along its key, however many keys were asked for.
 */
#include "daemon/selection.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/limits.h"
#include "daemon/manifest.h"
#include "daemon/map.h"
#include "daemon/work.h"

/* Rows that are looked at before anybody asks whether it takes too long. */
enum { ROWS_PER_LOOK = 32 };

static int search_add_key(struct tdd_search *search, const char *key, struct tdp_fault *fault)
{
	size_t key_bytes = strlen(key);
	int r = tdp_key_check(key, key_bytes, fault);

	tdd_work_count(TDD_ROW_STEPS);
	/* Asking twice for the same is no mistake. */
	if (r == 0 && tdp_keyset_find(&search->wanted, key, key_bytes) < 0)
		r = tdp_keyset_add(&search->wanted, key, key_bytes, fault);
	return r;
}

static bool search_wants(struct tdd_search *search, const char *key)
{
	struct tdp_keyset_walk walk;
	bool is_wanted = false;
	int64_t index;

	tdp_keyset_walk_init(&walk, &search->wanted, key, strlen(key));
	while (tdp_keyset_walk_next(&walk, &index)) {
		if (index < 0)
			continue;
		search->is_found[index] = true;
		is_wanted = true;
	}
	return is_wanted;
}

static void search_use(struct tdd_search *search, int64_t segment_index)
{
	if (segment_index >= 0 && (uint64_t)segment_index < search->publication->segment_count)
		search->is_used[segment_index] = true;
}

static int search_check_found(const struct tdd_search *search, struct tdp_fault *fault)
{
	for (size_t i = 0; i < search->wanted.count; i++) {
		const struct tdp_keyset_entry *entry = &search->wanted.entries[i];

		if (!search->is_found[i])
			return tdp_fault_set(
				fault, TIDL_ERR_NOT_FOUND,
				"\"%s\" has nothing with the key \"%.*s\": look at its "
				"keys first",
				search->publication->name, (int)entry->size_bytes, entry->key);
	}
	return 0;
}

/* ---- rows in a manifest ---- */

static int search_read_rows(struct tdd_search *search, const void *bytes, size_t size_bytes,
			    struct tdp_fault *fault)
{
	struct tdp_manifest_reader reader;
	struct tdp_manifest_row row;

	tdp_manifest_reader_init(&reader, bytes, size_bytes);
	for (;;) {
		int r = tdp_manifest_next(&reader, &row, fault);

		if (r < 0 || row.kind == TDP_MANIFEST_END)
			return r;
		if (search_wants(search, row.key) && row.kind == TDP_MANIFEST_TENSOR)
			search_use(search, row.tensor.segment_index);
	}
}

static int search_manifest(struct tdd_search *search, size_t first, size_t count,
			   struct tdp_fault *fault)
{
	size_t size_bytes;
	void *bytes =
		tdd_manifest_read(search->publication->manifest, first, count, &size_bytes, fault);
	int r;

	if (!bytes)
		return fault->code;
	r = search_read_rows(search, bytes, size_bytes, fault);
	free(bytes);
	return r;
}

/* ---- rows in the publication ---- */

static void search_tensors(struct tdd_search *search, size_t first, size_t count)
{
	const struct tdd_publication *publication = search->publication;
	struct tdd_selection *selection = &search->selection;

	for (size_t i = first; i < first + count; i++) {
		if (!search_wants(search, publication->tensors[i].key))
			continue;
		search_use(search, publication->tensors[i].segment_index);
		search->tensors[selection->tensor_count++] = publication->tensors[i];
	}
}

/* Positions do not fall, so one pass counts the selected tensors that stand before each mapping. */
static int search_empty_mappings(struct tdd_search *search, struct tdp_fault *fault)
{
	const struct tdd_publication *publication = search->publication;
	struct tdd_selection *selection = &search->selection;
	struct tdp_empty_mapping *mappings = tdp_arena_zalloc(
		search->arena, publication->empty_mapping_count, sizeof(*mappings));
	uint32_t before = 0;
	size_t passed = 0;

	if (!mappings)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	for (size_t i = 0; i < publication->empty_mapping_count; i++) {
		const struct tdp_empty_mapping *mapping = &publication->empty_mappings[i];

		for (; passed < mapping->position; passed++) {
			if (before < selection->tensor_count &&
			    publication->tensors[passed].key == search->tensors[before].key)
				before++;
		}
		if (search_wants(search, mapping->key))
			mappings[selection->empty_mapping_count++] =
				(struct tdp_empty_mapping){.key = mapping->key, .position = before};
	}
	selection->empty_mappings = mappings;
	return 0;
}

/* ---- segments ---- */

/* The numbers of those in use, and the tensors' indexes into them. */
static int search_number_segments(struct tdd_search *search, struct tdp_fault *fault)
{
	struct tdd_selection *selection = &search->selection;
	size_t all_count = search->publication->segment_count;
	uint32_t *numbers = tdp_arena_zalloc(search->arena, all_count, sizeof(*numbers));
	uint32_t *places = tdp_arena_zalloc(search->arena, all_count, sizeof(*places));

	if (!numbers || !places)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	for (size_t i = 0; i < all_count; i++) {
		if (!search->is_used[i])
			continue;
		places[i] = (uint32_t)selection->segment_count;
		numbers[selection->segment_count++] = (uint32_t)i;
	}
	for (size_t i = 0; i < selection->tensor_count; i++) {
		struct tdp_tensor *tensor = &search->tensors[i];

		if (tensor->segment_index >= 0)
			tensor->segment_index = places[tensor->segment_index];
	}
	selection->segment_numbers = numbers;
	selection->is_partial = selection->segment_count < all_count;
	return 0;
}

/* ---- all of it ---- */

static size_t search_row_count(const struct tdd_search *search)
{
	const struct tdd_manifest *manifest = search->publication->manifest;

	return manifest ? tdd_manifest_row_count(manifest) : search->publication->tensor_count;
}

/* The next key, or when all have been added, the next rows. */
static int search_look(struct tdd_search *search, struct tdp_fault *fault)
{
	size_t row = search->row_position;
	size_t count = search_row_count(search) - row;

	if (search->key_position < search->keys.count)
		return search_add_key(search, search->keys.keys[search->key_position++], fault);
	if (count > ROWS_PER_LOOK)
		count = ROWS_PER_LOOK;
	search->row_position += count;
	tdd_work_count(count * TDD_ROW_STEPS);
	if (search->publication->manifest)
		return search_manifest(search, row, count, fault);
	search_tensors(search, row, count);
	return 0;
}

static bool search_has_more(const struct tdd_search *search)
{
	return search->key_position < search->keys.count ||
	       search->row_position < search_row_count(search);
}

static int search_finish(struct tdd_search *search, struct tdp_fault *fault)
{
	int r = 0;

	if (!search->publication->manifest) {
		search->selection.tensors = search->tensors;
		r = search_empty_mappings(search, fault);
	}
	if (r == 0)
		r = search_check_found(search, fault);
	return r < 0 ? r : search_number_segments(search, fault);
}

int tdd_search_init(struct tdd_search *search, const struct tdd_publication *publication,
		    const struct tdd_wanted_keys *keys, struct tdp_arena *arena,
		    struct tdp_fault *fault)
{
	size_t row_count = publication->manifest ? 0 : publication->tensor_count;
	int r;

	*search = (struct tdd_search){.publication = publication, .keys = *keys, .arena = arena};
	if (!publication->is_bundle)
		return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT,
				     "\"%s\" is one tensor and has no keys: get it without",
				     publication->name);
	r = tdp_keyset_init(&search->wanted, keys->count, tdd_map_secret(), fault);
	if (r < 0)
		return r;
	search->is_found = tdp_arena_zalloc(arena, keys->count, sizeof(bool));
	search->is_used = tdp_arena_zalloc(arena, publication->segment_count, sizeof(bool));
	search->tensors = tdp_arena_zalloc(arena, row_count, sizeof(*search->tensors));
	if (search->is_found && search->is_used && search->tensors)
		return 0;
	tdd_search_deinit(search);
	return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
}

void tdd_search_deinit(struct tdd_search *search)
{
	tdp_keyset_deinit(&search->wanted);
}

int tdd_search_go_on(struct tdd_search *search, struct tdp_fault *fault)
{
	while (search_has_more(search)) {
		int r = search_look(search, fault);

		if (r < 0)
			return r;
		if (tdd_work_is_over())
			return TDD_WORK_LEFT;
	}
	return search_finish(search, fault);
}

static struct tdd_selection select_all(const struct tdd_publication *publication)
{
	bool has_rows = publication->manifest == NULL;

	return (struct tdd_selection){
		.segment_count = publication->segment_count,
		.tensor_count = has_rows ? publication->tensor_count : 0,
		.tensors = publication->tensors,
		.empty_mapping_count = publication->empty_mapping_count,
		.empty_mappings = publication->empty_mappings,
	};
}

int tdd_select(const struct tdd_publication *publication, const struct tdd_wanted_keys *wanted,
	       struct tdp_arena *arena, struct tdd_selection *ret_selection,
	       struct tdp_fault *fault)
{
	struct tdd_search search;
	int r;

	if (wanted->count == 0) {
		*ret_selection = select_all(publication);
		return 0;
	}
	r = tdd_search_init(&search, publication, wanted, arena, fault);
	if (r < 0)
		return r;
	do
		r = tdd_search_go_on(&search, fault);
	while (r == TDD_WORK_LEFT);
	if (r == 0)
		*ret_selection = search.selection;
	tdd_search_deinit(&search);
	return r;
}
