/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the broker grants is checked against what was asked for and against the memory that came
 * with it, row by row, before anybody sees a tensor of it. Rows come in the answer, or in a
 * manifest that its publisher wrote, which is trusted even less.
 */
#include "client/lib/grant.h"

#include <stdlib.h>
#include <string.h>

#include "client/lib/call.h"
#include "client/lib/client.h"
#include "client/lib/tensor.h"
#include "proto/mem/sealed.h"
#include "proto/tensor/layout.h"
#include "proto/wire/manifest.h"

static int granted_refuse(const char *why, struct tdp_fault *fault)
{
	return tdp_fault_set(fault, TIDL_ERR_PROTOCOL,
			     "the broker granted something impossible (%s): check its version",
			     why);
}

static int granted_check(const struct tdp_granted *granted, enum tidl_attach attach,
			 struct tdp_fault *fault)
{
	if (granted->lease_id == 0 || granted->generation == 0)
		return granted_refuse("no lease", fault);
	if (granted->attach != attach)
		return granted_refuse("another attach than asked for", fault);
	return 0;
}

/* ---- rows ---- */

static int manifest_read(struct tdc_reply *reply, struct tdp_manifest *ret_manifest,
			 struct tdp_fault *fault)
{
	size_t size_bytes = 0;
	unsigned char *bytes;
	int r;

	if (reply->fds.count == 0)
		return granted_refuse("no descriptor for the manifest", fault);
	r = tdp_sealed_verify(reply->fds.fds[0], TDP_MANIFEST_MAX_BYTES, &size_bytes, fault);
	if (r < 0)
		return r;
	bytes = malloc(size_bytes);
	if (bytes == NULL)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	r = tdp_sealed_read(reply->fds.fds[0], bytes, size_bytes, 0, fault);
	if (r == 0) {
		reply->arena.cap_bytes += TDP_MANIFEST_UNPACK_MAX_BYTES;
		r = tdp_manifest_unpack(&reply->arena, bytes, size_bytes, ret_manifest, fault);
	}
	free(bytes);
	return r;
}

/* How many segments the rows speak of. */
static size_t rows_count_segments(const struct tdp_tensor *rows, size_t row_count)
{
	int64_t last = -1;

	for (size_t i = 0; i < row_count; i++) {
		if (rows[i].segment_index > last)
			last = rows[i].segment_index;
	}
	return (size_t)(last + 1);
}

static int granted_read_rows(struct tdc_reply *reply, struct tdc_grant *grant,
			     size_t *ret_segment_count, struct tdp_fault *fault)
{
	const struct tdp_granted *granted = &reply->message.granted;
	struct tdp_manifest manifest = {
		.segment_count = rows_count_segments(granted->tensors, granted->tensor_count),
		.tensor_count = granted->tensor_count,
		.tensors = granted->tensors,
		.empty_mapping_count = granted->empty_mapping_count,
		.empty_mappings = granted->empty_mappings,
	};
	int r = granted->has_manifest ? manifest_read(reply, &manifest, fault) : 0;

	if (r < 0)
		return r;
	if (manifest.segment_count > TDP_SEGMENTS_PER_PUBLICATION)
		return granted_refuse("more segments than a bundle can have", fault);
	grant->is_bundle = granted->is_bundle;
	grant->row_count = manifest.tensor_count;
	grant->rows = manifest.tensors;
	grant->mapping_count = manifest.empty_mapping_count;
	grant->mappings = manifest.empty_mappings;
	*ret_segment_count = manifest.segment_count;
	return 0;
}

/* ---- a part of a manifest's rows ---- */

/* Is the key itself wanted, or a mapping that it lies in? */
static bool key_is_wanted(const struct tdp_keyset *wanted, const char *key)
{
	const char *at = key;

	for (;;) {
		size_t length = (size_t)(at - key) + strcspn(at, "/");

		if (tdp_keyset_find(wanted, key, length) >= 0)
			return true;
		if (key[length] == '\0')
			return false;
		at = key + length + 1;
	}
}

static int grant_keep_wanted(struct tdc_grant *grant, const struct tdp_keyset *wanted,
			     struct tdp_fault *fault)
{
	struct tdp_arena *arena = &grant->reply->arena;
	struct tdp_tensor *rows = tdp_arena_alloc(arena, grant->row_count * sizeof(*rows));
	struct tdp_empty_mapping *mappings =
		tdp_arena_alloc(arena, grant->mapping_count * sizeof(*mappings));
	size_t row_count = 0;
	size_t mapping_count = 0;
	size_t next = 0;

