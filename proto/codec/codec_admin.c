/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of administration: list, inspect, shutdown, and their answers. */
#include "proto/codec/codec.h"

/* ---- list ---- */

int tdp_codec_unpack_list(struct tdp_codec *codec, const Tidl__Wire__Envelope *envelope,
			  struct tdp_message *ret_message)
{
	const Tidl__Wire__List *wire = envelope->list;
	struct tdp_list *list = &ret_message->list;

	(void)codec;
	list->any_owner = wire->any_owner;
	list->has_owner = wire->has_owner_uid;
	list->owner_uid = wire->owner_uid;
	list->pattern = wire->pattern;
	list->cursor = wire->cursor;
	return 0;
}

int tdp_codec_pack_list(struct tdp_codec *codec, const struct tdp_message *message,
			Tidl__Wire__Envelope *ret_envelope)
{
	const struct tdp_list *list = &message->list;
	Tidl__Wire__List *wire = tdp_codec_new(codec, &tidl__wire__list__descriptor);

	if (wire == NULL)
		return tdp_codec_no_memory(codec);
	wire->has_any_owner = list->any_owner;
	wire->any_owner = list->any_owner;
	wire->has_owner_uid = list->has_owner;
	wire->owner_uid = list->owner_uid;
	wire->pattern = tdp_codec_unconst(list->pattern);
	wire->has_cursor = list->cursor != 0;
	wire->cursor = list->cursor;
	ret_envelope->list = wire;
	return 0;
}

static int list_entry_check(struct tdp_codec *codec, const Tidl__Wire__ListEntry *wire)
{
	int result = tdp_codec_check_text(codec, "entry.name", wire->name, TDP_NAME_MAX_BYTES);

	if (result == 0)
		result = tdp_codec_check_access(codec, wire->access);
	if (result == 0)
		result = tdp_codec_check_retention(codec, wire->retention);
	if (result == 0)
		result = tdp_codec_check_range(codec, "entry.shape", (int64_t)wire->n_shape, 0,
					       TDP_NDIM_MAX);
	return result;
}

static int list_entry_unpack(struct tdp_codec *codec, const Tidl__Wire__ListEntry *wire,
			     struct tdp_list_entry *ret_entry)
{
	int result = list_entry_check(codec, wire);

	if (result == 0)
		result = tdp_codec_unpack_dtype(codec, wire->dtype, &ret_entry->dtype);
	if (result < 0)
		return result;
	ret_entry->owner_uid = wire->owner_uid;
	ret_entry->name = wire->name;
	ret_entry->generation = wire->generation;
	ret_entry->access = (enum tidl_access)wire->access;
	ret_entry->retention = (enum tidl_retention)wire->retention;
	ret_entry->mode = wire->mode;
	ret_entry->is_bundle = wire->is_bundle;
	ret_entry->tensor_count = wire->tensor_count;
	ret_entry->ndim = (uint32_t)wire->n_shape;
	ret_entry->shape = wire->shape;
	ret_entry->tensor_bytes = wire->tensor_bytes;
	ret_entry->segment_bytes = wire->segment_bytes;
	ret_entry->holder_count = wire->holder_count;
	ret_entry->age_ms = wire->age_ms;
	ret_entry->publisher_pid = wire->publisher_pid;
	return 0;
}

int tdp_codec_unpack_listing(struct tdp_codec *codec, const Tidl__Wire__Envelope *envelope,
			     struct tdp_message *ret_message)
{
	const Tidl__Wire__Listing *wire = envelope->listing;
	struct tdp_list_entry *entries =
		tdp_arena_zalloc(codec->arena, wire->n_entries, sizeof(struct tdp_list_entry));

	if (entries == NULL)
		return tdp_codec_no_memory(codec);
	for (size_t i = 0; i < wire->n_entries; i++) {
		int result = list_entry_unpack(codec, wire->entries[i], &entries[i]);

		if (result < 0)
			return result;
	}
	ret_message->listing.entry_count = wire->n_entries;
	ret_message->listing.entries = entries;
	ret_message->listing.next_cursor = wire->next_cursor;
	return 0;
}

