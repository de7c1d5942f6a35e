/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is in segments of this client already, found by its address. */
#include "client/lib/aliases.h"

#include "client/lib/client.h"
#include "client/lib/fork.h"
#include "client/lib/placement.h"

/* Why memory in @segment cannot be published as it is; NONE when it can. */
static enum tidl_copy_reason segment_copy_reason(struct tidl_client *client,
						 const struct tdc_segment *segment)
{
	enum tidl_copy_reason reason = TIDL_COPY_REASON_NONE;

	tdc_client_lock(client);
	if (segment->key.era != client->era)
		reason = TIDL_COPY_REASON_OTHER_BROKER;
	else if (segment->owner_uid != client->broker.uid)
		reason = TIDL_COPY_REASON_NOT_OWNER;
	tdc_client_unlock(client);
	if (reason == TIDL_COPY_REASON_NONE && segment->attach == TIDL_ATTACH_COPY_ON_WRITE)
		reason = TIDL_COPY_REASON_PRIVATE_MAP;
	return reason;
}

static bool segment_holds(const struct tdc_segment *segment, const struct tdc_import *import)
{
	uintptr_t base = (uintptr_t)segment->base;

	return import->begin >= base && import->end <= base + segment->map_bytes;
}

/* The segment's number. Only parts of moved memory are several maps of one segment. */
static size_t placement_index(struct tdc_placement *placement, const struct tdc_segment *segment)
{
	size_t i = segment->moved != NULL ? 0 : placement->id_count;

	while (i < placement->id_count && placement->ids[i] != segment->key.id)
		i++;
	if (i == placement->id_count)
		placement->ids[placement->id_count++] = segment->key.id;
	return i;
}

int tdc_alias_add(struct tdc_aliases *aliases, struct tdc_segment *segment, struct tdp_fault *fault)
{
	struct tdc_placement *placement = aliases->placement;
	struct tdc_alias *known;

	HASH_FIND_PTR(aliases->known, &segment, known);
	if (known != NULL) {
		(void)tdc_segment_unref(aliases->client, segment);
		aliases->last = known;
		return 0;
	}
	known = tdp_arena_zalloc(&placement->arena, 1, sizeof(*known));
	if (known != NULL) {
		known->segment = segment;
		known->index = placement_index(placement, segment);
		HASH_ADD_PTR(aliases->known, segment, known);
	}
	if (known == NULL || known->hh.tbl == NULL) {
		(void)tdc_segment_unref(aliases->client, segment);
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	}
	placement->aliased[placement->aliased_count++] = segment;
	aliases->last = known;
	return 0;
}

/* Has the owner of moved memory freed it meanwhile, asking nobody? Then who knows what lies there.
 */
static int aliases_check_there(struct tdc_aliases *aliases, struct tdc_segment **segment,
			       struct tdp_fault *fault)
{
	int r;

	if (*segment == NULL || (*segment)->moved == NULL)
		return 0;
	r = aliases->maps.count == 0 ? tdc_maps_load(&aliases->maps, fault) : 0;
	if (r == 0 && tdc_moved_is_there(*segment, &aliases->maps))
		return 0;
	if (r == 0)
		tdc_moved_disown(aliases->client, *segment);
	*segment = tdc_segment_unref(aliases->client, *segment);
	return r;
}

/* The segment that memory can be published in as it is, with a reference; NULL, and why not. */
static int aliases_find_segment(struct tdc_aliases *aliases, const struct tdc_import *import,
				enum tidl_copy_reason *ret_reason, struct tdc_segment **ret_segment,
				struct tdp_fault *fault)
{
	struct tidl_client *client = aliases->client;
	struct tdc_segment *segment = tdc_segment_find_range(client, import->begin, import->end);
	int r = aliases_check_there(aliases, &segment, fault);

	*ret_segment = NULL;
	if (r < 0)
		return r;
	if (segment != NULL)
		*ret_reason = segment_copy_reason(client, segment);
	else if (tdc_fork_find_elsewhere(client, import->begin, import->end))
		*ret_reason = TIDL_COPY_REASON_OTHER_BROKER;
	else
		*ret_reason = TIDL_COPY_REASON_FOREIGN;
	if (*ret_reason != TIDL_COPY_REASON_NONE && segment != NULL)
		segment = tdc_segment_unref(client, segment);
	*ret_segment = segment;
	return 0;
}

int tdc_alias_find(struct tdc_aliases *aliases, const struct tdc_import *import,
		   enum tidl_copy_reason *ret_reason, struct tdp_fault *fault)
{
	struct tdc_segment *segment;
	int r;

	*ret_reason = TIDL_COPY_REASON_NONE;
	if (aliases->last != NULL && segment_holds(aliases->last->segment, import))
		return 0;
	r = aliases_find_segment(aliases, import, ret_reason, &segment, fault);
	if (r < 0 || segment == NULL)
		return r;
	return tdc_alias_add(aliases, segment, fault);
}

int tdc_alias_ask(struct tidl_client *client, uintptr_t begin, uintptr_t end,
		  enum tidl_copy_reason *ret_reason, struct tdp_fault *fault)
{
	struct tdc_aliases aliases = {.client = client};
	const struct tdc_import import = {.begin = begin, .end = end};
	struct tdc_segment *segment;
	int r = aliases_find_segment(&aliases, &import, ret_reason, &segment, fault);

	if (r == 0 && segment != NULL)
		(void)tdc_segment_unref(client, segment);
	tdc_aliases_deinit(&aliases);
	return r;
}

void tdc_aliases_deinit(struct tdc_aliases *aliases)
{
	HASH_CLEAR(hh, aliases->known);
	tdc_maps_deinit(&aliases->maps);
}
