/* SPDX-License-Identifier: Apache-2.0 */
/* From checked tensors to a name: one round trip for memory in segments, two and a copy for any
 * other. */
#include "client/lib/publish.h"

#include <stdlib.h>
#include <string.h>

#include "client/lib/call.h"
#include "client/lib/client.h"
#include "client/lib/inplace/listed.h"
#include "client/lib/inplace/naming.h"
#include "client/lib/inplace/uses.h"
#include "client/lib/owner.h"
#include "client/lib/pool.h"
#include "client/lib/report.h"
#include "client/lib/seal.h"
#include "client/lib/steps.h"
#include "proto/base/fd.h"
#include "proto/base/utf8.h"
#include "proto/mem/sealed.h"
#include "proto/wire/manifest.h"

enum { MODE_DEFAULT = 0600, MODE_ALL = 0666 };

static int options_refuse(const char *what, struct tdp_fault *fault)
{
	return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT, "publish: %s", what);
}

static int options_check_numbers(const struct tidl_publish_options *options,
				 struct tdp_fault *fault)
{
	if ((options->mode & ~(uint32_t)MODE_ALL) != 0)
		return options_refuse("the mode may have bits of 0666 only", fault);
	if (options->group < 0 || options->group >= UINT32_MAX)
		return options_refuse("that is not a gid", fault);
	if (options->retention == TIDL_RETENTION_SECONDS && options->retain_ms <= 0)
		return options_refuse("a life time must be longer than 0 ms", fault);
	return 0;
}

/* The broker parses the metadata; here only what could not even be sent. */
static int options_check_metadata(const char *metadata, struct tdp_fault *fault)
{
	size_t left = metadata ? strnlen(metadata, TDP_METADATA_MAX_BYTES + 1) : 0;

	if (left > TDP_METADATA_MAX_BYTES)
		return tdp_fault_code(fault, TIDL_ERR_METADATA);
	while (left > 0) {
		size_t length = tdp_utf8_length(metadata, left);

		if (length == 0)
			return tdp_fault_code(fault, TIDL_ERR_METADATA);
		metadata += length;
		left -= length;
	}
	return 0;
}

static int publish_options_check(struct tidl_publish_options *options, struct tdp_fault *fault)
{
	int r;

	if (options->access == 0)
		options->access = TIDL_ACCESS_SHARED;
	if (options->mode == 0)
		options->mode = MODE_DEFAULT;
	if (options->access < TIDL_ACCESS_SHARED || options->access > TIDL_ACCESS_IMMUTABLE)
		return options_refuse("there is no such access", fault);
	if (options->copy < TIDL_COPY_IF_NEEDED || options->copy > TIDL_COPY_NEVER)
		return options_refuse("there is no such copy rule", fault);
	if (options->retention < TIDL_RETENTION_DEFAULT ||
	    options->retention > TIDL_RETENTION_SECONDS)
		return options_refuse("there is no such retention", fault);
	if (options->block_count > 0 && options->blocks == NULL)
		return options_refuse("there are blocks without an array of them", fault);
	r = options_check_numbers(options, fault);
	return r < 0 ? r : options_check_metadata(options->metadata, fault);
}

static int publish_check_owner(struct tidl_client *client, const struct tdc_name *name,
			       struct tdp_fault *fault)
{
	uint32_t uid;
	int r = tdc_client_lock_open(client, fault);

	if (r < 0)
		return r;
	uid = client->broker.uid;
	tdc_client_unlock(client);
	if (name->has_owner && name->owner_uid != uid)
		return tdp_fault_set(fault, TIDL_ERR_PERMISSION,
				     "names can be published in your own namespace only: leave "
				     "the owner before '%s' out",
				     name->path);
	return 0;
}