static int list_entry_pack(struct tdp_codec *codec, const struct tdp_list_entry *entry,
			   Tidl__Wire__ListEntry **ret_wire)
{
	Tidl__Wire__ListEntry *wire = tdp_codec_new(codec, &tidl__wire__list_entry__descriptor);

	if (wire == NULL)
		return tdp_codec_no_memory(codec);
	wire->owner_uid = entry->owner_uid;
	wire->name = tdp_codec_unconst(entry->name);
	wire->generation = entry->generation;
	wire->access = (Tidl__Wire__Access)entry->access;
	wire->retention = (Tidl__Wire__Retention)entry->retention;
	wire->mode = entry->mode;
	wire->has_is_bundle = entry->is_bundle;
	wire->is_bundle = entry->is_bundle;
	wire->tensor_count = entry->tensor_count;
	wire->n_shape = entry->ndim;
	wire->shape = tdp_codec_unconst(entry->shape);
	wire->tensor_bytes = entry->tensor_bytes;
	wire->segment_bytes = entry->segment_bytes;
	wire->holder_count = entry->holder_count;
	wire->age_ms = entry->age_ms;
	wire->publisher_pid = entry->publisher_pid;
	*ret_wire = wire;
	return tdp_codec_pack_dtype(codec, entry->dtype, &wire->dtype);
}

int tdp_codec_pack_listing(struct tdp_codec *codec, const struct tdp_message *message,
			   Tidl__Wire__Envelope *ret_envelope)
{
	const struct tdp_listing *listing = &message->listing;
	Tidl__Wire__Listing *wire = tdp_codec_new(codec, &tidl__wire__listing__descriptor);
	Tidl__Wire__ListEntry **entries = tdp_arena_zalloc(codec->arena, listing->entry_count,
							   sizeof(Tidl__Wire__ListEntry *));

	if (wire == NULL || entries == NULL)
		return tdp_codec_no_memory(codec);
	for (size_t i = 0; i < listing->entry_count; i++) {
		int result = list_entry_pack(codec, &listing->entries[i], &entries[i]);

		if (result < 0)
			return result;
	}
	wire->n_entries = listing->entry_count;
	wire->entries = entries;
	wire->has_next_cursor = listing->next_cursor != 0;
	wire->next_cursor = listing->next_cursor;
	ret_envelope->listing = wire;
	return 0;
}

/* ---- inspect ---- */

int tdp_codec_unpack_inspect(struct tdp_codec *codec, const Tidl__Wire__Envelope *envelope,
			     struct tdp_message *ret_message)
{
	const Tidl__Wire__Inspect *wire = envelope->inspect;
	struct tdp_inspect *inspect = &ret_message->inspect;

	(void)codec;
	inspect->name = wire->name;
	inspect->has_owner = wire->has_owner_uid;
	inspect->owner_uid = wire->owner_uid;
	inspect->generation = wire->generation;
	inspect->tensor_cursor = wire->tensor_cursor;
	inspect->holder_cursor = wire->holder_cursor;
	inspect->segment_cursor = wire->segment_cursor;
	return 0;
}

int tdp_codec_pack_inspect(struct tdp_codec *codec, const struct tdp_message *message,
			   Tidl__Wire__Envelope *ret_envelope)
{
	const struct tdp_inspect *inspect = &message->inspect;
	Tidl__Wire__Inspect *wire = tdp_codec_new(codec, &tidl__wire__inspect__descriptor);

	if (wire == NULL)
		return tdp_codec_no_memory(codec);
	wire->name = tdp_codec_unconst(inspect->name);
	wire->has_owner_uid = inspect->has_owner;
	wire->owner_uid = inspect->owner_uid;
	wire->has_generation = inspect->generation != 0;
	wire->generation = inspect->generation;
	wire->has_tensor_cursor = inspect->tensor_cursor != 0;
	wire->tensor_cursor = inspect->tensor_cursor;
	wire->has_holder_cursor = inspect->holder_cursor != 0;
	wire->holder_cursor = inspect->holder_cursor;
	wire->has_segment_cursor = inspect->segment_cursor != 0;
	wire->segment_cursor = inspect->segment_cursor;
	ret_envelope->inspect = wire;
	return 0;
}

static int holder_unpack(struct tdp_codec *codec, const Tidl__Wire__Holder *wire,
			 struct tdp_holder *ret_holder)
{
	int result = tdp_codec_check_range(codec, "holder.kind", wire->kind, TIDL_HOLDER_LEASE,
					   TIDL_HOLDER_PIN);

	if (result == 0)
		result = tdp_codec_check_attach(codec, wire->attach);
	if (result < 0)
		return result;
	ret_holder->kind = (enum tidl_holder_kind)wire->kind;
	ret_holder->attach = (enum tidl_attach)wire->attach;
	ret_holder->age_ms = wire->age_ms;
	ret_holder->left_ms = wire->left_ms;
	return tdp_codec_unpack_process(codec, wire->process, &ret_holder->process);
}

