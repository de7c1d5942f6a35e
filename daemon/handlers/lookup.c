/* SPDX-License-Identifier: Apache-2.0 */
/* How requests find what they name. What one may not see does not exist. */
#include <inttypes.h>

#include "daemon/handlers/handlers.h"
#include "daemon/policy.h"
#include "daemon/publication.h"
#include "daemon/server.h"

uint32_t tdd_lookup_owner(const struct tdd_session *session, bool has_owner, uint32_t owner_uid)
{
	return has_owner ? owner_uid : session->holder.subject.uid;
}

struct tdd_publication *tdd_lookup_visible(const struct tdd_session *session, uint32_t owner_uid,
					   const char *name)
{
	struct tdd_publication *publication =
		tdd_registry_find(&session->server->registry, owner_uid, name);

	if (!publication || !tdd_policy_may_see(&session->holder.subject, &publication->rights))
		return NULL;
	return publication;
}

struct tdd_publication *tdd_lookup_generation(const struct tdd_session *session, uint32_t owner_uid,
					      const char *name, uint64_t generation)
{
	struct tdd_publication *publication;

	if (generation == 0)
		return tdd_lookup_visible(session, owner_uid, name);
	publication = tdd_registry_find_generation(&session->server->registry, owner_uid, name,
						   generation);
	if (!publication || !tdd_policy_may_see(&session->holder.subject, &publication->rights))
		return NULL;
	return publication;
}

int tdd_lookup_not_found(const struct tdd_session *session, uint32_t owner_uid, const char *name,
			 struct tdp_fault *fault)
{
	if (owner_uid == session->holder.subject.uid)
		return tdp_fault_set(fault, TIDL_ERR_NOT_FOUND,
				     "nothing that you may read is published as \"%s\": publish it "
				     "first, or wait for it with a time-out",
				     name);
	return tdp_fault_set(fault, TIDL_ERR_NOT_FOUND,
			     "nothing that you may read is published as \"%" PRIu32
			     ":%s\": ask its owner to publish it with a mode that lets you",
			     owner_uid, name);
}