	if (rows == NULL || mappings == NULL)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	for (size_t i = 0; i <= grant->row_count; i++) {
		for (; next < grant->mapping_count && grant->mappings[next].position <= i; next++) {
			if (!key_is_wanted(wanted, grant->mappings[next].key))
				continue;
			mappings[mapping_count] = grant->mappings[next];
			mappings[mapping_count++].position = (uint32_t)row_count;
		}
		if (i < grant->row_count && key_is_wanted(wanted, grant->rows[i].key))
			rows[row_count++] = grant->rows[i];
	}
	grant->rows = rows;
	grant->row_count = row_count;
	grant->mappings = mappings;
	grant->mapping_count = mapping_count;
	return 0;
}

static int grant_select(struct tdc_grant *grant, const struct tdc_grant_request *request,
			struct tdp_fault *fault)
{
	tdp_auto_keyset wanted;
	int r = tdp_keyset_init(&wanted, request->key_count, 0, fault);

	for (size_t i = 0; i < request->key_count && r == 0; i++) {
		size_t length = strlen(request->keys[i]);

		if (tdp_keyset_find(&wanted, request->keys[i], length) < 0)
			r = tdp_keyset_add(&wanted, request->keys[i], length, fault);
	}
	return r == 0 ? grant_keep_wanted(grant, &wanted, fault) : r;
}

/* ---- checks of every row ---- */

/* Does the tensor lie in its segment? A window of nothing is right for one without. */
static int row_measure(const struct tdc_origin *origin, const struct tdp_tensor *row,
		       struct tdp_extent *ret_extent, struct tdp_fault *fault)
{
	struct tdp_layout layout = {
		.dtype = row->dtype,
		.ndim = row->ndim,
		.shape = row->shape,
		.strides = row->strides,
		.byte_offset = row->byte_offset,
		.flags = row->flags,
	};
	uint64_t window_begin = 0;
	uint64_t window_end = 0;

	if (row->segment_index >= 0) {
		const struct tdc_segment *segment;

		if (row->segment_index >= (int64_t)origin->segment_count ||
		    origin->segments[row->segment_index] == NULL)
			return tdp_fault_set(fault, TIDL_ERR_PROTOCOL,
					     "a tensor in a segment that is not there");
		segment = origin->segments[row->segment_index];
		window_begin = segment->data_offset_bytes;
		window_end = window_begin + segment->map_bytes;
	}
	return tdp_layout_check(&layout, window_begin, window_end, ret_extent, fault);
}

static int grant_check_rows(struct tdc_grant *grant, struct tdp_fault *fault)
{
	struct tdp_extent extent;
	struct tdp_fault refusal;

	for (size_t i = 0; i < grant->row_count; i++) {
		if (row_measure(grant->origin, &grant->rows[i], &extent, &refusal) < 0)
			return granted_refuse(refusal.text, fault);
		grant->tensor_bytes += extent.nbytes;
	}
	for (size_t i = 0; i < grant->origin->segment_count; i++)
		grant->mapped_count += grant->origin->segments[i] != NULL;
	return 0;
}

static int grant_add_key(struct tdc_grant *grant, const char *key, struct tdp_fault *fault)
{
	size_t length = strlen(key);
	int r = tdp_key_check(key, length, fault);

	return r < 0 ? r : tdp_keyset_add(&grant->keys, key, length, fault);
}

static int grant_check_keys(struct tdc_grant *grant, struct tdp_fault *fault)
{
	struct tdp_fault refusal;
	uint32_t position = 0;
	int r = tdp_keyset_init(&grant->keys, grant->row_count + grant->mapping_count, 0, fault);

	if (r < 0)
		return r;
	for (size_t i = 0; i < grant->row_count && r == 0; i++)
		r = grant_add_key(grant, grant->rows[i].key, &refusal);
	for (size_t i = 0; i < grant->mapping_count && r == 0; i++) {
		const struct tdp_empty_mapping *mapping = &grant->mappings[i];

		if (mapping->position < position || mapping->position > grant->row_count)
			return granted_refuse("an empty mapping out of order", fault);
		position = mapping->position;
		r = grant_add_key(grant, mapping->key, &refusal);
	}
	if (r == 0)
		r = tdp_keyset_check(&grant->keys, 0, grant->keys.count, &refusal);
	return r < 0 ? granted_refuse(refusal.text, fault) : 0;
}

/* ---- the whole ---- */

static int granted_origin_new(struct tidl_client *client, const struct tdp_granted *granted,
			      const char *name, size_t segment_count,
			      struct tdc_origin **ret_origin, struct tdp_fault *fault)
{
	struct tdc_origin_spec spec = {
		.attach = granted->attach,
		.access = granted->access,
		.generation = granted->generation,
		.owner_uid = granted->owner_uid,
		.name = name,
		.metadata = granted->metadata,
		.segment_count = segment_count,
	};

