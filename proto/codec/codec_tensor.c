/* SPDX-License-Identifier: Apache-2.0 */
/* The messages about tensors: allocate, open, publish, get, release, remove, and their answers. */
#include "proto/codec/codec.h"

enum { PUBLISH_DEFAULT_MODE = 0600, PUBLISH_DEFAULT_KEEP = 1 };

int tdp_codec_unpack_allocate(struct tdp_codec *codec, const Tidl__Wire__Envelope *envelope,
			      struct tdp_message *ret_message)
{
	(void)codec;
	ret_message->allocate.data_size_bytes = envelope->allocate->data_size_bytes;
	return 0;
}

int tdp_codec_pack_allocate(struct tdp_codec *codec, const struct tdp_message *message,
			    Tidl__Wire__Envelope *ret_envelope)
{
	Tidl__Wire__Allocate *wire = tdp_codec_new(codec, &tidl__wire__allocate__descriptor);

	if (wire == NULL)
		return tdp_codec_no_memory(codec);
	wire->data_size_bytes = message->allocate.data_size_bytes;
	ret_envelope->allocate = wire;
	return 0;
}

int tdp_codec_unpack_allocated(struct tdp_codec *codec, const Tidl__Wire__Envelope *envelope,
			       struct tdp_message *ret_message)
{
	return tdp_codec_unpack_segment(codec, envelope->allocated->segment,
					&ret_message->allocated.segment);
}

int tdp_codec_pack_allocated(struct tdp_codec *codec, const struct tdp_message *message,
			     Tidl__Wire__Envelope *ret_envelope)
{
	Tidl__Wire__Allocated *wire = tdp_codec_new(codec, &tidl__wire__allocated__descriptor);

	if (wire == NULL)
		return tdp_codec_no_memory(codec);
	ret_envelope->allocated = wire;
	return tdp_codec_pack_segment(codec, &message->allocated.segment, &wire->segment);
}

/* ---- open ---- */

int tdp_codec_unpack_open(struct tdp_codec *codec, const Tidl__Wire__Envelope *envelope,
			  struct tdp_message *ret_message)
{
	(void)codec;
	ret_message->open.segment_id = envelope->open->segment_id;
	ret_message->open.lease_id = envelope->open->lease_id;
	return 0;
}

int tdp_codec_pack_open(struct tdp_codec *codec, const struct tdp_message *message,
			Tidl__Wire__Envelope *ret_envelope)
{
	Tidl__Wire__Open *wire = tdp_codec_new(codec, &tidl__wire__open__descriptor);

	if (wire == NULL)
		return tdp_codec_no_memory(codec);
	wire->segment_id = message->open.segment_id;
	wire->has_lease_id = message->open.lease_id != 0;
	wire->lease_id = message->open.lease_id;
	ret_envelope->open = wire;
	return 0;
}

int tdp_codec_unpack_opened(struct tdp_codec *codec, const Tidl__Wire__Envelope *envelope,
			    struct tdp_message *ret_message)
{
	return tdp_codec_unpack_segment(codec, envelope->opened->segment,
					&ret_message->opened.segment);
}

int tdp_codec_pack_opened(struct tdp_codec *codec, const struct tdp_message *message,
			  Tidl__Wire__Envelope *ret_envelope)
{
	Tidl__Wire__Opened *wire = tdp_codec_new(codec, &tidl__wire__opened__descriptor);

	if (wire == NULL)
		return tdp_codec_no_memory(codec);
	ret_envelope->opened = wire;
	return tdp_codec_pack_segment(codec, &message->opened.segment, &wire->segment);
}

/* ---- publish ---- */

static int publish_check(struct tdp_codec *codec, const Tidl__Wire__Publish *wire)
{
	int result = tdp_codec_check_access(codec, wire->access);

	if (result == 0 && wire->has_retention)
		result = tdp_codec_check_retention(codec, wire->retention);
	if (result == 0 && wire->has_path)
		result = tdp_codec_check_path(codec, wire->path);
	return result;
}

