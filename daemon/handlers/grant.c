/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GRANTED and, for more segments than one packet has descriptors, GET_MORE and MORE. The lease is
 * there from the first part on; a cursor says which lease, and which of its segments come next.
 */
#include "daemon/handlers/grant.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/handlers/handlers.h"
#include "daemon/lease.h"
#include "daemon/limits.h"
#include "daemon/manifest.h"
#include "daemon/registry.h"
#include "daemon/server.h"

static int grant_check_rights(const struct tdd_session *session,
			      const struct tdd_publication *publication, enum tidl_attach attach,
			      struct tdp_fault *fault)
{
	const struct tdd_subject *subject = &session->holder.subject;
	const struct tdd_rights *rights = &publication->rights;

	if (!tdd_policy_may_read(subject, rights))
		return tdp_fault_set(fault, TIDL_ERR_PERMISSION,
				     "\"%s\" of uid %" PRIu32 " has mode %04o, which does not let "
				     "you read it: ask its owner for a wider mode",
				     publication->name, rights->owner_uid, rights->mode);
	if (attach == TIDL_ATTACH_WRITE && !tdd_policy_may_write(subject, rights))
		return tdp_fault_set(fault, TIDL_ERR_PERMISSION,
				     "\"%s\" of uid %" PRIu32 " has mode %04o, which does not let "
				     "you write it: attach it for reading, or ask its owner",
				     publication->name, rights->owner_uid, rights->mode);
	return 0;
}

static int grant_check_access(const struct tdd_publication *publication, enum tidl_attach attach,
			      struct tdp_fault *fault)
{
	if (attach != TIDL_ATTACH_WRITE || publication->access == TIDL_ACCESS_SHARED ||
	    publication->segment_count == 0)
		return 0;
	if (publication->access == TIDL_ACCESS_LIVE)
		return tdp_fault_set(fault, TIDL_ERR_ACCESS,
				     "\"%s\" is live: its producer alone writes it; attach it for "
				     "reading",
				     publication->name);
	return tdp_fault_set(fault, TIDL_ERR_ACCESS,
			     "\"%s\" is immutable: nobody writes it; attach it copy-on-write to "
			     "change it for this process alone",
			     publication->name);
}

/* Pages that were written privately no longer follow the others, so a copy-on-write attachment of
 * memory that somebody writes would be a mixture of old and new. */
static int grant_check_writers(const struct tdd_session *session,
			       const struct tdd_publication *publication,
			       const struct tdd_segment *segment, struct tdp_fault *fault)
{
	const struct tdd_holder *writer = tdd_segment_other_writer(segment, &session->holder);

	if (!writer)
		return 0;
	return tdp_fault_set(fault, TIDL_ERR_BUSY,
			     "process %" PRId64 " can write \"%s\", so it cannot be attached "
			     "copy-on-write: wait until that process has released it, or attach "
			     "it for reading (in Python readonly_ok=True hands that to "
			     "frameworks that would write)",
			     writer->process->pid, publication->name);
}