/* The message without its rows. */
static struct tdp_message publish_message(const char *path, const struct tdc_placement *placement,
					  const struct tidl_publish_options *options)
{
	return (struct tdp_message){
		.kind = TDP_MESSAGE_PUBLISH,
		.publish = {.name = path,
			    .access = placement->access,
			    .retention = options->retention,
			    .ttl_ms = options->retention == TIDL_RETENTION_SECONDS
					      ? (uint64_t)options->retain_ms
					      : 0,
			    .mode = options->mode,
			    .has_gid = options->has_group != 0 || options->group != 0,
			    .gid = (uint32_t)options->group,
			    .replace = options->replace != 0,
			    .keep = options->keep > 0 ? options->keep : 1,
			    .metadata = options->metadata,
			    .path = placement->path,
			    .expose = options->expose != 0 || tdc_placement_is_padded(placement),
			    .hands_over = tdc_placement_hands_over(placement),
			    .keeps_pooled = placement->pooled != NULL},
	};
}

/* A publish that is ready to be sent, perhaps twice. */
struct publishing {
	struct tdp_message request;
	int manifest_fd; /* -1: the rows are in the request */
};

/* What the broker would refuse too, where it is not known any more what to do about it. */
static int rows_check(const struct tdp_manifest *rows, size_t size_bytes, struct tdp_fault *fault)
{
	if (rows->segment_count > TDP_SEGMENTS_PER_PUBLICATION)
		return tdp_fault_set(
			fault, TIDL_ERR_LIMIT,
			"the tensors lie in %zu segments, and a bundle has at most %d: "
			"publish several, or let them be copied into one",
			rows->segment_count, TDP_SEGMENTS_PER_PUBLICATION);
	if (size_bytes > TDP_MANIFEST_MAX_BYTES)
		return tdp_fault_set(fault, TIDL_ERR_LIMIT,
				     "keys and shapes take %zu bytes together, and may take %d: "
				     "publish several bundles, or shorten the keys",
				     size_bytes, TDP_MANIFEST_MAX_BYTES);
	return 0;
}

/* Rows that are too long for a packet go into sealed memory, whose descriptor travels with it. */
static int publishing_add_manifest(struct publishing *publishing,
				   const struct tdp_manifest *manifest, struct tdp_fault *fault)
{
	size_t size_bytes = tdp_manifest_packed_bytes(manifest);
	void *bytes;
	int r;

	if (size_bytes > TDP_MANIFEST_MAX_BYTES)
		return tdp_fault_set(
			fault, TIDL_ERR_LIMIT,
			"the keys and shapes of the bundle take %zu bytes and may take "
			"%d: use shorter keys, or publish it in parts",
			size_bytes, TDP_MANIFEST_MAX_BYTES);
	bytes = malloc(size_bytes);
	if (bytes == NULL)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	tdp_manifest_pack(manifest, bytes);
	r = tdp_sealed_create("tidl-manifest", bytes, size_bytes, &publishing->manifest_fd, fault);
	free(bytes);
	publishing->request.publish.has_manifest = true;
	return r;
}

static int publishing_add_rows(struct publishing *publishing, const struct tdc_content *content,
			       const struct tdc_placement *placement, struct tdp_fault *fault)
{
	const struct tdp_manifest rows = {
		.segment_count = placement->segment_count,
		.segments = placement->segments,
		.tensor_count = placement->tensor_count,
		.tensors = placement->tensors,
		.empty_mapping_count = content->mapping_count,
		.empty_mappings = content->mappings,
	};
	struct tdp_publish *publish = &publishing->request.publish;

	if (content->is_bundle) {
		size_t size_bytes = tdp_manifest_packed_bytes(&rows);
		int r = rows_check(&rows, size_bytes, fault);

		if (r < 0)
			return r;
		publish->is_bundle = true;
		if (size_bytes > TDP_INLINE_ROWS_MAX_BYTES)
			return publishing_add_manifest(publishing, &rows, fault);
	}
	publish->segment_count = rows.segment_count;
	publish->segments = rows.segments;
	publish->tensor_count = rows.tensor_count;
	publish->tensors = rows.tensors;
	publish->empty_mapping_count = rows.empty_mapping_count;
	publish->empty_mappings = rows.empty_mappings;
	return 0;
}

