/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names, one namespace for each uid, and the order of what is published. Belongs to the server. It
 * checks neither rights nor layouts: the handlers have, before they come here.
 */
#include "daemon/registry.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/publication.h"
#include "daemon/waiter.h"
#include "proto/wire/limits.h"

#define KEY_OFFSET offsetof(struct tdd_name, owner_uid)

struct name_key {
	uint32_t owner_uid;
	char text[TDP_NAME_MAX_BYTES];
};

void tdd_registry_init(struct tdd_registry *registry)
{
	*registry = (struct tdd_registry){0};
}

void tdd_registry_deinit(struct tdd_registry *registry)
{
	for (size_t i = tdd_index_after(&registry->index, 0); i < registry->index.slot_count;) {
		uint64_t generation = registry->index.slots[i].generation;

		if (registry->index.slots[i].publication)
			tdd_registry_unlist(registry, registry->index.slots[i].publication);
		i = tdd_index_after(&registry->index, generation);
	}
	assert(!registry->names && !registry->segments);
	tdd_index_deinit(&registry->index);
}

static struct tdd_name *registry_find_name(const struct tdd_registry *registry, uint32_t owner_uid,
					   const char *name)
{
	struct name_key key = {.owner_uid = owner_uid};
	size_t length = strlen(name);
	struct tdd_name *entry = NULL;

	if (length > sizeof(key.text))
		return NULL;
	memcpy(key.text, name, length);
	HASH_FIND(hh, registry->names, &key, sizeof(key.owner_uid) + length, entry);
	return entry;
}

struct tdd_publication *tdd_registry_find(const struct tdd_registry *registry, uint32_t owner_uid,
					  const char *name)
{
	struct tdd_name *entry = registry_find_name(registry, owner_uid, name);

	return entry ? entry->current : NULL;
}

static struct tdd_name *registry_add_name(struct tdd_registry *registry, uint32_t owner_uid,
					  const char *name)
{
	size_t length = strlen(name);
	struct tdd_name *entry = calloc(1, sizeof(*entry) + length);

	if (!entry)
		return NULL;
	entry->owner_uid = owner_uid;
	entry->key_bytes = (uint32_t)(sizeof(entry->owner_uid) + length);
	memcpy(entry->text, name, length);
	HASH_ADD_KEYPTR(hh, registry->names, &entry->owner_uid, entry->key_bytes, entry);
	if (!entry->hh.tbl) {
		free(entry);
		return NULL;
	}
	return entry;
}

int tdd_registry_claim(struct tdd_registry *registry, uint32_t owner_uid, const char *name,
		       struct tdd_name **ret_entry, struct tdp_fault *fault)
{
	struct tdd_name *entry;

	if (tdd_index_reserve(&registry->index) < 0)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	entry = registry_find_name(registry, owner_uid, name);
	if (!entry)
		entry = registry_add_name(registry, owner_uid, name);
	if (!entry)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	*ret_entry = entry;
	return 0;
}

void tdd_registry_unclaim(struct tdd_registry *registry, struct tdd_name *entry)
{
	if (entry->current || entry->waiters)
		return;
	HASH_DELETE(hh, registry->names, entry);
	free(entry);
}

static void publication_count_listed(struct tdd_publication *publication, bool is_added)
{
	for (size_t i = 0; i < publication->segment_count; i++) {
		struct tdd_segment *segment = publication->uses[i].segment;

		if (is_added)
			segment->listed_count++;
		else
			segment->listed_count--;
	}
}

/* Everything but the name itself. */
static void registry_detach(struct tdd_registry *registry, struct tdd_publication *publication)
{
	struct tdd_holder *owner = publication->owner;

	publication->entry = NULL;
	publication_count_listed(publication, false);
	tdd_index_remove(&registry->index, publication->generation);
	if (owner)
		DL_DELETE2(owner->owned, publication, owner_prev, owner_next);
	publication->owner = NULL;
	tdd_publication_settle(publication);
}

void tdd_registry_list(struct tdd_registry *registry, struct tdd_name *entry,
		       struct tdd_publication *publication)
{
	struct tdd_publication *previous = entry->current;

	publication->generation = ++registry->last_generation;
	publication->entry = entry;
	publication_count_listed(publication, true);
	entry->current = publication;
	tdd_index_append(&registry->index, publication->generation, publication);
	if (previous)
		registry_detach(registry, previous);
}

void tdd_registry_unlist(struct tdd_registry *registry, struct tdd_publication *publication)
{
	struct tdd_name *entry = publication->entry;

	entry->current = NULL;
	tdd_registry_unclaim(registry, entry);
	registry_detach(registry, publication);
}
