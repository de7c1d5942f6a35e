/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bundles that are being put together: keys and the frameworks' tensors, which the draft holds
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

struct tidl_draft {
	size_t member_count;
	size_t member_capacity;
	struct tdc_member *members; /* keys are owned, and one reference to each source */
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
	void *members = draft->members;

	if (!records_reserve(&members, count, draft->member_capacity, sizeof(*draft->members)))
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	draft->members = members;
	if (count == draft->member_capacity)
		draft->member_capacity = count > 0 ? 2 * count : DRAFT_FIRST_CAPACITY;
	return 0;
}

/* On failure the tensor stays with the caller. */
static int draft_import(const char *key, DLManagedTensorVersioned *versioned,
			DLManagedTensor *legacy, struct tdc_member *ret_member,
			struct tdp_fault *fault)
{
	char *copy;
	int r = versioned != NULL ? tdc_import(versioned, &ret_member->import, fault)
				  : tdc_import_legacy(legacy, &ret_member->import, fault);

	if (r < 0)
		return tdc_member_fault(fault, key);
	copy = strdup(key);
	ret_member->key = copy;
	ret_member->source = copy != NULL ? tdc_source_new(versioned, legacy) : NULL;
	if (ret_member->source != NULL)
		return 0;
	free(copy);
	return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
}

int tdc_draft_add(struct tidl_draft *draft, const char *key,
		  struct DLManagedTensorVersioned *versioned, struct DLManagedTensor *legacy,
		  struct tdp_fault *fault)
{
	struct tdc_member member;
	int r = tdp_key_check(key, strlen(key), fault);

	if (r == 0)
		r = draft_check_room(draft, fault);
	if (r == 0)
		r = draft_reserve(draft, fault);
	if (r == 0)
		r = draft_import(key, versioned, legacy, &member, fault);
	if (r < 0)
		return r;
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
	int r = tdp_keyset_init(&keys, draft->member_count + draft->mapping_count, 0, fault);

	for (size_t i = 0; i < draft->member_count && r == 0; i++)
		r = tdp_keyset_add(&keys, draft->members[i].key, strlen(draft->members[i].key),
				   fault);
	for (size_t i = 0; i < draft->mapping_count && r == 0; i++)
		r = tdp_keyset_add(&keys, draft->mappings[i].key, strlen(draft->mappings[i].key),
				   fault);
	return r == 0 ? tdp_keyset_check(&keys, 0, keys.count, fault) : r;
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

void tidl_draft_free(struct tidl_draft *draft)
{
	if (draft == NULL)
		return;
	for (size_t i = 0; i < draft->member_count; i++) {
		(void)tdc_source_unref(draft->members[i].source);
		free((void *)(uintptr_t)draft->members[i].key);
	}
	for (size_t i = 0; i < draft->mapping_count; i++)
		free((void *)(uintptr_t)draft->mappings[i].key);
	free(draft->members);
	free(draft->mappings);
	free(draft);
}
