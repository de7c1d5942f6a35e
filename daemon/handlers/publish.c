/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PUBLISH: everything is checked first, then one step that cannot fail makes it visible. A refusal
 * leaves no trace.
 */
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "daemon/handlers/handlers.h"
#include "daemon/lease.h"
#include "daemon/limits.h"
#include "daemon/publication.h"
#include "daemon/registry.h"
#include "daemon/server.h"
#include "daemon/waiter.h"
#include "proto/base/checked.h"
#include "proto/names.h"
#include "proto/tensor/layout.h"

/* What the checks find out. */
struct draft {
	struct tdd_publication_spec spec;
	struct tdd_segment *segments[TDD_SEGMENTS_PER_PUBLICATION];
	bool is_used[TDD_SEGMENTS_PER_PUBLICATION];
};

static int check_is_built(const struct tdp_publish *publish, struct tdp_fault *fault)
{
	const char *what = NULL;

	if (publish->tensor_count != 1 || publish->segment_count > TDD_SEGMENTS_PER_PUBLICATION ||
	    publish->tensors[0].key[0] != '\0')
		what = "bundles (several tensors, or several segments, under one name) are";
	else if (publish->access != TIDL_ACCESS_SHARED)
		what = "access other than \"shared\" is";
	else if (publish->retention == TIDL_RETENTION_SECONDS)
		what = "retention in seconds is";
	else if (publish->keep > 1)
		what = "keeping replaced generations is";
	else if (publish->has_unbuilt)
		what = "something that this publish asks for is";
	if (!what)
		return 0;
	return tdp_fault_set(fault, TIDL_ERR_UNSUPPORTED,
			     "%s not built in this version, so \"%s\" was not published", what,
			     publish->name);
}

/* How deep objects and arrays lie in each other; brackets in texts do not count. */
static unsigned json_depth(const char *json)
{
	unsigned depth = 0, deepest = 0;
	bool is_text = false;

	for (; *json != '\0'; json++) {
		if (is_text && *json == '\\' && json[1] != '\0')
			json++;
		else if (*json == '"')
			is_text = !is_text;
		else if (!is_text && (*json == '[' || *json == '{'))
			deepest = ++depth > deepest ? depth : deepest;
		else if (!is_text && (*json == ']' || *json == '}') && depth > 0)
			depth--;
	}
	return deepest;
}

static int check_metadata(const char *metadata, struct tdp_fault *fault)
{
	json_error_t error;
	json_t *json;
	bool is_object;

	if (!metadata)
		return 0;
	if (strlen(metadata) > TDP_METADATA_MAX_BYTES)
		return tdp_fault_set(fault, TIDL_ERR_METADATA,
				     "metadata has %zu bytes and may have %d: publish large values "
				     "as tensors",
				     strlen(metadata), TDP_METADATA_MAX_BYTES);
	if (json_depth(metadata) > TDP_METADATA_MAX_DEPTH)
		return tdp_fault_set(fault, TIDL_ERR_METADATA,
				     "metadata is more than %d levels deep: flatten it",
				     TDP_METADATA_MAX_DEPTH);
	json = json_loads(metadata, JSON_DECODE_INT_AS_REAL, &error);
	if (!json)
		return tdp_fault_set(fault, TIDL_ERR_METADATA,
				     "metadata is not JSON: %s at byte %d", error.text,
				     error.position);
	is_object = json_is_object(json);
	json_decref(json);
	if (!is_object)
		return tdp_fault_set(fault, TIDL_ERR_METADATA,
				     "metadata is JSON, but no object: write {\"key\": value}");
	return 0;
}

static int check_rights(const struct tdd_session *session, const struct tdp_publish *publish,
			struct tdd_rights *ret_rights, struct tdp_fault *fault)
{
	const struct tdd_subject *subject = &session->holder.subject;
	uint32_t gid = publish->has_gid ? publish->gid : subject->gid;