static int publishing_send(struct tidl_client *client, struct publishing *publishing,
			   enum tdp_message_kind expected, struct tdc_reply **ret_reply,
			   struct tdp_fault *fault)
{
	if (publishing->manifest_fd >= 0)
		return tdc_call_with_fd(client, &publishing->request, publishing->manifest_fd,
					expected, ret_reply, fault);
	return tdc_call(client, &publishing->request, TDC_ANSWER_DUE, expected, ret_reply, fault);
}

static void publication_fill(const struct tdp_published *published,
			     const struct tdc_placement *placement,
			     struct tidl_publication *publication)
{
	*publication = (struct tidl_publication){
		.generation = published->generation,
		.tensor_bytes = placement->tensor_bytes,
		.exposed_bytes = published->exposed_bytes,
		.path = placement->path,
		.reason = placement->reason,
		.copied = placement->path == TIDL_PATH_COPIED,
		.retention = published->retention,
		.survives_restart = published->survives_restart,
		.aliases_previous = published->aliases_previous,
		.tensor_count = placement->tensor_count,
		.copied_count = placement->copied_count,
		.access = placement->access,
		.moved_bytes = placement->move.moved_bytes,
		.neighbour_bytes = placement->move.neighbour_bytes,
	};
}

/* Memory of this client that becomes immutable where it is. */
static bool segment_needs_seal(const struct tdc_segment *segment)
{
	return segment->is_allocated && atomic_load(&segment->access) != TIDL_ACCESS_IMMUTABLE;
}

static int publish_check(struct tidl_client *client, struct publishing *publishing,
			 struct tdp_fault *fault)
{
	tdc_auto_reply *reply = NULL;
	int r;

	publishing->request.publish.check_only = true;
	r = publishing_send(client, publishing, TDP_MESSAGE_DONE, &reply, fault);
	publishing->request.publish.check_only = false;
	return r;
}

/* Sealing cannot be taken back, so the broker is asked first whether anything else is in the way.
 */
static int publish_seal(struct tidl_client *client, const struct tdc_placement *placement,
			struct publishing *publishing, struct tdp_fault *fault)
{
	bool is_checked = false;
	int r = 0;

	if (publishing->request.publish.access != TIDL_ACCESS_IMMUTABLE)
		return 0;
	for (size_t i = 0; r == 0 && i < placement->aliased_count; i++) {
		struct tdc_segment *segment = placement->aliased[i];

		if (!segment_needs_seal(segment))
			continue;
		if (!is_checked)
			r = publish_check(client, publishing, fault);
		is_checked = true;
		if (r == 0)
			r = tdc_seal_in_place(client, segment, fault);
	}
	return r;
}

/* Live memory takes no new writable maps, so the pages of its steps are mapped before. What was
 * moved has no tensor of ours that could make steps. */
static int publish_prepare_steps(struct tidl_client *client, const struct tdc_placement *placement,
				 const struct publishing *publishing, struct tdp_fault *fault)
{
	int r = 0;

	if (publishing->request.publish.access != TIDL_ACCESS_LIVE)
		return 0;
	for (size_t i = 0; r == 0 && i < placement->aliased_count; i++) {
		if (placement->aliased[i]->is_allocated && placement->aliased[i]->moved == NULL)
			r = tdc_steps_prepare(client, placement->aliased[i], fault);
	}
	return r;
}

static void publish_note_access(const struct tdc_placement *placement, enum tidl_access access)
{
	for (size_t i = 0; i < placement->aliased_count; i++)
		atomic_store(&placement->aliased[i]->access, (int)access);
}

static int publish_send(struct tidl_client *client, struct publishing *publishing,
			const struct tdc_placement *placement, struct tdc_reply **ret_reply,
			struct tdp_fault *fault)
{
	int r = publish_seal(client, placement, publishing, fault);