static int holders_unpack(struct tdp_codec *codec, const Tidl__Wire__Inspection *wire,
			  struct tdp_inspection *inspection)
{
	struct tdp_holder *holders =
		tdp_arena_zalloc(codec->arena, wire->n_holders, sizeof(struct tdp_holder));

	if (holders == NULL)
		return tdp_codec_no_memory(codec);
	for (size_t i = 0; i < wire->n_holders; i++) {
		int result = holder_unpack(codec, wire->holders[i], &holders[i]);

		if (result < 0)
			return result;
	}
	inspection->holder_count = wire->n_holders;
	inspection->holders = holders;
	return 0;
}

static int inspection_check(struct tdp_codec *codec, const Tidl__Wire__Inspection *wire)
{
	int result = tdp_codec_check_text(codec, "inspection.name", wire->name, TDP_NAME_MAX_BYTES);

	if (result == 0)
		result = tdp_codec_check_access(codec, wire->access);
	if (result == 0)
		result = tdp_codec_check_retention(codec, wire->retention);
	if (result == 0 && wire->has_path)
		result = tdp_codec_check_path(codec, wire->path);
	if (result == 0)
		result = tdp_codec_check_metadata(codec, wire->metadata);
	return result;
}

static void inspection_unpack_head(const Tidl__Wire__Inspection *wire,
				   struct tdp_inspection *inspection)
{
	inspection->owner_uid = wire->owner_uid;
	inspection->name = wire->name;
	inspection->generation = wire->generation;
	inspection->access = (enum tidl_access)wire->access;
	inspection->retention = (enum tidl_retention)wire->retention;
	inspection->path = wire->has_path ? (enum tidl_path)wire->path : TIDL_PATH_ALLOCATED;
	inspection->mode = wire->mode;
	inspection->gid = wire->gid;
	inspection->age_ms = wire->age_ms;
	inspection->exposed_bytes = wire->exposed_bytes;
	inspection->metadata = wire->metadata;
	inspection->next_tensor_cursor = wire->next_tensor_cursor;
	inspection->next_holder_cursor = wire->next_holder_cursor;
	inspection->next_segment_cursor = wire->next_segment_cursor;
	inspection->is_bundle = wire->is_bundle;
	inspection->all_tensor_count = wire->all_tensor_count;
	inspection->all_segment_count = wire->all_segment_count;
	inspection->survives_restart = wire->survives_restart;
	inspection->is_write_protected = wire->write_protected;
	inspection->is_same_uid_write_protected = wire->same_uid_write_protected;
	inspection->kept_count = wire->n_kept_generations;
	inspection->kept_generations = wire->kept_generations;
	inspection->has_left = wire->has_left_ms;
	inspection->left_ms = wire->left_ms;
}

int tdp_codec_unpack_inspection(struct tdp_codec *codec, const Tidl__Wire__Envelope *envelope,
				struct tdp_message *ret_message)
{
	const Tidl__Wire__Inspection *wire = envelope->inspection;
	struct tdp_inspection *inspection = &ret_message->inspection;
	int result = inspection_check(codec, wire);

	if (result == 0)
		result = tdp_codec_unpack_process(codec, wire->publisher, &inspection->publisher);
	if (result == 0)
		result = tdp_codec_unpack_segments(codec, wire->n_segments, wire->segments,
						   &inspection->segments);
	/* A page may hold tensors whose segments came with another page. */
	if (result == 0)
		result = tdp_codec_unpack_tensors(codec, wire->n_tensors, wire->tensors, UINT32_MAX,
						  &inspection->tensors);
	if (result == 0)
		result = holders_unpack(codec, wire, inspection);
	if (result < 0)
		return result;
	inspection->segment_count = wire->n_segments;
	inspection->tensor_count = wire->n_tensors;
	inspection_unpack_head(wire, inspection);
	return 0;
}

