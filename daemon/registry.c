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

#include "daemon/clock.h"
#include "daemon/closer.h"
#include "daemon/pin.h"
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

/* Nobody is left who could hold it. */
static void registry_drop(struct tdd_registry *registry, struct tdd_publication *publication)
{
	struct tdd_pin *pin, *next;
	bool is_pinned = publication->pins != NULL;

	if (publication->entry)
		tdd_registry_unlist(registry, publication);
	if (!is_pinned)
		return;
	DL_FOREACH_SAFE (publication->pins, pin, next)
		tdd_pin_free(pin);
}

void tdd_registry_deinit(struct tdd_registry *registry)
{
	const struct tdd_index *alive = &registry->alive;

	for (size_t i = tdd_index_after(alive, 0); i < alive->slot_count;) {
		uint64_t generation = alive->slots[i].generation;

		if (alive->slots[i].publication)
			registry_drop(registry, alive->slots[i].publication);
		i = tdd_index_after(alive, generation);
	}
	assert(!registry->names && !registry->segments);
	tdd_closer_finish();
	tdd_index_deinit(&registry->index);
	tdd_index_deinit(&registry->alive);
	tdd_timeline_deinit(&registry->timeline);
	tdd_events_deinit(&registry->events);
}

struct tdd_name *tdd_registry_find_name(const struct tdd_registry *registry, uint32_t owner_uid,
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
	struct tdd_name *entry = tdd_registry_find_name(registry, owner_uid, name);

	return entry ? entry->current : NULL;
}

struct tdd_publication *tdd_registry_find_generation(const struct tdd_registry *registry,
						     uint32_t owner_uid, const char *name,
						     uint64_t generation)
{
	struct tdd_publication *publication = tdd_index_find(&registry->alive, generation);

	if (!publication || publication->rights.owner_uid != owner_uid ||
	    strcmp(publication->name, name) != 0)
		return NULL;
	return publication;
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

	if (tdd_index_reserve(&registry->index) < 0 || tdd_index_reserve(&registry->alive) < 0)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	entry = tdd_registry_find_name(registry, owner_uid, name);
	if (!entry)
		entry = registry_add_name(registry, owner_uid, name);
	if (!entry)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	*ret_entry = entry;
	return 0;
}

void tdd_registry_unclaim(struct tdd_registry *registry, struct tdd_name *entry)
{
	if (entry->current || entry->waiters || entry->subscriptions)
		return;
	assert(!entry->kept);
	tdd_waiters_stop_waking(registry, entry);
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

static void publication_disown(struct tdd_publication *publication)
{
	struct tdd_holder *owner = publication->owner;

	if (owner)
		DL_DELETE2(owner->owned, publication, owner_prev, owner_next);
	publication->owner = NULL;
}

/* Everything but the name itself. */
static void registry_detach(struct tdd_publication *publication)
{
	publication->entry = NULL;
	tdd_deadline_clear(&publication->deadline);
	publication_count_listed(publication, false);
	publication_disown(publication);
	tdd_publication_settle(publication);
}

static void entry_drop_kept(struct tdd_name *entry, struct tdd_publication *publication)
{
	DL_DELETE2(entry->kept, publication, kept_prev, kept_next);
	entry->kept_count--;
	registry_detach(publication);
}

/* The newest @count stay. */
static void entry_trim_kept(struct tdd_name *entry, uint32_t count)
{
	/* The list is circular backwards: behind the head is the oldest. */
	while (entry->kept && entry->kept_count > count)
		entry_drop_kept(entry, entry->kept->kept_prev);
}

void tdd_registry_list(struct tdd_registry *registry, struct tdd_name *entry,
		       struct tdd_publication *publication, uint32_t keep)
{
	struct tdd_publication *previous = entry->current;

	publication->generation = ++registry->last_generation;
	publication->registry = registry;
	publication->entry = entry;
	publication_count_listed(publication, true);
	entry->current = publication;
	tdd_index_append(&registry->index, publication->generation, publication);
	tdd_index_append(&registry->alive, publication->generation, publication);
	if (publication->retention == TIDL_RETENTION_SECONDS)
		tdd_deadline_set(&publication->deadline,
				 tdd_deadline_after(tdd_clock_ms(), publication->ttl_ms));
	tdd_events_report_listed(&registry->events, publication, previous);
	if (previous) {
		tdd_index_remove(&registry->index, previous->generation);
		DL_PREPEND2(entry->kept, previous, kept_prev, kept_next);
		entry->kept_count++;
	}
	entry_trim_kept(entry, keep > 0 ? keep - 1 : 0);
}

void tdd_registry_unlist(struct tdd_registry *registry, struct tdd_publication *publication)
{
	struct tdd_name *entry = publication->entry;

	if (entry->current != publication) {
		entry_drop_kept(entry, publication);
		return;
	}
	tdd_waiters_stop_waking(registry, entry);
	tdd_events_report_unlisted(&registry->events, publication);
	tdd_index_remove(&registry->index, publication->generation);
	entry->current = NULL;
	entry_trim_kept(entry, 0);
	tdd_registry_unclaim(registry, entry);
	registry_detach(publication);
}

void tdd_registry_orphan(struct tdd_registry *registry, struct tdd_publication *publication)
{
	publication_disown(publication);
	tdd_deadline_set(&publication->deadline,
			 tdd_deadline_after(tdd_clock_ms(), registry->owner_grace_ms));
	if (tdd_publication_is_current(publication))
		tdd_events_report_orphaned(&registry->events, publication);
}