static void publish_unpack_options(const Tidl__Wire__Publish *wire, struct tdp_publish *publish)
{
	publish->name = wire->name;
	publish->access = (enum tidl_access)wire->access;
	publish->retention =
		wire->has_retention ? (enum tidl_retention)wire->retention : TIDL_RETENTION_DEFAULT;
	publish->ttl_ms = wire->ttl_ms;
	publish->mode = wire->has_mode ? wire->mode : PUBLISH_DEFAULT_MODE;
	publish->has_gid = wire->has_gid;
	publish->gid = wire->gid;
	publish->replace = wire->replace;
	publish->keep = wire->has_keep ? wire->keep : PUBLISH_DEFAULT_KEEP;
	publish->metadata = wire->metadata;
	publish->path = wire->has_path ? (enum tidl_path)wire->path : TIDL_PATH_ALLOCATED;
	publish->expose = wire->expose;
	publish->hands_over = wire->hands_over;
	publish->is_bundle = wire->is_bundle;
	publish->has_manifest = wire->has_manifest;
	publish->has_unbuilt = wire->has_claim_token;
	publish->check_only = wire->check_only;
	publish->keeps_pooled = wire->keeps_pooled;
}

int tdp_codec_unpack_publish(struct tdp_codec *codec, const Tidl__Wire__Envelope *envelope,
			     struct tdp_message *ret_message)
{
	const Tidl__Wire__Publish *wire = envelope->publish;
	struct tdp_publish *publish = &ret_message->publish;
	int result = publish_check(codec, wire);

	if (result == 0)
		result = tdp_codec_unpack_segments(codec, wire->n_segments, wire->segments,
						   &publish->segments);
	/* Indexes and metadata are for the handler to refuse, each by its own code. */
	if (result == 0)
		result = tdp_codec_unpack_tensors(codec, wire->n_tensors, wire->tensors, UINT64_MAX,
						  &publish->tensors);
	if (result == 0)
		result = tdp_codec_unpack_empty_mappings(codec, wire->n_empty_mappings,
							 wire->empty_mappings,
							 &publish->empty_mappings);
	if (result < 0)
		return result;
	publish->segment_count = wire->n_segments;
	publish->tensor_count = wire->n_tensors;
	publish->empty_mapping_count = wire->n_empty_mappings;
	publish_unpack_options(wire, publish);
	return 0;
}

static void publish_pack_options(const struct tdp_publish *publish, Tidl__Wire__Publish *wire)
{
	wire->name = tdp_codec_unconst(publish->name);
	wire->access = (Tidl__Wire__Access)publish->access;
	wire->has_retention = publish->retention != TIDL_RETENTION_DEFAULT;
	if (wire->has_retention)
		wire->retention = (Tidl__Wire__Retention)publish->retention;
	wire->has_ttl_ms = publish->ttl_ms != 0;
	wire->ttl_ms = publish->ttl_ms;
	wire->has_mode = 1;
	wire->mode = publish->mode;
	wire->has_gid = publish->has_gid;
	wire->gid = publish->gid;
	wire->has_replace = publish->replace;
	wire->replace = publish->replace;
	wire->has_keep = publish->keep != PUBLISH_DEFAULT_KEEP;
	wire->keep = publish->keep;
	wire->metadata = tdp_codec_unconst(publish->metadata);
	wire->has_path = publish->path != 0;
	if (wire->has_path)
		wire->path = (Tidl__Wire__Path)publish->path;
	wire->has_expose = publish->expose;
	wire->expose = publish->expose;
	wire->has_hands_over = publish->hands_over;
	wire->hands_over = publish->hands_over;
	wire->has_is_bundle = publish->is_bundle;
	wire->is_bundle = publish->is_bundle;
	wire->has_has_manifest = publish->has_manifest;
	wire->has_manifest = publish->has_manifest;
	wire->has_check_only = publish->check_only;
	wire->check_only = publish->check_only;
	wire->has_keeps_pooled = publish->keeps_pooled;
	wire->keeps_pooled = publish->keeps_pooled;
}

