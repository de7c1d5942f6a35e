/* SPDX-License-Identifier: Apache-2.0 */
/* WAIT: for a later generation of a name, or for the end of all leases and pins on one. */
#include <inttypes.h>

#include "daemon/handlers/handlers.h"
#include "daemon/publication.h"
#include "daemon/reader.h"
#include "daemon/registry.h"
#include "daemon/server.h"
#include "daemon/waiter.h"
#include "proto/names.h"

static void reply_waited(struct tdd_session *session, uint64_t request_id, uint32_t owner_uid,
			 uint64_t generation)
{
	struct tdp_message reply = {
		.kind = TDP_MESSAGE_WAITED,
		.request_id = request_id,
		.waited = {.generation = generation, .owner_uid = owner_uid},
	};

	tdd_session_reply(session, &reply, NULL, 0);
}

/* The name has a publication, which may be another one than those that were there before. */
static void wait_wake(struct tdd_waiter *waiter, struct tdd_publication *publication)
{
	struct tdd_session *session = waiter->context;
	uint64_t request_id = waiter->request_id;

	if (session->state == TDD_SESSION_CLOSING ||
	    !tdd_policy_may_see(&session->holder.subject, &publication->rights))
		return;
	tdd_waiter_free(waiter);
	reply_waited(session, request_id, publication->rights.owner_uid, publication->generation);
}

/* The publication may be gone after this, so nobody goes on waiting for it. */
static void wait_wake_released(struct tdd_waiter *waiter, struct tdd_publication *publication)
{
	struct tdd_session *session = waiter->context;
	uint64_t request_id = waiter->request_id;

	tdd_waiter_free(waiter);
	reply_waited(session, request_id, publication->rights.owner_uid, publication->generation);
}

static int wait_park(struct tdd_session *session, const struct tdp_message *request,
		     uint32_t owner_uid, struct tdd_publication *publication,
		     struct tdp_fault *fault)
{
	struct tdd_waiter_spec spec = {
		.owner_uid = owner_uid,
		.name = request->wait.name,
		.publication = publication,
		.request_id = request->request_id,
		.newer_than = request->wait.newer_than,
		.wake = publication ? wait_wake_released : wait_wake,
		.context = session,
	};

	return tdd_waiter_park(&session->server->registry, &session->holder, &spec, fault);
}

static int wait_newer(struct tdd_session *session, const struct tdp_message *request,
		      uint32_t owner_uid, struct tdp_fault *fault)
{
	const struct tdp_wait *wait = &request->wait;
	const struct tdd_publication *publication =
		tdd_lookup_visible(session, owner_uid, wait->name);

	if (!publication || publication->generation <= wait->newer_than)
		return wait_park(session, request, owner_uid, NULL, fault);
	reply_waited(session, request->request_id, owner_uid, publication->generation);
	return 0;
}

/* What has gone altogether is released, and what was never there cannot be. */
static int wait_for_nothing(struct tdd_session *session, const struct tdp_message *request,
			    uint32_t owner_uid, struct tdp_fault *fault)
{
	const struct tdp_wait *wait = &request->wait;

	if (wait->generation == 0)
		return tdd_lookup_not_found(session, owner_uid, wait->name, fault);
	if (wait->generation > session->server->registry.last_generation)
		return tdp_fault_set(fault, TIDL_ERR_GENERATION_GONE,
				     "generation %" PRIu64 " of \"%s\" has not been published yet: "
				     "wait for the release of one that was",
				     wait->generation, wait->name);
	reply_waited(session, request->request_id, owner_uid, wait->generation);
	return 0;
}

static int wait_released(struct tdd_session *session, const struct tdp_message *request,
			 uint32_t owner_uid, struct tdp_fault *fault)
{
	const struct tdp_wait *wait = &request->wait;
	struct tdd_publication *publication =
		tdd_lookup_generation(session, owner_uid, wait->name, wait->generation);

	if (!publication)
		return wait_for_nothing(session, request, owner_uid, fault);
	if (!tdd_publication_is_released(publication, &session->holder))
		return wait_park(session, request, owner_uid, publication, fault);
	reply_waited(session, request->request_id, owner_uid, publication->generation);
	return 0;
}

int tdd_handle_wait(struct tdd_session *session, const struct tdp_message *request,
		    struct tdp_fault *fault)
{
	const struct tdp_wait *wait = &request->wait;
	uint32_t owner_uid = tdd_lookup_owner(session, wait->has_owner, wait->owner_uid);
	int r = tdp_name_check(wait->name, fault);

	if (r < 0)
		return r;
	if (wait->released ? wait->newer_than != 0 : wait->generation != 0)
		return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT,
				     "a wait for \"%s\" is for a later generation than one, or for "
				     "the release of one: choose",
				     wait->name);
	return wait->released ? wait_released(session, request, owner_uid, fault)
			      : wait_newer(session, request, owner_uid, fault);
}
