/* SPDX-License-Identifier: Apache-2.0 */
/* GET and CANCEL: attach by name, now or when the name appears. */
#include <inttypes.h>

#include "daemon/handlers/handlers.h"
#include "daemon/lease.h"
#include "daemon/limits.h"
#include "daemon/publication.h"
#include "daemon/registry.h"
#include "daemon/server.h"
#include "daemon/waiter.h"
#include "daemon/writer_watch.h"
#include "proto/names.h"

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
			       const struct tdd_publication *publication, struct tdp_fault *fault)
{
	for (size_t i = 0; i < publication->segment_count; i++) {
		const struct tdd_holder *writer =
			tdd_segment_other_writer(publication->uses[i].segment, &session->holder);

		if (writer)
			return tdp_fault_set(fault, TIDL_ERR_BUSY,
					     "process %" PRId64 " can write \"%s\", so it cannot "
					     "be attached copy-on-write: wait until that process "
					     "has released it, or attach it for reading (in Python "
					     "readonly_ok=True hands that to frameworks that would "
					     "write)",
					     writer->process->pid, publication->name);
	}
	return 0;
}

static int grant_seal(const struct tdd_session *session, const struct tdd_publication *publication,
		      struct tdp_fault *fault)
{
	for (size_t i = 0; i < publication->segment_count; i++) {
		int r = tdd_segment_seal_for_write(publication->uses[i].segment,
						   session->holder.process, fault);

		if (r < 0)
			return r;
	}
	return 0;
}

static void reply_granted(struct tdd_session *session, uint64_t request_id,
			  const struct tdd_hold *lease)
{
	const struct tdd_publication *publication = lease->publication;
	struct tdp_segment segments[TDD_SEGMENTS_PER_PUBLICATION];
	int fds[TDD_SEGMENTS_PER_PUBLICATION];
	struct tdp_message reply = {
		.kind = TDP_MESSAGE_GRANTED,
		.request_id = request_id,
		.granted = {.lease_id = lease->id,
			    .owner_uid = publication->rights.owner_uid,
			    .generation = publication->generation,
			    .access = publication->access,
			    .attach = lease->attach,
			    .retention = publication->retention,
			    .segment_count = publication->segment_count,
			    .segments = segments,
			    .tensor_count = publication->tensor_count,
			    .tensors = publication->tensors,
			    .metadata = publication->metadata},
	};

	for (size_t i = 0; i < publication->segment_count; i++) {
		const struct tdd_segment *segment = publication->uses[i].segment;

		segments[i] = tdd_segment_view(segment);
		fds[i] = lease->attach == TIDL_ATTACH_WRITE ? segment->write_fd : segment->read_fd;
		reply.granted.segment_owner_uid = segment->creator_uid;
	}
	tdd_session_reply(session, &reply, fds, (uint32_t)publication->segment_count);
}

static int get_grant(struct tdd_session *session, uint64_t request_id,
		     struct tdd_publication *publication, enum tidl_attach attach,
		     struct tdp_fault *fault)
{
	struct tdd_registry *registry = &session->server->registry;
	struct tdd_hold *lease;
	int r = grant_check_rights(session, publication, attach, fault);

	if (r == 0)
		r = grant_check_access(publication, attach, fault);
	if (r == 0 && attach == TIDL_ATTACH_COPY_ON_WRITE)
		r = grant_check_writers(session, publication, fault);
	if (r == 0 && attach == TIDL_ATTACH_WRITE)
		r = grant_seal(session, publication, fault);
	if (r < 0)
		return r;
	r = tdd_lease_new(&session->holder, publication, attach, ++registry->last_hold_serial,
			  &lease, fault);
	if (r < 0)
		return r;
	reply_granted(session, request_id, lease);
	return 0;
}

/* The name that a parked request waits for has been published. */
static void get_wake(struct tdd_waiter *waiter, struct tdd_publication *publication)
{
	struct tdd_session *session = waiter->context;
	uint64_t request_id = waiter->request_id;
	enum tidl_attach attach = waiter->attach;
	struct tdp_fault fault;

	if (session->state == TDD_SESSION_CLOSING ||
	    !tdd_policy_may_see(&session->holder.subject, &publication->rights))
		return;
	tdd_waiter_free(waiter);
	if (get_grant(session, request_id, publication, attach, &fault) < 0)
		tdd_session_reply_failure(session, request_id, &fault);
}

static int get_park(struct tdd_session *session, const struct tdp_message *request,
		    uint32_t owner_uid, struct tdp_fault *fault)
{
	struct tdd_waiter_spec spec = {
		.owner_uid = owner_uid,
		.name = request->get.name,
		.request_id = request->request_id,
		.attach = request->get.attach,
		.newer_than = request->get.newer_than,
		.wake = get_wake,
		.context = session,
	};

	return tdd_waiter_park(&session->server->registry, &session->holder, &spec, fault);
}

static int get_gone(const struct tdp_get *get, struct tdp_fault *fault)
{
	return tdp_fault_set(fault, TIDL_ERR_GENERATION_GONE,
			     "generation %" PRIu64 " of \"%s\" is not published (not any more, or "
			     "not yet): get it without a generation",
			     get->generation, get->name);
}

static int get_nothing_newer(const struct tdp_get *get, struct tdp_fault *fault)
{
	return tdp_fault_set(fault, TIDL_ERR_NOT_FOUND,
			     "\"%s\" has no generation later than %" PRIu64
			     " yet: wait for one with a time-out",
			     get->name, get->newer_than);
}

int tdd_handle_get(struct tdd_session *session, const struct tdp_message *request,
		   struct tdp_fault *fault)
{
	const struct tdp_get *get = &request->get;
	uint32_t owner_uid = tdd_lookup_owner(session, get->has_owner, get->owner_uid);
	struct tdd_publication *publication;
	int r = tdp_name_check(get->name, fault);

	if (r < 0)
		return r;
	if (get->key_count > 0)
		return tdp_fault_set(fault, TIDL_ERR_UNSUPPORTED,
				     "getting parts of \"%s\" is not built in this version: get "
				     "all of it",
				     get->name);
	if (get->generation != 0 && get->newer_than != 0)
		return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT,
				     "\"%s\" was asked for by generation %" PRIu64
				     " and by what is newer: choose one",
				     get->name, get->generation);
	publication = tdd_lookup_generation(session, owner_uid, get->name, get->generation);
	/* A number never comes twice, and nobody can know a future one: no waiting. */
	if (get->generation != 0 && (!publication || !tdd_publication_is_attachable(publication)))
		return get_gone(get, fault);
	if (publication && publication->generation > get->newer_than)
		return get_grant(session, request->request_id, publication, get->attach, fault);
	if (get->wait)
		return get_park(session, request, owner_uid, fault);
	return publication ? get_nothing_newer(get, fault)
			   : tdd_lookup_not_found(session, owner_uid, get->name, fault);
}

int tdd_handle_cancel(struct tdd_session *session, const struct tdp_message *request,
		      struct tdp_fault *fault)
{
	uint64_t request_id = request->cancel.request_id;
	struct tdd_waiter *waiter = tdd_waiter_find(&session->holder, request_id);
	struct tdd_writer_watch *watch = tdd_writer_watch_find(&session->holder, request_id);

	/* Not waiting: its answer is on the way. */
	if (!waiter && !watch)
		return 0;
	tdd_waiter_free(waiter);
	tdd_writer_watch_free(watch);
	tdp_fault_code(fault, TIDL_ERR_CANCELLED);
	tdd_session_reply_failure(session, request_id, fault);
	return 0;
}