int tdp_codec_pack_publish(struct tdp_codec *codec, const struct tdp_message *message,
			   Tidl__Wire__Envelope *ret_envelope)
{
	const struct tdp_publish *publish = &message->publish;
	Tidl__Wire__Publish *wire = tdp_codec_new(codec, &tidl__wire__publish__descriptor);
	int result;

	if (wire == NULL)
		return tdp_codec_no_memory(codec);
	ret_envelope->publish = wire;
	publish_pack_options(publish, wire);
	result = tdp_codec_pack_segments(codec, publish->segment_count, publish->segments,
					 &wire->n_segments, &wire->segments);
	if (result == 0)
		result = tdp_codec_pack_tensors(codec, publish->tensor_count, publish->tensors,
						&wire->n_tensors, &wire->tensors);
	if (result == 0)
		result = tdp_codec_pack_empty_mappings(
			codec, publish->empty_mapping_count, publish->empty_mappings,
			&wire->n_empty_mappings, &wire->empty_mappings);
	return result;
}

int tdp_codec_unpack_published(struct tdp_codec *codec, const Tidl__Wire__Envelope *envelope,
			       struct tdp_message *ret_message)
{
	const Tidl__Wire__Published *wire = envelope->published;
	struct tdp_published *published = &ret_message->published;
	int result = tdp_codec_check_retention(codec, wire->retention);

	if (result < 0)
		return result;
	published->generation = wire->generation;
	published->retention = (enum tidl_retention)wire->retention;
	published->exposed_bytes = wire->exposed_bytes;
	published->survives_restart = wire->survives_restart;
	published->aliases_previous = wire->aliases_previous;
	published->replaced_generation = wire->replaced_generation;
	published->returned_count = wire->n_returned_segment_ids;
	published->returned_ids = wire->returned_segment_ids;
	published->dropped_count = wire->n_dropped_segment_ids;
	published->dropped_ids = wire->dropped_segment_ids;
	return 0;
}

int tdp_codec_pack_published(struct tdp_codec *codec, const struct tdp_message *message,
			     Tidl__Wire__Envelope *ret_envelope)
{
	const struct tdp_published *published = &message->published;
	Tidl__Wire__Published *wire = tdp_codec_new(codec, &tidl__wire__published__descriptor);

	if (wire == NULL)
		return tdp_codec_no_memory(codec);
	wire->generation = published->generation;
	wire->retention = (Tidl__Wire__Retention)published->retention;
	wire->exposed_bytes = published->exposed_bytes;
	wire->has_survives_restart = published->survives_restart;
	wire->survives_restart = published->survives_restart;
	wire->has_aliases_previous = published->aliases_previous;
	wire->aliases_previous = published->aliases_previous;
	wire->has_replaced_generation = published->replaced_generation != 0;
	wire->replaced_generation = published->replaced_generation;
	wire->n_returned_segment_ids = published->returned_count;
	wire->returned_segment_ids = tdp_codec_unconst(published->returned_ids);
	wire->n_dropped_segment_ids = published->dropped_count;
	wire->dropped_segment_ids = tdp_codec_unconst(published->dropped_ids);
	ret_envelope->published = wire;
	return 0;
}

/* ---- get ---- */

int tdp_codec_unpack_get(struct tdp_codec *codec, const Tidl__Wire__Envelope *envelope,
			 struct tdp_message *ret_message)
{
	const Tidl__Wire__Get *wire = envelope->get;
	struct tdp_get *get = &ret_message->get;
	int result = tdp_codec_check_attach(codec, wire->attach);

	if (result == 0)
		result = tdp_codec_check_keys(codec, wire->n_keys, wire->keys);
	if (result < 0)
		return result;
	get->name = wire->name;
	get->has_owner = wire->has_owner_uid;
	get->owner_uid = wire->owner_uid;
	get->attach = (enum tidl_attach)wire->attach;
	get->wait = wire->wait;
	get->generation = wire->generation;
	get->newer_than = wire->newer_than;
	get->key_count = wire->n_keys;
	get->keys = (const char *const *)wire->keys;
	return 0;
}

int tdp_codec_pack_get(struct tdp_codec *codec, const struct tdp_message *message,
		       Tidl__Wire__Envelope *ret_envelope)
{
	const struct tdp_get *get = &message->get;
	Tidl__Wire__Get *wire = tdp_codec_new(codec, &tidl__wire__get__descriptor);

	if (wire == NULL)
		return tdp_codec_no_memory(codec);
	wire->name = tdp_codec_unconst(get->name);
	wire->has_owner_uid = get->has_owner;
	wire->owner_uid = get->owner_uid;
	wire->attach = (Tidl__Wire__Attach)get->attach;
	wire->has_wait = get->wait;
	wire->wait = get->wait;
	wire->has_generation = get->generation != 0;
	wire->generation = get->generation;
	wire->has_newer_than = get->newer_than != 0;
	wire->newer_than = get->newer_than;
	wire->n_keys = get->key_count;
	wire->keys = tdp_codec_unconst(get->keys);
	ret_envelope->get = wire;
	return 0;
}

