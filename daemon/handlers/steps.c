/* SPDX-License-Identifier: Apache-2.0 */
/* WATCH_WRITER: is there still somebody who can make the next step? */
#include <inttypes.h>

#include "daemon/handlers/handlers.h"
#include "daemon/lease.h"
#include "daemon/registry.h"
#include "daemon/segment.h"
#include "daemon/server.h"
#include "daemon/writer_watch.h"

static void watch_answer(void *context, uint64_t request_id, const struct tdp_fault *reason)
{
	tdd_session_reply_failure(context, request_id, reason);
}

int tdd_handle_watch_writer(struct tdd_session *session, const struct tdp_message *request,
			    struct tdp_fault *fault)
{
	const struct tdp_watch_writer *watch = &request->watch_writer;
	struct tdd_writer_watch_spec spec = {
		.segment = tdd_segment_find(session->server->registry.segments, watch->segment_id),
		.request_id = request->request_id,
		.answer = watch_answer,
		.context = session,
	};
	int r;

	if (!spec.segment || !tdd_holder_has_segment(&session->holder, spec.segment))
		return tdp_fault_set(fault, TIDL_ERR_PERMISSION,
				     "segment %" PRIu64 " is not held by this connection: allocate "
				     "it or attach it here first",
				     watch->segment_id);
	if (!watch->wait) {
		r = tdd_writer_check(spec.segment, &session->holder, fault);
		if (r == 0)
			tdd_session_reply_done(session, request->request_id);
		return r;
	}
	r = tdd_writer_watch_park(&session->holder, &spec, fault);
	if (r == TIDL_ERR_WRITER_GONE) {
		/* By now the client sleeps where it does not see the answer. */
		tdd_session_reply_failure(session, request->request_id, fault);
		tdd_writer_wake(spec.segment);
		return 0;
	}
	return r;
}