	if (publish->mode & ~(uint32_t)TDD_MODE_MASK)
		return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT,
				     "mode %04o of \"%s\" has bits other than read and write: "
				     "choose from 0666",
				     publish->mode, publish->name);
	if (subject->uid != 0 && !tdd_subject_is_in_group(subject, gid))
		return tdp_fault_set(fault, TIDL_ERR_PERMISSION,
				     "you are not in group %" PRIu32
				     ", so \"%s\" cannot be published for it",
				     gid, publish->name);
	*ret_rights =
		(struct tdd_rights){.owner_uid = subject->uid, .gid = gid, .mode = publish->mode};
	return 0;
}

static int check_segment(const struct tdd_session *session, const struct tdp_publish *publish,
			 const struct tdp_segment *asked, struct tdd_segment **ret_segment,
			 struct tdp_fault *fault)
{
	const struct tdd_holder *holder = &session->holder;
	struct tdd_segment *segment;

	if (asked->kind != TDP_SEGMENT_MEMFD)
		return tdp_fault_set(
			fault, TIDL_ERR_UNSUPPORTED,
			"device memory is not built in this version, so \"%s\" was not "
			"published: copy it to the host",
			publish->name);
	segment = tdd_segment_find(session->server->registry.segments, asked->id);
	if (!segment || segment->creator_uid != holder->subject.uid ||
	    !tdd_holder_has_segment(holder, segment))
		return tdp_fault_set(fault, TIDL_ERR_PERMISSION,
				     "segment %" PRIu64 " is not this connection's to publish: "
				     "allocate it or attach it here, under its creator's uid, or "
				     "publish a copy",
				     asked->id);
	if (segment->access != 0 && segment->access != publish->access)
		return tdp_fault_set(fault, TIDL_ERR_ACCESS,
				     "the memory of \"%s\" is published with another access "
				     "already: publish a copy",
				     publish->name);
	*ret_segment = segment;
	return 0;
}

static int check_segments(const struct tdd_session *session, const struct tdp_publish *publish,
			  struct draft *draft, struct tdp_fault *fault)
{
	for (size_t i = 0; i < publish->segment_count; i++) {
		int r = check_segment(session, publish, &publish->segments[i], &draft->segments[i],
				      fault);

		if (r < 0)
			return r;
	}
	return 0;
}

/* The bytes of its segment that a tensor may touch: the data, never the control page. */
static int find_window(const struct tdp_publish *publish, const struct tdp_tensor *tensor,
		       struct draft *draft, struct tdp_memfd_geometry *ret_window,
		       struct tdp_fault *fault)
{
	*ret_window = (struct tdp_memfd_geometry){0};
	if (tensor->segment_index < 0)
		return 0;
	if ((uint64_t)tensor->segment_index >= publish->segment_count)
		return tdp_fault_set(fault, TIDL_ERR_LAYOUT,
				     "the tensor of \"%s\" lies in segment %" PRId64
				     " of %zu: count from 0",
				     publish->name, tensor->segment_index, publish->segment_count);
	draft->is_used[tensor->segment_index] = true;
	*ret_window = draft->segments[tensor->segment_index]->geometry;
	return 0;
}

static int check_tensor(const struct tdp_publish *publish, const struct tdp_tensor *tensor,
			struct draft *draft, struct tdp_fault *fault)
{
	struct tdp_layout layout = {
		.dtype = tensor->dtype,
		.ndim = tensor->ndim,
		.shape = tensor->shape,
		.strides = tensor->strides,
		.byte_offset = tensor->byte_offset,
		.flags = tensor->flags,
	};
	struct tdp_memfd_geometry window;
	struct tdp_extent extent;
	int r = find_window(publish, tensor, draft, &window, fault);

