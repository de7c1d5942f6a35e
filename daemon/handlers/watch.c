/* SPDX-License-Identifier: Apache-2.0 */
/* WATCH and UNWATCH: who wants to hear of what. Events are sent by the session. */
#include "daemon/handlers/handlers.h"
#include "daemon/registry.h"
#include "daemon/server.h"
#include "daemon/subscription.h"
#include "proto/names.h"

int tdd_handle_watch(struct tdd_session *session, const struct tdp_message *request,
		     struct tdp_fault *fault)
{
	const struct tdp_watch *watch = &request->watch;
	uint32_t owner_uid = tdd_lookup_owner(session, watch->has_owner, watch->owner_uid);
	struct tdp_message reply = {.kind = TDP_MESSAGE_WATCHING,
				    .request_id = request->request_id};
	struct tdd_subscription *subscription;
	int r = tdp_pattern_check(watch->pattern, fault);

	if (r < 0)
		return r;
	if (!(watch->kinds & TDP_EVENT_KINDS_ALL))
		return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT,
				     "a watch of \"%s\" for no kind of event would never hear "
				     "anything: name one",
				     watch->pattern);
	r = tdd_subscription_new(&session->server->registry, &session->holder, watch, owner_uid,
				 &subscription, fault);
	if (r < 0)
		return r;
	reply.watching.watch_id = subscription->id;
	tdd_session_reply(session, &reply, NULL, 0);
	return 0;
}

int tdd_handle_unwatch(struct tdd_session *session, const struct tdp_message *request,
		       struct tdp_fault *fault)
{
	(void)fault;
	/* One that is not known is no mistake: it was ended before. */
	tdd_subscription_free(tdd_subscription_find(&session->holder, request->unwatch.watch_id));
	return 0;
}
