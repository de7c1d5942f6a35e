/* SPDX-License-Identifier: Apache-2.0 */
/* PIN: keep a generation for a tensor that is being handed over. */
#include <inttypes.h>

#include "daemon/clock.h"
#include "daemon/handlers/handlers.h"
#include "daemon/pin.h"
#include "daemon/publication.h"
#include "daemon/reader.h"
#include "daemon/registry.h"
#include "daemon/server.h"
#include "proto/names.h"

/* NULL: the fault says why. */
static struct tdd_publication *pin_find(const struct tdd_session *session,
					const struct tdp_pin *pin, struct tdp_fault *fault)
{
	const struct tdd_holder *holder = &session->holder;
	uint32_t owner_uid = tdd_lookup_owner(session, pin->has_owner, pin->owner_uid);
	struct tdd_publication *publication = tdd_registry_find_generation(
		&session->server->registry, owner_uid, pin->name, pin->generation);

	/* What one holds already one may hand over, whatever has become of its name. */
	if (publication && tdd_holder_reads(holder, publication))
		return publication;
	if (!publication || !tdd_publication_is_attachable(publication) ||
	    !tdd_policy_may_see(&holder->subject, &publication->rights)) {
		tdp_fault_set(fault, TIDL_ERR_GENERATION_GONE,
			      "generation %" PRIu64 " of \"%s\" is not published (any more): hand "
			      "over a tensor that you hold, or its current generation",
			      pin->generation, pin->name);
		return NULL;
	}
	if (!tdd_policy_may_read(&holder->subject, &publication->rights)) {
		tdp_fault_set(fault, TIDL_ERR_PERMISSION,
			      "\"%s\" of uid %" PRIu32
			      " has mode %04o, which does not let you read "
			      "it, so you cannot hand it over: ask its owner for a wider mode",
			      pin->name, owner_uid, publication->rights.mode);
		return NULL;
	}
	return publication;
}

int tdd_handle_pin(struct tdd_session *session, const struct tdp_message *request,
		   struct tdp_fault *fault)
{
	struct tdd_holder *holder = &session->holder;
	struct tdd_publication *publication;
	int r = tdp_name_check(request->pin.name, fault);

	if (r < 0)
		return r;
	publication = pin_find(session, &request->pin, fault);
	if (!publication)
		return fault->code;
	r = tdd_pin_put(publication, tdd_holder_uid_account(holder), holder->process,
			tdd_deadline_after(tdd_clock_ms(), session->server->config.pin_ms), fault);
	if (r < 0)
		return r;
	tdd_session_reply_done(session, request->request_id);
	return 0;
}