static int granted_check(struct tdp_codec *codec, const Tidl__Wire__Granted *wire)
{
	int result = tdp_codec_check_access(codec, wire->access);

	if (result == 0)
		result = tdp_codec_check_attach(codec, wire->attach);
	if (result == 0)
		result = tdp_codec_check_retention(codec, wire->retention);
	if (result == 0)
		result = tdp_codec_check_metadata(codec, wire->metadata);
	if (result == 0)
		result = tdp_codec_check_segment_numbers(
			codec, wire->n_segments, wire->n_segment_numbers, wire->segment_numbers);
	if (result == 0 && wire->has_manifest &&
	    (wire->n_tensors > 0 || wire->n_empty_mappings > 0))
		result = tdp_fault_set(codec->fault, TIDL_ERR_PROTOCOL,
				       "a grant has rows beside its manifest: check that both "
				       "sides are tidl of the same version");
	return result;
}

/* Where the tensors may lie, as far as this packet tells. */
static uint64_t granted_segment_bound(const Tidl__Wire__Granted *wire)
{
	return wire->next_cursor != 0 ? TDP_SEGMENTS_PER_PUBLICATION : wire->n_segments;
}

static void granted_unpack_bundle(const Tidl__Wire__Granted *wire, struct tdp_granted *granted)
{
	granted->empty_mapping_count = wire->n_empty_mappings;
	granted->has_manifest = wire->has_manifest;
	granted->segment_number_count = wire->n_segment_numbers;
	granted->segment_numbers = wire->segment_numbers;
	granted->next_cursor = wire->next_cursor;
	granted->is_bundle = wire->has_manifest || wire->n_tensors != 1 ||
			     wire->n_empty_mappings > 0 || wire->tensors[0]->key != NULL;
}

int tdp_codec_unpack_granted(struct tdp_codec *codec, const Tidl__Wire__Envelope *envelope,
			     struct tdp_message *ret_message)
{
	const Tidl__Wire__Granted *wire = envelope->granted;
	struct tdp_granted *granted = &ret_message->granted;
	int result = granted_check(codec, wire);

	if (result == 0)
		result = tdp_codec_unpack_segments(codec, wire->n_segments, wire->segments,
						   &granted->segments);
	if (result == 0)
		result = tdp_codec_unpack_tensors(codec, wire->n_tensors, wire->tensors,
						  granted_segment_bound(wire), &granted->tensors);
	if (result == 0)
		result = tdp_codec_unpack_empty_mappings(codec, wire->n_empty_mappings,
							 wire->empty_mappings,
							 &granted->empty_mappings);
	if (result < 0)
		return result;
	granted->lease_id = wire->lease_id;
	granted->owner_uid = wire->owner_uid;
	granted->segment_owner_uid =
		wire->has_segment_owner_uid ? wire->segment_owner_uid : wire->owner_uid;
	granted->generation = wire->generation;
	granted->access = (enum tidl_access)wire->access;
	granted->attach = (enum tidl_attach)wire->attach;
	granted->retention = (enum tidl_retention)wire->retention;
	granted->segment_count = wire->n_segments;
	granted->tensor_count = wire->n_tensors;
	granted->metadata = wire->metadata;
	granted_unpack_bundle(wire, granted);
	return 0;
}