	if (r < 0)
		return r;
	r = tdp_layout_check(&layout, window.data_offset_bytes,
			     window.data_offset_bytes + window.data_size_bytes, &extent, fault);
	if (r < 0)
		return r;
	if (extent.is_empty && tensor->segment_index >= 0)
		return tdp_fault_set(fault, TIDL_ERR_LAYOUT,
				     "the tensor of \"%s\" has no elements, but a segment: publish "
				     "it without",
				     publish->name);
	if (!tdp_add_u64(draft->spec.tensor_bytes, extent.nbytes, &draft->spec.tensor_bytes))
		return tdp_fault_set(fault, TIDL_ERR_LAYOUT,
				     "the tensors of \"%s\" are larger than any memory",
				     publish->name);
	return 0;
}

static int check_tensors(const struct tdp_publish *publish, struct draft *draft,
			 struct tdp_fault *fault)
{
	for (size_t i = 0; i < publish->tensor_count; i++) {
		int r = check_tensor(publish, &publish->tensors[i], draft, fault);

		if (r < 0)
			return r;
	}
	for (size_t i = 0; i < publish->segment_count; i++) {
		if (!draft->is_used[i])
			return tdp_fault_set(fault, TIDL_ERR_LAYOUT,
					     "segment %" PRIu64 " of \"%s\" is used by no tensor: "
					     "leave it out",
					     draft->segments[i]->id, publish->name);
	}
	return 0;
}

/* Readers map whole segments. Who may read only because of wider mode bits should not get more than
 * the tensor unless the publisher says so; the rest of its last page does not count. */
static int check_exposure(const struct tdp_publish *publish, const struct draft *draft,
			  struct tdp_fault *fault)
{
	uint64_t exposed_bytes = 0;
	uint64_t tensor_bytes;

	if (publish->expose || !(publish->mode & TDD_MODE_OTHERS))
		return 0;
	for (size_t i = 0; i < publish->segment_count; i++)
		exposed_bytes += draft->segments[i]->geometry.data_size_bytes;
	if (tdp_round_up_u64(draft->spec.tensor_bytes, tdp_page_bytes(), &tensor_bytes) &&
	    exposed_bytes <= tensor_bytes)
		return 0;
	return tdp_fault_set(fault, TIDL_ERR_COPY_NEEDED,
			     "mode %04o of \"%s\" would show %" PRIu64
			     " bytes to others, while the "
			     "tensor has %" PRIu64 ": publish a copy, or ask to expose all",
			     publish->mode, publish->name, exposed_bytes, draft->spec.tensor_bytes);
}

static int check_retention(const struct tdd_session *session, const struct tdp_publish *publish,
			   enum tidl_retention *ret_retention, struct tdp_fault *fault)
{
	if (publish->retention == TIDL_RETENTION_UNTIL_IDLE)
		return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT,
				     "retention \"until-idle\" of \"%s\" cannot be asked for: ask "
				     "for \"persist\"",
				     publish->name);
	if (publish->retention == TIDL_RETENTION_OWNER)
		*ret_retention = TIDL_RETENTION_OWNER;
	else if (session->server->config.is_private)
		*ret_retention = TIDL_RETENTION_UNTIL_IDLE;
	else
		*ret_retention = TIDL_RETENTION_PERSIST;
	return 0;
}

static int check_publish(const struct tdd_session *session, const struct tdp_publish *publish,
			 struct draft *draft, struct tdp_fault *fault)
{
	struct tdd_publication_spec *spec = &draft->spec;
	int r = tdp_name_check(publish->name, fault);

	spec->name = publish->name;
	spec->access = publish->access;
	spec->path = publish->path;
	spec->metadata = publish->metadata;
	spec->segment_count = publish->segment_count;
	spec->segments = draft->segments;
	spec->tensor_count = publish->tensor_count;
	spec->tensors = publish->tensors;
	if (r == 0)
		r = check_is_built(publish, fault);
	if (r == 0)
		r = check_retention(session, publish, &spec->retention, fault);
	if (r == 0)
		r = check_rights(session, publish, &spec->rights, fault);
	if (r == 0)
		r = check_metadata(publish->metadata, fault);
	if (r == 0)
		r = check_segments(session, publish, draft, fault);
	if (r == 0)
		r = check_tensors(publish, draft, fault);
	if (r == 0)
		r = check_exposure(publish, draft, fault);
	return r;
}