	if (r == 0)
		r = publish_prepare_steps(client, placement, publishing, fault);
	if (r == 0)
		r = publishing_send(client, publishing, TDP_MESSAGE_PUBLISHED, ret_reply, fault);
	return r;
}

/* From a placement to a name. */
static int publish_placed(struct tidl_client *client, struct publishing *publishing,
			  struct tdc_placement *placement, struct tidl_publication *publication,
			  struct tdp_fault *fault)
{
	const char *path = publishing->request.publish.name;
	tdc_auto_reply *reply = NULL;
	struct tdc_naming naming;
	int r = tdc_naming_init(&naming, path, placement->aliased_count, placement->aliased, fault);
	bool is_moved = r == 0 && naming.count > 0;

	if (is_moved)
		tdc_listed_begin(client);
	if (r == 0)
		r = publish_send(client, publishing, placement, &reply, fault);
	if (r == 0) {
		publish_note_access(placement, publishing->request.publish.access);
		if (tdc_placement_hands_over(placement))
			tdc_placement_handed_over(client, placement);
		tdc_pool_settle(client, &reply->message.published);
		publication_fill(&reply->message.published, placement, publication);
		tdc_naming_finish(client, &naming, path, publication->generation,
				  placement->move.moved);
		placement->move.moved = NULL;
	}
	tdc_naming_deinit(&naming);
	if (is_moved)
		tdc_listed_end(client);
	return r;
}

static int publish_content(struct tidl_client *client, const struct tdc_name *name,
			   const struct tdc_content *content,
			   const struct tidl_publish_options *options,
			   struct tidl_publication *ret_publication, struct tdp_fault *fault)
{
	struct publishing publishing = {.manifest_fd = -1};
	struct tdc_placement placement;
	int r = publish_check_owner(client, name, fault);

	if (r == 0)
		r = tdc_placement_init(&placement, client, content, options, fault);
	if (r < 0)
		return r;
	publishing.request = publish_message(name->path, &placement, options);
	r = publishing_add_rows(&publishing, content, &placement, fault);
	if (r == 0)
		r = publish_placed(client, &publishing, &placement, ret_publication, fault);
	(void)tdp_fd_close(publishing.manifest_fd);
	tdc_placement_deinit(client, &placement);
	tdc_listed_ask(client);
	tdc_moved_reap(client);
	return r;
}

/* As much as the caller's version of the struct has room for. */
static void publication_hand_out(struct tidl_publication *publication,
				 struct tidl_publication *ret_publication)
{
	size_t size_bytes;

	if (ret_publication == NULL)
		return;
	size_bytes = ret_publication->size;
	publication->size = size_bytes;
	memcpy(ret_publication, publication,
	       size_bytes < sizeof(*publication) ? size_bytes : sizeof(*publication));
}

int tdc_publish_text(struct tidl_client *client, const char *text,
		     const struct tdc_content *content, const struct tidl_publish_options *options,
		     struct tidl_publication *ret_publication, struct tdp_fault *fault)
{
	struct tidl_publish_options complete = {.size = sizeof(complete)};
	struct tidl_publication publication;
	struct tdc_name name;
	int r;

	if (text == NULL)
		return tdc_refuse_null("name", fault);
	if (ret_publication != NULL && ret_publication->size < sizeof(ret_publication->size))
		return options_refuse("the publication has no valid `size`: set it to the size of "
				      "its struct",
				      fault);
	r = tdc_options_copy(options, &complete, sizeof(complete), fault);
	if (r == 0)
		r = publish_options_check(&complete, fault);
	if (r == 0)
		r = tdc_name_parse(text, &name, fault);
	if (r == 0)
		r = publish_content(client, &name, content, &complete, &publication, fault);
	if (r == 0)
		publication_hand_out(&publication, ret_publication);
	return r;
}
