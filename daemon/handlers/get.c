/* SPDX-License-Identifier: Apache-2.0 */
/* GET and CANCEL: attach by name, now or when the name appears. */
#include <inttypes.h>

#include "daemon/handlers/grant.h"
#include "daemon/handlers/handlers.h"
#include "daemon/publication.h"
#include "daemon/registry.h"
#include "daemon/server.h"
#include "daemon/waiter.h"
#include "daemon/writer_watch.h"
#include "proto/names.h"

/* The name that a parked request waits for has been published. */
static void get_wake(struct tdd_waiter *waiter, struct tdd_publication *publication)
{
	struct tdd_session *session = waiter->context;
	struct tdd_wish wish = {
		.request_id = waiter->request_id,
		.attach = waiter->attach,
		.keys = waiter->keys,
	};
	struct tdp_fault fault;

	if (session->state == TDD_SESSION_CLOSING ||
	    !tdd_policy_may_see(&session->holder.subject, &publication->rights))
		return;
	/* Its keys are needed until it is answered. */
	if (tdd_grant(session, publication, &wish, &fault) < 0)
		tdd_session_reply_failure(session, wish.request_id, &fault);
	tdd_waiter_free(waiter);
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
		.keys = {request->get.key_count, request->get.keys},
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
	struct tdd_wish wish = {
		.request_id = request->request_id,
		.attach = get->attach,
		.keys = {get->key_count, get->keys},
	};
	uint32_t owner_uid = tdd_lookup_owner(session, get->has_owner, get->owner_uid);
	struct tdd_publication *publication;
	int r;

	if (session->request->state)
		return tdd_grant_go_on(session, fault);
	r = tdp_name_check(get->name, fault);
	if (r < 0)
		return r;
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
		return tdd_grant_begin(session, publication, &wish, fault);
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