static void granted_pack_head(const struct tdp_granted *granted, Tidl__Wire__Granted *wire)
{
	wire->lease_id = granted->lease_id;
	wire->owner_uid = granted->owner_uid;
	wire->has_segment_owner_uid = granted->segment_owner_uid != granted->owner_uid;
	wire->segment_owner_uid = granted->segment_owner_uid;
	wire->generation = granted->generation;
	wire->access = (Tidl__Wire__Access)granted->access;
	wire->attach = (Tidl__Wire__Attach)granted->attach;
	wire->retention = (Tidl__Wire__Retention)granted->retention;
	wire->metadata = tdp_codec_unconst(granted->metadata);
	wire->has_has_manifest = granted->has_manifest;
	wire->has_manifest = granted->has_manifest;
	wire->has_next_cursor = granted->next_cursor != 0;
	wire->next_cursor = granted->next_cursor;
	wire->n_segment_numbers = granted->segment_number_count;
	wire->segment_numbers = tdp_codec_unconst(granted->segment_numbers);
}

int tdp_codec_pack_granted(struct tdp_codec *codec, const struct tdp_message *message,
			   Tidl__Wire__Envelope *ret_envelope)
{
	const struct tdp_granted *granted = &message->granted;
	Tidl__Wire__Granted *wire = tdp_codec_new(codec, &tidl__wire__granted__descriptor);
	int result;

	if (wire == NULL)
		return tdp_codec_no_memory(codec);
	ret_envelope->granted = wire;
	granted_pack_head(granted, wire);
	result = tdp_codec_pack_segments(codec, granted->segment_count, granted->segments,
					 &wire->n_segments, &wire->segments);
	if (result == 0)
		result = tdp_codec_pack_tensors(codec, granted->tensor_count, granted->tensors,
						&wire->n_tensors, &wire->tensors);
	if (result == 0)
		result = tdp_codec_pack_empty_mappings(
			codec, granted->empty_mapping_count, granted->empty_mappings,
			&wire->n_empty_mappings, &wire->empty_mappings);
	return result;
}

/* ---- release and remove ---- */

int tdp_codec_unpack_release(struct tdp_codec *codec, const Tidl__Wire__Envelope *envelope,
			     struct tdp_message *ret_message)
{
	const Tidl__Wire__Release *wire = envelope->release;
	struct tdp_release *release = &ret_message->release;

	(void)codec;
	release->lease_count = wire->n_lease_ids;
	release->lease_ids = wire->lease_ids;
	release->segment_count = wire->n_segment_ids;
	release->segment_ids = wire->segment_ids;
	release->inherited_count = wire->n_inherited_lease_ids;
	release->inherited_lease_ids = wire->inherited_lease_ids;
	return 0;
}

int tdp_codec_pack_release(struct tdp_codec *codec, const struct tdp_message *message,
			   Tidl__Wire__Envelope *ret_envelope)
{
	const struct tdp_release *release = &message->release;
	Tidl__Wire__Release *wire = tdp_codec_new(codec, &tidl__wire__release__descriptor);

	if (wire == NULL)
		return tdp_codec_no_memory(codec);
	wire->n_lease_ids = release->lease_count;
	wire->lease_ids = tdp_codec_unconst(release->lease_ids);
	wire->n_segment_ids = release->segment_count;
	wire->segment_ids = tdp_codec_unconst(release->segment_ids);
	wire->n_inherited_lease_ids = release->inherited_count;
	wire->inherited_lease_ids = tdp_codec_unconst(release->inherited_lease_ids);
	ret_envelope->release = wire;
	return 0;
}

int tdp_codec_unpack_remove(struct tdp_codec *codec, const Tidl__Wire__Envelope *envelope,
			    struct tdp_message *ret_message)
{
	const Tidl__Wire__Remove *wire = envelope->remove;
	struct tdp_remove *removal = &ret_message->remove;

	(void)codec;
	removal->name = wire->name;
	removal->has_owner = wire->has_owner_uid;
	removal->owner_uid = wire->owner_uid;
	return 0;
}

int tdp_codec_pack_remove(struct tdp_codec *codec, const struct tdp_message *message,
			  Tidl__Wire__Envelope *ret_envelope)
{
	const struct tdp_remove *removal = &message->remove;
	Tidl__Wire__Remove *wire = tdp_codec_new(codec, &tidl__wire__remove__descriptor);

	if (wire == NULL)
		return tdp_codec_no_memory(codec);
	wire->name = tdp_codec_unconst(removal->name);
	wire->has_owner_uid = removal->has_owner;
	wire->owner_uid = removal->owner_uid;
	ret_envelope->remove = wire;
	return 0;
}
