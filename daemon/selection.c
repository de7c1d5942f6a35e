/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys of a bundle to rows and segments. A row is wanted when its key, or a mapping that it lies
 * in, was asked for, so each row costs one walk along its key, however many keys were asked for.
 */
#include "daemon/selection.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/manifest.h"
#include "daemon/map.h"
#include "proto/keys.h"

/* While it is being made. */
struct search {
	const struct tdd_publication *publication;
	struct tdp_keyset wanted;
	bool *is_found; /* of each wanted key */
	bool *is_used;	/* of each segment */
	struct tdp_arena *arena;
	struct tdp_fault *fault;
};

static int search_add_keys(struct search *search, const struct tdd_wanted_keys *wanted)
{
	for (size_t i = 0; i < wanted->count; i++) {
		const char *key = wanted->keys[i];
		int r = tdp_key_check(key, strlen(key), search->fault);

		/* Asking twice for the same is no mistake. */
		if (r == 0 && tdp_keyset_find(&search->wanted, key, strlen(key)) < 0)
			r = tdp_keyset_add(&search->wanted, key, strlen(key), search->fault);
		if (r < 0)
			return r;
	}
	return 0;
}

static bool search_wants(struct search *search, const char *key)
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

static void search_use(struct search *search, int64_t segment_index)
{
	if (segment_index >= 0 && (uint64_t)segment_index < search->publication->segment_count)
		search->is_used[segment_index] = true;
}

static int search_check_found(const struct search *search)
{
	for (size_t i = 0; i < search->wanted.count; i++) {
		const struct tdp_keyset_entry *entry = &search->wanted.entries[i];

		if (!search->is_found[i])
			return tdp_fault_set(
				search->fault, TIDL_ERR_NOT_FOUND,
				"\"%s\" has nothing with the key \"%.*s\": look at its "
				"keys first",
				search->publication->name, (int)entry->size_bytes, entry->key);
	}
	return 0;
}

/* ---- rows in a manifest ---- */

static int search_read_rows(struct search *search, const void *bytes, size_t size_bytes)
{
	struct tdp_manifest_reader reader;
	struct tdp_manifest_row row;

	tdp_manifest_reader_init(&reader, bytes, size_bytes);
	for (;;) {
		int r = tdp_manifest_next(&reader, &row, search->fault);

		if (r < 0 || row.kind == TDP_MANIFEST_END)
			return r;
		if (row.kind != TDP_MANIFEST_SEGMENT && search_wants(search, row.key) &&
		    row.kind == TDP_MANIFEST_TENSOR)
			search_use(search, row.tensor.segment_index);
	}
}

static int search_manifest(struct search *search)
{
	const struct tdd_manifest *manifest = search->publication->manifest;
	void *bytes = tdd_manifest_read(manifest, search->fault);
	int r;

	if (!bytes)
		return search->fault->code;
	r = search_read_rows(search, bytes, manifest->size_bytes);
	free(bytes);
	return r;
}

/* ---- rows in the publication ---- */

static int search_tensors(struct search *search, struct tdd_selection *selection)
{
	const struct tdd_publication *publication = search->publication;
	struct tdp_tensor *tensors =
		tdp_arena_zalloc(search->arena, publication->tensor_count, sizeof(*tensors));

	if (!tensors)
		return tdp_fault_code(search->fault, TIDL_ERR_NO_MEMORY);
	for (size_t i = 0; i < publication->tensor_count; i++) {
		if (!search_wants(search, publication->tensors[i].key))
			continue;
		search_use(search, publication->tensors[i].segment_index);
		tensors[selection->tensor_count++] = publication->tensors[i];
	}
	selection->tensors = tensors;
	return 0;
}

/* Positions do not fall, so one pass counts the selected tensors that stand before each mapping. */
static int search_empty_mappings(struct search *search, struct tdd_selection *selection)
{
	const struct tdd_publication *publication = search->publication;
	struct tdp_empty_mapping *mappings = tdp_arena_zalloc(
		search->arena, publication->empty_mapping_count, sizeof(*mappings));
	uint32_t before = 0;
	size_t passed = 0;

	if (!mappings)
		return tdp_fault_code(search->fault, TIDL_ERR_NO_MEMORY);
	for (size_t i = 0; i < publication->empty_mapping_count; i++) {
		const struct tdp_empty_mapping *mapping = &publication->empty_mappings[i];

		for (; passed < mapping->position; passed++) {
			if (before < selection->tensor_count &&
			    publication->tensors[passed].key == selection->tensors[before].key)
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
static int selection_number_segments(struct search *search, struct tdd_selection *selection)
{
	size_t all_count = search->publication->segment_count;
	struct tdp_tensor *tensors = (struct tdp_tensor *)(uintptr_t)selection->tensors;
	uint32_t *numbers = tdp_arena_zalloc(search->arena, all_count, sizeof(*numbers));
	uint32_t *places = tdp_arena_zalloc(search->arena, all_count, sizeof(*places));

	if (!numbers || !places)
		return tdp_fault_code(search->fault, TIDL_ERR_NO_MEMORY);
	for (size_t i = 0; i < all_count; i++) {
		if (!search->is_used[i])
			continue;
		places[i] = (uint32_t)selection->segment_count;
		numbers[selection->segment_count++] = (uint32_t)i;
	}
	for (size_t i = 0; i < selection->tensor_count; i++) {
		if (tensors[i].segment_index >= 0)
			tensors[i].segment_index = places[tensors[i].segment_index];
	}
	selection->segment_numbers = numbers;
	selection->is_partial = selection->segment_count < all_count;
	return 0;
}

static int search_run(struct search *search, struct tdd_selection *selection)
{
	int r;

	if (search->publication->manifest) {
		r = search_manifest(search);
	} else {
		r = search_tensors(search, selection);
		if (r == 0)
			r = search_empty_mappings(search, selection);
	}
	if (r == 0)
		r = search_check_found(search);
	if (r == 0)
		r = selection_number_segments(search, selection);
	return r;
}

static int select_some(struct search *search, const struct tdd_wanted_keys *wanted,
		       struct tdd_selection *ret_selection)
{
	struct tdd_selection selection = {0};
	int r = search_add_keys(search, wanted);

	search->is_found = tdp_arena_zalloc(search->arena, wanted->count, sizeof(bool));
	search->is_used =
		tdp_arena_zalloc(search->arena, search->publication->segment_count, sizeof(bool));
	if (r == 0 && (!search->is_found || !search->is_used))
		r = tdp_fault_code(search->fault, TIDL_ERR_NO_MEMORY);
	if (r == 0)
		r = search_run(search, &selection);
	if (r == 0)
		*ret_selection = selection;
	return r;
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
	struct search search = {.publication = publication, .arena = arena, .fault = fault};
	int r;

	if (wanted->count == 0) {
		*ret_selection = select_all(publication);
		return 0;
	}
	if (!publication->is_bundle)
		return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT,
				     "\"%s\" is one tensor and has no keys: get it without",
				     publication->name);
	r = tdp_keyset_init(&search.wanted, wanted->count, tdd_map_secret(), fault);
	if (r < 0)
		return r;
	r = select_some(&search, wanted, ret_selection);
	tdp_keyset_deinit(&search.wanted);
	return r;
}