	return tdc_origin_new(client, &spec, ret_origin, fault);
}

int tdc_grant_begin(struct tidl_client *client, const struct tdc_grant_request *request,
		    struct tdc_reply *reply, struct tdc_lease *lease, struct tdc_grant *ret_grant,
		    struct tdp_fault *fault)
{
	const struct tdp_granted *granted = &reply->message.granted;
	struct tdc_grant grant = TDC_GRANT_NONE;
	size_t segment_count = 0;
	int r;

	lease->id = granted->lease_id;
	lease->era = reply->era;
	tdc_client_lock(client);
	lease->fork_count = client->fork_count;
	tdc_client_unlock(client);
	r = granted_check(granted, request->attach, fault);
	if (r == 0)
		r = granted_read_rows(reply, &grant, &segment_count, fault);
	if (r == 0)
		r = granted_origin_new(client, granted, request->name, segment_count, &grant.origin,
				       fault);
	if (r < 0) {
		tdc_lease_end(client, lease);
		return r;
	}
	grant.origin->lease = lease;
	r = tdc_parts_begin(&grant.parts, grant.origin, reply, fault);
	if (r < 0) {
		tdc_grant_deinit(&grant);
		return r;
	}
	grant.reply = reply;
	*ret_grant = grant;
	return 0;
}

int tdc_grant_finish(struct tdc_grant *grant, const struct tdc_grant_request *request,
		     struct tdp_fault *fault)
{
	int r = tdc_parts_finish(&grant->parts, fault);

	if (r == 0 && request->key_count > 0 && grant->reply->message.granted.has_manifest)
		r = grant_select(grant, request, fault);
	if (r == 0)
		r = grant_check_rows(grant, fault);
	if (r == 0 && grant->is_bundle)
		r = grant_check_keys(grant, fault);
	return r;
}

/* One more packet of segments. */
static int grant_ask_more(struct tidl_client *client, struct tdc_parts *parts,
			  struct tdp_fault *fault)
{
	struct tdp_message request = tdc_parts_request(parts);
	tdc_auto_reply *reply = NULL;
	int r = tdc_call(client, &request, TDC_ANSWER_DUE, TDP_MESSAGE_MORE, &reply, fault);

	return r < 0 ? r : tdc_parts_more(parts, reply, fault);
}

int tdc_grant_init(struct tidl_client *client, const struct tdc_grant_request *request,
		   struct tdc_reply *reply, struct tdc_lease *lease, struct tdc_grant *ret_grant,
		   struct tdp_fault *fault)
{
	struct tdc_grant grant;
	int r = tdc_grant_begin(client, request, reply, lease, &grant, fault);

	if (r < 0)
		return r;
	while (r == 0 && grant.parts.cursor != 0)
		r = grant_ask_more(client, &grant.parts, fault);
	if (r == 0)
		r = tdc_grant_finish(&grant, request, fault);
	if (r < 0) {
		grant.reply = NULL;
		tdc_grant_deinit(&grant);
		return r;
	}
	*ret_grant = grant;
	return 0;
}

int tdc_grant_tensor(const struct tdc_grant *grant, size_t index, struct tidl_tensor **ret_tensor,
		     struct tdp_fault *fault)
{
	const struct tdp_tensor *row = &grant->rows[index];
	struct tdc_tensor_spec spec = {
		.dtype = row->dtype,
		.ndim = row->ndim,
		.shape = row->shape,
		.strides = row->strides,
		.flags = row->flags & TDP_LAYOUT_SUBBYTE_PADDED,
		.key = grant->is_bundle ? row->key : NULL,
	};
	struct tdp_extent extent;
	int r = row_measure(grant->origin, row, &extent, fault);

	if (r < 0)
		return r;
	spec.nbytes = extent.nbytes;
	r = tdc_tensor_new(grant->origin, &spec, ret_tensor, fault);
	if (r == 0 && !extent.is_empty)
		tdc_tensor_place(*ret_tensor, grant->origin->segments[row->segment_index],
				 row->byte_offset);
	return r;
}

int tdc_grant_single(const struct tdc_grant *grant, struct tidl_tensor **ret_tensor,
		     struct tdp_fault *fault)
{
	if (grant->is_bundle)
		return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT,
				     "'%s' is a bundle of %zu tensors: attach it with "
				     "tidl_get_bundle()",
				     grant->origin->name, grant->row_count);
	return tdc_grant_tensor(grant, 0, ret_tensor, fault);
}

void tdc_grant_deinit(struct tdc_grant *grant)
{
	tdp_keyset_deinit(&grant->keys);
	grant->origin = tdc_origin_unref(grant->origin);
	grant->reply = tdc_reply_free(grant->reply);
}
