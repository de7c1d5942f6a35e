/* SPDX-License-Identifier: Apache-2.0 */
/* Memory comes and goes: ALLOCATE, OPEN, RELEASE, REMOVE. */
#include <inttypes.h>

#include "daemon/handlers/handlers.h"
#include "daemon/lease.h"
#include "daemon/limits.h"
#include "daemon/pool.h"
#include "daemon/publication.h"
#include "daemon/registry.h"
#include "daemon/segment.h"
#include "daemon/server.h"
#include "daemon/waiter.h"
#include "daemon/work.h"
#include "proto/names.h"

static void reply_allocated(struct tdd_session *session, uint64_t request_id,
			    const struct tdd_segment *segment)
{
	const int fds[] = {segment->write_fd, segment->read_fd};
	struct tdp_message reply = {
		.kind = TDP_MESSAGE_ALLOCATED,
		.request_id = request_id,
		.allocated = {.segment = tdd_segment_view(segment)},
	};

	tdd_session_reply(session, &reply, fds, TDP_ARRAY_LENGTH(fds));
}

int tdd_handle_allocate(struct tdd_session *session, const struct tdp_message *request,
			struct tdp_fault *fault)
{
	struct tdd_registry *registry = &session->server->registry;
	struct tdd_holder *holder = &session->holder;
	struct tdd_segment *segment;
	struct tdd_hold *allocation;
	int r;

	if (request->allocate.data_size_bytes == 0)
		return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT,
				     "a segment of 0 bytes was asked for: a tensor without "
				     "elements needs none");
	r = tdd_segment_new(&registry->segments, registry->last_segment_id + 1,
			    request->allocate.data_size_bytes, holder->process,
			    tdd_holder_uid_account(holder), &segment, fault);
	if (r < 0)
		return r;
	registry->last_segment_id++;
	r = tdd_allocation_new(holder, segment, ++registry->last_hold_serial, &allocation, fault);
	if (r < 0) {
		tdd_segment_settle(segment);
		return r;
	}
	reply_allocated(session, request->request_id, segment);
	return 0;
}

/* The segment, if the connection holds it in the way that it says; NULL: the fault says why. */
static const struct tdd_segment *open_find(const struct tdd_session *session,
					   const struct tdp_open *open,
					   const struct tdd_hold **ret_hold,
					   struct tdp_fault *fault)
{
	const struct tdd_holder *holder = &session->holder;
	const struct tdd_hold *hold = open->lease_id != 0
					      ? tdd_lease_find(holder, open->lease_id)
					      : tdd_allocation_find(holder, open->segment_id);
	const struct tdd_segment *segment =
		hold ? tdd_hold_find_segment(hold, open->segment_id) : NULL;

	if (!segment)
		tdp_fault_set(fault, TIDL_ERR_PERMISSION,
			      "segment %" PRIu64 " is not held by this connection in that way: "
			      "allocate it or attach it here first",
			      open->segment_id);
	*ret_hold = hold;
	return segment;
}

int tdd_handle_open(struct tdd_session *session, const struct tdp_message *request,
		    struct tdp_fault *fault)
{
	const struct tdd_hold *hold;
	const struct tdd_segment *segment = open_find(session, &request->open, &hold, fault);
	struct tdp_message reply = {.kind = TDP_MESSAGE_OPENED, .request_id = request->request_id};
	uint32_t fd_count = 0;
	int fds[2];

	if (!segment)
		return fault->code;
	if (hold->attach == TIDL_ATTACH_WRITE)
		fds[fd_count++] = segment->write_fd;
	if (hold->attach != TIDL_ATTACH_WRITE || hold->kind == TIDL_HOLDER_ALLOCATION)
		fds[fd_count++] = segment->read_fd;
	reply.opened.segment = tdd_segment_view(segment);
	tdd_session_reply(session, &reply, fds, fd_count);
	return 0;
}

static void release_lease(struct tdd_holder *holder, uint64_t lease_id, bool is_inherited)
{
	struct tdd_hold *lease = tdd_lease_find(holder, lease_id);

	if (!lease)
		return;
	lease->is_inherited |= is_inherited;
	tdd_work_count(TDD_DROP_STEPS);
	tdd_hold_free(lease);
}

static void release_segment(struct tdd_holder *holder, uint64_t segment_id)
{
	struct tdd_hold *allocation = tdd_allocation_find(holder, segment_id);

	if (allocation)
		tdd_work_count(TDD_DROP_STEPS);
	tdd_hold_free(allocation);
	tdd_pooled_free(tdd_pool_find(holder, segment_id));
}

/* Unknown ids are no mistake: a release may cross the end of what it releases. @position counts all
 * three lists. */
static void release_one(struct tdd_holder *holder, const struct tdp_release *release,
			size_t position)
{
	tdd_work_count(TDD_LOOK_STEPS);
	if (position < release->lease_count) {
		release_lease(holder, release->lease_ids[position], false);
		return;
	}
	position -= release->lease_count;
	if (position < release->inherited_count)
		release_lease(holder, release->inherited_lease_ids[position], true);
	else
		release_segment(holder, release->segment_ids[position - release->inherited_count]);
}

int tdd_handle_release(struct tdd_session *session, const struct tdp_message *request,
		       struct tdp_fault *fault)
{
	const struct tdp_release *release = &request->release;
	size_t count = release->lease_count + release->inherited_count + release->segment_count;
	size_t *position = &session->request->position;

	(void)fault;
	while (*position < count && !tdd_work_is_over())
		release_one(&session->holder, release, (*position)++);
	return *position < count ? TDD_WORK_LEFT : 0;
}

/* Since this was begun, when it was generation `position` that was to go. */
static bool remove_has_happened(const struct tdd_request *request,
				const struct tdd_publication *publication)
{
	return request->position != 0 &&
	       (!publication || publication->generation != request->position);
}

int tdd_handle_remove(struct tdd_session *session, const struct tdp_message *request,
		      struct tdp_fault *fault)
{
	const struct tdp_remove *remove = &request->remove;
	struct tdd_registry *registry = &session->server->registry;
	uint32_t owner_uid = tdd_lookup_owner(session, remove->has_owner, remove->owner_uid);
	struct tdd_publication *publication;
	int r = tdp_name_check(remove->name, fault);

	if (r < 0)
		return r;
	publication = tdd_lookup_visible(session, owner_uid, remove->name);
	if (remove_has_happened(session->request, publication)) {
		tdd_session_reply_done(session, request->request_id);
		return 0;
	}
	if (!publication)
		return tdd_lookup_not_found(session, owner_uid, remove->name, fault);
	if (!tdd_policy_may_remove(&session->holder.subject, &publication->rights))
		return tdp_fault_set(fault, TIDL_ERR_PERMISSION,
				     "\"%s\" belongs to uid %u: only its owner, root and members "
				     "of group tidl may remove it",
				     remove->name, owner_uid);
	session->request->position = publication->generation;
	if (!tdd_waiters_wake_more(registry, publication->entry))
		return TDD_WORK_LEFT;
	tdd_registry_unlist(registry, publication);
	tdd_session_reply_done(session, request->request_id);
	return 0;
}
