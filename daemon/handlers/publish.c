/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PUBLISH: everything is checked first (publish_check.c), then one step that cannot fail makes it
 * visible. A refusal leaves no trace.
 */
#include "daemon/handlers/publish.h"

#include <inttypes.h>
#include <stdlib.h>

#include "daemon/access.h"
#include "daemon/handlers/handlers.h"
#include "daemon/lease.h"
#include "daemon/pool.h"
#include "daemon/registry.h"
#include "daemon/server.h"
#include "daemon/waiter.h"

/* The creator pays again for what it lists again. */
static int reclaim_segments(struct tdd_session *session, const struct tdd_draft *draft,
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

static void settle_segments(const struct tdd_draft *draft)
{
	for (size_t i = 0; i < draft->spec.segment_count; i++)
		tdd_segment_settle(draft->segments[i]);
}

/* Everything that can fail for want of memory or quota. Nothing is visible yet. */
static int prepare(struct tdd_session *session, struct tdd_draft *draft, bool replace,
		   struct tdd_name **ret_entry, struct tdd_publication **ret_publication,
		   struct tdp_fault *fault)
{
	struct tdd_registry *registry = &session->server->registry;
	struct tdd_name *entry = NULL;
	int r = tdd_registry_claim(registry, draft->spec.rights.owner_uid, draft->spec.name, &entry,
				   fault);

	if (r != 0)
		return r;
	/* Whoever starts again in the place of an owner that has died need not know of it. */
	if (entry->current && !replace && !tdd_publication_is_orphaned(entry->current))
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
	draft->manifest = NULL;
	*ret_entry = entry;
	return 0;
}

static void commit(struct tdd_session *session, struct tdd_name *entry,
		   struct tdd_publication *publication, uint32_t keep,
		   struct tdp_published *published)
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
		tdd_access_settle(publication->uses[i].segment, publication->access);
	tdd_registry_list(&session->server->registry, entry, publication, keep);
	published->generation = publication->generation;
	if (publication->retention == TIDL_RETENTION_OWNER) {
		publication->owner = holder;
		DL_APPEND2(holder->owned, publication, owner_prev, owner_next);
	}
}

/* A publication that does not come about after all. */
static void undo(struct tdd_session *session, struct tdd_name *entry,
		 struct tdd_publication *publication)
{
	tdd_publication_settle(publication);
	tdd_registry_unclaim(&session->server->registry, entry);
}

/* The last thing that can go wrong, since it cannot be taken back. */
static int seal(const struct tdd_publication *publication, struct tdp_fault *fault)
{
	for (size_t i = 0; i < publication->segment_count; i++) {
		int r = tdd_access_seal(publication->uses[i].segment, publication->access, fault);

		if (r < 0)
			return r;
	}
	return 0;
}

/* The publisher cannot write any more, which must be so before anybody gets the name: a waiting
 * copy-on-write get would be refused for it otherwise. */
static void hand_over(struct tdd_session *session, const struct tdd_draft *draft, bool keeps_pooled,
		      struct tdd_pool_news *news)
{
	struct tdd_holder *holder = &session->holder;

	for (size_t i = 0; i < draft->spec.segment_count; i++) {
		uint64_t id = draft->segments[i]->id;
		struct tdd_hold *allocation = tdd_allocation_find(holder, id);

		/* The copies of one publish lie in one segment. */
		if (keeps_pooled && i == 0 &&
		    !(allocation && tdd_pool_keep(holder, draft->segments[i])))
			news->dropped_ids[news->dropped_count++] = id;
		tdd_hold_free(allocation);
	}
}

/* Only for display, and only of what the packet names: a manifest leaves it out. */
static void note_huge_pages(const struct tdd_draft *draft)
{
	const struct tdp_publish *publish = draft->publish;

	for (size_t i = 0; i < publish->segment_count; i++) {
		struct tdd_segment *segment = draft->segments[i];
		uint64_t huge_bytes = publish->segments[i].huge_bytes;

		segment->huge_bytes = huge_bytes < segment->geometry.data_size_bytes
					      ? huge_bytes
					      : segment->geometry.data_size_bytes;
	}
}

static void tell_of_pool(const struct tdd_pool_news *news, struct tdp_published *published)
{
	published->returned_count = news->returned_count;
	published->returned_ids = news->returned_ids;
	published->dropped_count = news->dropped_count;
	published->dropped_ids = news->dropped_ids;
}

static int publish(struct tdd_session *session, struct tdd_draft *draft, struct tdp_fault *fault)
{
	const struct tdp_publish *request = draft->publish;
	struct tdp_message reply = {.kind = TDP_MESSAGE_PUBLISHED,
				    .request_id = session->request->message.request_id};
	struct tdd_pool_news news = {.returned_count = 0};
	struct tdd_publication *publication = NULL;
	struct tdd_name *entry = NULL;
	int r = tdd_draft_check(draft, fault);

	if (r == 0)
		r = prepare(session, draft, request->replace, &entry, &publication, fault);
	if (r != 0)
		return r;
	if (!request->check_only)
		r = seal(publication, fault);
	if (r != 0 || request->check_only) {
		undo(session, entry, publication);
		if (r == 0)
			tdd_session_reply_done(session, reply.request_id);
		return r;
	}
	commit(session, entry, publication, request->keep, &reply.published);
	note_huge_pages(draft);
	if (request->hands_over)
		hand_over(session, draft, request->keeps_pooled, &news);
	tdd_pool_collect(&session->holder, &session->server->registry.last_hold_serial, &news);
	tell_of_pool(&news, &reply.published);
	tdd_session_reply(session, &reply, NULL, 0);
	tdd_waiters_wake(publication);
	return 0;
}

static void draft_free(void *state)
{
	tdd_draft_deinit(state);
	free(state);
}

/* The draft stays from turn to turn. */
static int publish_manifest(struct tdd_session *session, struct tdp_fault *fault)
{
	struct tdd_request *request = session->request;
	struct tdd_draft *draft = request->state;

	if (!draft && !tdd_turns_may_begin(&session->server->turns))
		return TDD_WORK_LEFT;
	if (!draft) {
		draft = malloc(sizeof(*draft));
		if (!draft)
			return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
		tdd_draft_init(draft, session, &request->message.publish);
		request->state = draft;
		request->free_state = draft_free;
	}
	return publish(session, draft, fault);
}

static int publish_rows(struct tdd_session *session, struct tdp_fault *fault)
{
	tdd_auto_draft draft;

	tdd_draft_init(&draft, session, &session->request->message.publish);
	return publish(session, &draft, fault);
}

int tdd_handle_publish(struct tdd_session *session, const struct tdp_message *request,
		       struct tdp_fault *fault)
{
	int r = 0;

	if (!request->publish.has_manifest)
		return publish_rows(session, fault);
	if (session->request->fd < 0 && !session->request->state)
		r = tdd_manifest_arrive(session, fault);
	return r < 0 ? r : publish_manifest(session, fault);
}