static int grant_check_segments(const struct tdd_session *session,
				const struct tdd_publication *publication,
				const struct tdd_selection *selection, enum tidl_attach attach,
				struct tdp_fault *fault)
{
	for (size_t i = 0; i < selection->segment_count; i++) {
		size_t number = selection->is_partial ? selection->segment_numbers[i] : i;
		struct tdd_segment *segment = publication->uses[number].segment;
		int r = 0;

		if (attach == TIDL_ATTACH_COPY_ON_WRITE)
			r = grant_check_writers(session, publication, segment, fault);
		else if (attach == TIDL_ATTACH_WRITE)
			r = tdd_segment_seal_for_write(segment, session->holder.process, fault);
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- the answer, in parts ---- */

/* The segments that travel with one packet. */
struct grant_part {
	uint64_t next_cursor; /* 0: the last part */
	uint32_t fd_count;
	size_t segment_count;
	size_t number_count; /* 0, or as many as segments */
	int fds[TDP_PACKET_MAX_FDS];
	struct tdp_segment segments[TDP_PACKET_MAX_FDS];
	uint32_t numbers[TDP_PACKET_MAX_FDS];
};

static uint64_t cursor_make(const struct tdd_hold *lease, size_t position)
{
	return lease->id * TDP_SEGMENTS_PER_PUBLICATION + position;
}

/* As many segments from @position on as the packet has room for, behind descriptors that are in it
 * already. */
static void part_fill(struct grant_part *part, const struct tdd_hold *lease, size_t position)
{
	bool has_numbers = lease->is_partial && lease->publication->manifest;

	part->segment_count = 0;
	for (; position < lease->use_count && part->fd_count < TDP_PACKET_MAX_FDS; position++) {
		const struct tdd_segment *segment = tdd_hold_segment(lease, position);

		part->segments[part->segment_count] = tdd_segment_view(segment);
		part->numbers[part->segment_count++] = lease->uses[position].number;
		part->fds[part->fd_count++] =
			lease->attach == TIDL_ATTACH_WRITE ? segment->write_fd : segment->read_fd;
	}
	part->number_count = has_numbers ? part->segment_count : 0;
	part->next_cursor = position < lease->use_count ? cursor_make(lease, position) : 0;
}

static void part_fill_first(struct grant_part *part, const struct tdd_hold *lease)
{
	part->fd_count = 0;
	if (lease->publication->manifest)
		part->fds[part->fd_count++] = lease->publication->manifest->fd;
	part_fill(part, lease, 0);
}

int tdd_grant_refill(void *context, uint64_t lease_id, int *ret_fds)
{
	const struct tdd_session *session = context;
	const struct tdd_hold *lease = tdd_lease_find(&session->holder, lease_id);
	struct grant_part part;

	if (!lease)
		return -1;
	part_fill_first(&part, lease);
	memcpy(ret_fds, part.fds, part.fd_count * sizeof(part.fds[0]));
	return (int)part.fd_count;
}

static uint32_t publication_segment_owner(const struct tdd_publication *publication)
{
	/* All of them are their publisher's. */
	return publication->segment_count > 0 ? publication->uses[0].segment->creator_uid
					      : publication->rights.owner_uid;
}

static void reply_granted(struct tdd_session *session, uint64_t request_id,
			  const struct tdd_hold *lease, const struct tdd_selection *selection)
{
	const struct tdd_publication *publication = lease->publication;
	struct grant_part part;
	struct tdp_message reply = {
		.kind = TDP_MESSAGE_GRANTED,
		.request_id = request_id,
		.granted = {.lease_id = lease->id,
			    .owner_uid = publication->rights.owner_uid,
			    .segment_owner_uid = publication_segment_owner(publication),
			    .generation = publication->generation,
			    .access = publication->access,
			    .attach = lease->attach,
			    .retention = publication->retention,
			    .tensor_count = selection->tensor_count,
			    .tensors = selection->tensors,
			    .empty_mapping_count = selection->empty_mapping_count,
			    .empty_mappings = selection->empty_mappings,
			    .has_manifest = publication->manifest != NULL,
			    .metadata = publication->metadata},
	};

	part_fill_first(&part, lease);
	reply.granted.segment_count = part.segment_count;
	reply.granted.segments = part.segments;
	reply.granted.segment_number_count = part.number_count;
	reply.granted.segment_numbers = part.numbers;
	reply.granted.next_cursor = part.next_cursor;
	tdd_session_reply_leased(session, &reply, lease->id, part.fd_count);
}

static int grant_selection(struct tdd_session *session, struct tdd_publication *publication,
			   const struct tdd_wish *wish, const struct tdd_selection *selection,
			   struct tdp_fault *fault)
{
	struct tdd_lease_spec spec = {
		.attach = wish->attach,
		.is_partial = selection->is_partial,
		.segment_count = selection->segment_count,
		.segment_numbers = selection->segment_numbers,
	};
	struct tdd_hold *lease;
	int r = grant_check_segments(session, publication, selection, wish->attach, fault);

	if (r < 0)
		return r;
	spec.serial = ++session->server->registry.last_hold_serial;
	r = tdd_lease_new(&session->holder, publication, &spec, &lease, fault);
	if (r < 0)
		return r;
	reply_granted(session, wish->request_id, lease, selection);
	return 0;
}

static int grant_check(const struct tdd_session *session, const struct tdd_publication *publication,
		       enum tidl_attach attach, struct tdp_fault *fault)
{
	int r = grant_check_rights(session, publication, attach, fault);

	return r < 0 ? r : grant_check_access(publication, attach, fault);
}

int tdd_grant(struct tdd_session *session, struct tdd_publication *publication,
	      const struct tdd_wish *wish, struct tdp_fault *fault)
{
	tdp_auto_arena arena;
	struct tdd_selection selection;
	int r;

	tdp_arena_init(&arena, TDD_SELECTION_MAX_BYTES);
	r = grant_check(session, publication, wish->attach, fault);
	if (r == 0)
		r = tdd_select(publication, &wish->keys, &arena, &selection, fault);
	return r < 0 ? r : grant_selection(session, publication, wish, &selection, fault);
}

/* ---- in several turns ---- */

/* What a request that looks for its keys remembers. */
struct grant_search {
	struct tdd_wish wish;
	struct tdd_reader *reader; /* so that the publication stays */
	struct tdp_arena arena;
	struct tdd_search search;
	bool is_done;
};

static void grant_search_free(void *state)
{
	struct grant_search *grant = state;

	tdd_search_deinit(&grant->search);
	tdp_arena_deinit(&grant->arena);
	if (grant->reader)
		tdd_reader_leave(grant->reader);
	free(grant);
}

static int grant_search_new(struct tdd_session *session, struct tdd_publication *publication,
			    const struct tdd_wish *wish, struct tdp_fault *fault)
{
	struct grant_search *grant = malloc(sizeof(*grant));
	int r;

	if (!grant)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	grant->wish = *wish;
	grant->reader = NULL;
	grant->is_done = false;
	tdp_arena_init(&grant->arena, TDD_SELECTION_MAX_BYTES);
	r = tdd_search_init(&grant->search, publication, &wish->keys, &grant->arena, fault);
	if (r == 0) {
		grant->reader = tdd_reader_take(&session->holder, publication);
		r = grant->reader ? 0 : tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	}
	if (r < 0) {
		grant_search_free(grant);
		return r;
	}
	session->request->state = grant;
	session->request->free_state = grant_search_free;
	return 0;
}

/* So that it can be done at once. */
static bool grant_is_short(const struct tdd_publication *publication, const struct tdd_wish *wish)
{
	size_t count = wish->keys.count + publication->tensor_count;

	return wish->keys.count == 0 || count < TDD_SLICE_STEPS / TDD_ROW_STEPS;
}

int tdd_grant_begin(struct tdd_session *session, struct tdd_publication *publication,
		    const struct tdd_wish *wish, struct tdp_fault *fault)
{
	int r;

	if (grant_is_short(publication, wish))
		return tdd_grant(session, publication, wish, fault);
	if (!tdd_turns_may_begin(&session->server->turns))
		return TDD_WORK_LEFT;
	r = grant_check(session, publication, wish->attach, fault);
	if (r == 0)
		r = grant_search_new(session, publication, wish, fault);
	return r < 0 ? r : tdd_grant_go_on(session, fault);
}

int tdd_grant_go_on(struct tdd_session *session, struct tdp_fault *fault)
{
	struct grant_search *grant = session->request->state;
	int r = grant->is_done ? 0 : tdd_search_go_on(&grant->search, fault);

	if (r != 0)
		return r;
	grant->is_done = true;
	return grant_selection(session, grant->reader->publication, &grant->wish,
			       &grant->search.selection, fault);
}

/* ---- GET_MORE ---- */

int tdd_handle_get_more(struct tdd_session *session, const struct tdp_message *request,
			struct tdp_fault *fault)
{
	uint64_t cursor = request->get_more.cursor;
	size_t position = cursor % TDP_SEGMENTS_PER_PUBLICATION;
	const struct tdd_hold *lease =
		tdd_lease_find(&session->holder, cursor / TDP_SEGMENTS_PER_PUBLICATION);
	struct tdp_message reply = {.kind = TDP_MESSAGE_MORE, .request_id = request->request_id};
	struct grant_part part;

	if (!lease || position == 0 || position >= lease->use_count)
		return tdp_fault_set(fault, TIDL_ERR_NOT_FOUND,
				     "there is nothing behind cursor %" PRIu64
				     " (any more): get it again",
				     cursor);
	part.fd_count = 0;
	part_fill(&part, lease, position);
	reply.more = (struct tdp_more){
		.next_cursor = part.next_cursor,
		.segment_count = part.segment_count,
		.segments = part.segments,
		.segment_number_count = part.number_count,
		.segment_numbers = part.numbers,
	};
	tdd_session_reply(session, &reply, part.fds, part.fd_count);
	return 0;
}