/* The creator pays again for what it lists again. */
static int reclaim_segments(struct tdd_session *session, const struct draft *draft,
			    struct tdp_fault *fault)
{
	for (size_t i = 0; i < draft->spec.segment_count; i++) {
		int r = tdd_segment_reclaim(draft->segments[i],
					    tdd_holder_uid_account(&session->holder), fault);

		if (r < 0)
			return r;
	}
	return 0;
}

static void settle_segments(const struct draft *draft)
{
	for (size_t i = 0; i < draft->spec.segment_count; i++)
		tdd_segment_settle(draft->segments[i]);
}

/* Everything that can fail for want of memory or quota. Nothing is visible yet. */
static int prepare(struct tdd_session *session, const struct draft *draft, bool replace,
		   struct tdd_name **ret_entry, struct tdd_publication **ret_publication,
		   struct tdp_fault *fault)
{
	struct tdd_registry *registry = &session->server->registry;
	struct tdd_name *entry = NULL;
	int r = tdd_registry_claim(registry, draft->spec.rights.owner_uid, draft->spec.name, &entry,
				   fault);

	if (r != 0)
		return r;
	if (entry->current && !replace)
		r = tdp_fault_set(fault, TIDL_ERR_EXISTS,
				  "\"%s\" is published already (generation %" PRIu64
				  "): ask to replace it, remove it, or choose another name",
				  draft->spec.name, entry->current->generation);
	if (r == 0)
		r = reclaim_segments(session, draft, fault);
	if (r == 0)
		r = tdd_publication_new(&draft->spec, &session->holder, ret_publication, fault);
	if (r != 0) {
		settle_segments(draft);
		tdd_registry_unclaim(registry, entry);
		return r;
	}
	*ret_entry = entry;
	return 0;
}

static void commit(struct tdd_session *session, struct tdd_name *entry,
		   struct tdd_publication *publication, struct tdp_published *published)
{
	struct tdd_holder *holder = &session->holder;
	const struct tdd_publication *previous = entry->current;

	*published = (struct tdp_published){
		.retention = publication->retention,
		.exposed_bytes = publication->exposed_bytes,
		.aliases_previous =
			previous && tdd_publication_shares_segment(publication, previous),
		.replaced_generation = previous ? previous->generation : 0,
	};
	for (size_t i = 0; i < publication->segment_count; i++)
		publication->uses[i].segment->access = publication->access;
	tdd_registry_list(&session->server->registry, entry, publication);
	published->generation = publication->generation;
	if (publication->retention == TIDL_RETENTION_OWNER) {
		publication->owner = holder;
		DL_APPEND2(holder->owned, publication, owner_prev, owner_next);
	}
}

/* The publisher cannot write any more, which must be so before anybody gets the name: a waiting
 * copy-on-write get would be refused for it otherwise. */
static void hand_over(struct tdd_session *session, const struct draft *draft)
{
	for (size_t i = 0; i < draft->spec.segment_count; i++)
		tdd_hold_free(tdd_allocation_find(&session->holder, draft->segments[i]->id));
}

int tdd_handle_publish(struct tdd_session *session, const struct tdp_message *request,
		       struct tdp_fault *fault)
{
	struct tdp_message reply = {.kind = TDP_MESSAGE_PUBLISHED,
				    .request_id = request->request_id};
	struct draft draft = {0};
	struct tdd_publication *publication = NULL;
	struct tdd_name *entry = NULL;
	int r = check_publish(session, &request->publish, &draft, fault);

	if (r == 0)
		r = prepare(session, &draft, request->publish.replace, &entry, &publication, fault);
	if (r != 0)
		return r;
	commit(session, entry, publication, &reply.published);
	if (request->publish.hands_over)
		hand_over(session, &draft);
	tdd_session_reply(session, &reply, NULL, 0);
	tdd_waiters_wake(publication);
	return 0;
}