static int holders_pack(struct tdp_codec *codec, const struct tdp_inspection *inspection,
			Tidl__Wire__Inspection *wire)
{
	size_t count = inspection->holder_count;
	Tidl__Wire__Holder **wires =
		tdp_arena_zalloc(codec->arena, count, sizeof(Tidl__Wire__Holder *));

	if (wires == NULL)
		return tdp_codec_no_memory(codec);
	for (size_t i = 0; i < count; i++) {
		const struct tdp_holder *holder = &inspection->holders[i];
		int result;

		wires[i] = tdp_codec_new(codec, &tidl__wire__holder__descriptor);
		if (wires[i] == NULL)
			return tdp_codec_no_memory(codec);
		wires[i]->kind = (Tidl__Wire__HolderKind)holder->kind;
		wires[i]->attach = (Tidl__Wire__Attach)holder->attach;
		wires[i]->age_ms = holder->age_ms;
		wires[i]->has_left_ms = holder->left_ms != 0;
		wires[i]->left_ms = holder->left_ms;
		result = tdp_codec_pack_process(codec, &holder->process, &wires[i]->process);
		if (result < 0)
			return result;
	}
	wire->n_holders = count;
	wire->holders = wires;
	return 0;
}

static void inspection_pack_head(const struct tdp_inspection *inspection,
				 Tidl__Wire__Inspection *wire)
{
	wire->owner_uid = inspection->owner_uid;
	wire->name = tdp_codec_unconst(inspection->name);
	wire->generation = inspection->generation;
	wire->access = (Tidl__Wire__Access)inspection->access;
	wire->retention = (Tidl__Wire__Retention)inspection->retention;
	wire->mode = inspection->mode;
	wire->gid = inspection->gid;
	wire->age_ms = inspection->age_ms;
	wire->exposed_bytes = inspection->exposed_bytes;
	wire->has_path = inspection->path != 0;
	if (wire->has_path)
		wire->path = (Tidl__Wire__Path)inspection->path;
	wire->metadata = tdp_codec_unconst(inspection->metadata);
	wire->has_next_tensor_cursor = inspection->next_tensor_cursor != 0;
	wire->next_tensor_cursor = inspection->next_tensor_cursor;
	wire->has_next_holder_cursor = inspection->next_holder_cursor != 0;
	wire->next_holder_cursor = inspection->next_holder_cursor;
	wire->has_next_segment_cursor = inspection->next_segment_cursor != 0;
	wire->next_segment_cursor = inspection->next_segment_cursor;
	wire->has_is_bundle = inspection->is_bundle;
	wire->is_bundle = inspection->is_bundle;
	wire->has_all_tensor_count = 1;
	wire->all_tensor_count = inspection->all_tensor_count;
	wire->has_all_segment_count = 1;
	wire->all_segment_count = inspection->all_segment_count;
	wire->has_survives_restart = inspection->survives_restart;
	wire->survives_restart = inspection->survives_restart;
	wire->has_write_protected = inspection->is_write_protected;
	wire->write_protected = inspection->is_write_protected;
	wire->has_same_uid_write_protected = inspection->is_same_uid_write_protected;
	wire->same_uid_write_protected = inspection->is_same_uid_write_protected;
	wire->n_kept_generations = inspection->kept_count;
	wire->kept_generations = tdp_codec_unconst(inspection->kept_generations);
	wire->has_left_ms = inspection->has_left;
	wire->left_ms = inspection->left_ms;
}

int tdp_codec_pack_inspection(struct tdp_codec *codec, const struct tdp_message *message,
			      Tidl__Wire__Envelope *ret_envelope)
{
	const struct tdp_inspection *inspection = &message->inspection;
	Tidl__Wire__Inspection *wire = tdp_codec_new(codec, &tidl__wire__inspection__descriptor);
	int result;

	if (wire == NULL)
		return tdp_codec_no_memory(codec);
	ret_envelope->inspection = wire;
	inspection_pack_head(inspection, wire);
	result = tdp_codec_pack_process(codec, &inspection->publisher, &wire->publisher);
	if (result == 0)
		result = tdp_codec_pack_segments(codec, inspection->segment_count,
						 inspection->segments, &wire->n_segments,
						 &wire->segments);
	if (result == 0)
		result =
			tdp_codec_pack_tensors(codec, inspection->tensor_count, inspection->tensors,
					       &wire->n_tensors, &wire->tensors);
	if (result == 0)
		result = holders_pack(codec, inspection, wire);
	return result;
}

/* ---- shutdown ---- */

int tdp_codec_pack_shutdown(struct tdp_codec *codec, const struct tdp_message *message,
			    Tidl__Wire__Envelope *ret_envelope)
{
	(void)message;
	ret_envelope->shutdown = tdp_codec_new(codec, &tidl__wire__shutdown__descriptor);
	return ret_envelope->shutdown ? 0 : tdp_codec_no_memory(codec);
}
