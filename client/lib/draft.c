/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bundles that are being put together: keys and the frameworks' tensors, which belong to the draft
 * until it is freed. Checks each of them as it comes; copies and publishes nothing.
 */
#include "client/lib/draft.h"

#include <stdlib.h>
#include <string.h>

#include <dlpack/dlpack.h>

#include "client/lib/import.h"
#include "proto/keys.h"
#include "proto/wire/limits.h"

enum { DRAFT_FIRST_CAPACITY = 16 };

/* The structure behind a member. One of the two. */
struct draft_source {
	DLManagedTensorVersioned *versioned;
	DLManagedTensor *legacy;
};

struct tidl_draft {
	size_t member_count;
	size_t member_capacity;
	struct tdc_member *members; /* keys are owned */
	struct draft_source *sources;
	size_t mapping_count;
	size_t mapping_capacity;
	struct tdp_empty_mapping *mappings; /* keys are owned */
};

struct tidl_draft *tdc_draft_new(void)
{
	return calloc(1, sizeof(struct tidl_draft));
}

static int draft_check_room(const struct tidl_draft *draft, struct tdp_fault *fault)
{
	if (draft->member_count + draft->mapping_count < TDP_TENSORS_PER_PUBLICATION)
		return 0;
	return tdp_fault_set(fault, TIDL_ERR_LIMIT,
			     "a bundle has at most %d tensors and empty mappings: publish several",
			     TDP_TENSORS_PER_PUBLICATION);
}

/* Room for one more record; doubles what there is. */
static bool records_reserve(void **records, size_t count, size_t capacity, size_t size_bytes)
{
	size_t wanted = capacity > 0 ? 2 * capacity : DRAFT_FIRST_CAPACITY;
	void *grown;

	if (count < capacity)
		return true;
	grown = reallocarray(*records, wanted, size_bytes);
	if (grown == NULL)
		return false;
	*records = grown;
	return true;
}

static int draft_reserve(struct tidl_draft *draft, struct tdp_fault *fault)
{
	size_t count = draft->member_count;
	size_t capacity = draft->member_capacity;
	void *members = draft->members;
	void *sources = draft->sources;
	bool is_done = records_reserve(&members, count, capacity, sizeof(*draft->members));

	draft->members = members;
	is_done = is_done && records_reserve(&sources, count, capacity, sizeof(*draft->sources));
	draft->sources = sources;
	if (!is_done)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	if (count == capacity)
		draft->member_capacity = capacity > 0 ? 2 * capacity : DRAFT_FIRST_CAPACITY;
	return 0;
}

static int draft_import(const char *key, const struct draft_source *source,
			struct tdc_member *ret_member, struct tdp_fault *fault)
{
	int r = source->versioned != NULL
			? tdc_import(source->versioned, &ret_member->import, fault)
			: tdc_import_legacy(source->legacy, &ret_member->import, fault);

	if (r < 0)
		return tdc_member_fault(fault, key);
	ret_member->key = strdup(key);
	return ret_member->key == NULL ? tdp_fault_code(fault, TIDL_ERR_NO_MEMORY) : 0;
}

int tdc_draft_add(struct tidl_draft *draft, const char *key,
		  struct DLManagedTensorVersioned *versioned, struct DLManagedTensor *legacy,
		  struct tdp_fault *fault)
{
	struct draft_source source = {.versioned = versioned, .legacy = legacy};
	struct tdc_member member;
	int r = tdp_key_check(key, strlen(key), fault);

	if (r == 0)
		r = draft_check_room(draft, fault);
	if (r == 0)
		r = draft_reserve(draft, fault);
	if (r == 0)
		r = draft_import(key, &source, &member, fault);
	if (r < 0)
		return r;
	draft->sources[draft->member_count] = source;
	draft->members[draft->member_count++] = member;
	return 0;
}

int tdc_draft_add_mapping(struct tidl_draft *draft, const char *key, struct tdp_fault *fault)
{
	void *mappings = draft->mappings;
	char *copy;
	int r = tdp_key_check(key, strlen(key), fault);

	if (r == 0)
		r = draft_check_room(draft, fault);
	if (r < 0)
		return r;
	copy = strdup(key);
	if (copy == NULL || !records_reserve(&mappings, draft->mapping_count,
					     draft->mapping_capacity, sizeof(*draft->mappings))) {
		free(copy);
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	}
	draft->mappings = mappings;
	if (draft->mapping_count == draft->mapping_capacity)
		draft->mapping_capacity = draft->mapping_capacity > 0 ? 2 * draft->mapping_capacity
								      : DRAFT_FIRST_CAPACITY;
	draft->mappings[draft->mapping_count++] = (struct tdp_empty_mapping){
		.key = copy,
		.position = (uint32_t)draft->member_count,
	};
	return 0;
}

static int draft_check_keys(const struct tidl_draft *draft, struct tdp_fault *fault)
{
	tdp_auto_keyset keys;
	int r = tdp_keyset_init(&keys, draft->member_count + draft->mapping_count, tdp_key_hash,
				fault);

	for (size_t i = 0; i < draft->member_count && r == 0; i++)
		r = tdp_keyset_add(&keys, draft->members[i].key, strlen(draft->members[i].key),
				   fault);
	for (size_t i = 0; i < draft->mapping_count && r == 0; i++)
		r = tdp_keyset_add(&keys, draft->mappings[i].key, strlen(draft->mappings[i].key),
				   fault);
	return r == 0 ? tdp_keyset_check(&keys, fault) : r;
}

int tdc_draft_finish(const struct tidl_draft *draft, struct tdc_content *ret_content,
		     struct tdp_fault *fault)
{
	int r = draft_check_keys(draft, fault);

	if (r < 0)
		return r;
	*ret_content = (struct tdc_content){
		.is_bundle = true,
		.member_count = draft->member_count,
		.members = draft->members,
		.mapping_count = draft->mapping_count,
		.mappings = draft->mappings,
	};
	return 0;
}

static void source_delete(const struct draft_source *source)
{
	if (source->versioned != NULL && source->versioned->deleter != NULL)
		source->versioned->deleter(source->versioned);
	if (source->legacy != NULL && source->legacy->deleter != NULL)
		source->legacy->deleter(source->legacy);
}

void tidl_draft_free(struct tidl_draft *draft)
{
	if (draft == NULL)
		return;
	for (size_t i = 0; i < draft->member_count; i++) {
		source_delete(&draft->sources[i]);
		free((void *)(uintptr_t)draft->members[i].key);
	}
	for (size_t i = 0; i < draft->mapping_count; i++)
		free((void *)(uintptr_t)draft->mappings[i].key);
	free(draft->members);
	free(draft->sources);
	free(draft->mappings);
	free(draft);
}
