/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_HANDLERS_GRANT_H
#define TDD_HANDLERS_GRANT_H

#include <stdint.h>

#include "daemon/publication.h"
#include "daemon/selection.h"
#include "daemon/session.h"
#include "include/tidl/tensor.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

/* How somebody wants a publication that has been found for him. */
struct tdd_wish {
	uint64_t request_id;
	enum tidl_attach attach;
	struct tdd_wanted_keys keys;
};

/* Check his rights and what others do with it, make the lease, and answer with GRANTED. All at
 * once.
 */
int tdd_grant(struct tdd_session *session, struct tdd_publication *publication,
	      const struct tdd_wish *wish, struct tdp_fault *fault) TDP_MUST_CHECK;

/* The same for session::request, in as many turns as it takes: the publication is the one that was
 * found now, whatever becomes of its name meanwhile. Returns TDD_WORK_LEFT when it is to be gone on
 * with. */
int tdd_grant_begin(struct tdd_session *session, struct tdd_publication *publication,
		    const struct tdd_wish *wish, struct tdp_fault *fault) TDP_MUST_CHECK;
int tdd_grant_go_on(struct tdd_session *session, struct tdp_fault *fault) TDP_MUST_CHECK;

/* The descriptors of the first part of a lease that @context, a session, has: their number, or -1
 * when it has ended. For the session's outbox. */
int tdd_grant_refill(void *context, uint64_t lease_id, int *ret_fds);

#endif
