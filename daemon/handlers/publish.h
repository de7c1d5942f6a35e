/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_HANDLERS_PUBLISH_H
#define TDD_HANDLERS_PUBLISH_H

#include <stdbool.h>

#include "daemon/limits.h"
#include "daemon/publication.h"
#include "daemon/session.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"
#include "proto/wire/message.h"

/* What the checks of a PUBLISH find out, and all that making it visible needs. */
struct tdd_draft {
	struct tdd_publication_spec spec;
	struct tdd_segment *segments[TDD_SEGMENTS_PER_PUBLICATION];
	bool is_used[TDD_SEGMENTS_PER_PUBLICATION];
};

/* Check everything that does not depend on memory and quota (publish_check.c). Changes nothing;
 * the draft borrows from @publish. */
int tdd_draft_check(const struct tdd_session *session, const struct tdp_publish *publish,
		    struct tdd_draft *draft, struct tdp_fault *fault) TDP_MUST_CHECK;

/* The part of it that looks at each tensor (publish_tensors.c); the segments are found already. */
int tdd_draft_check_tensors(const struct tdp_publish *publish, struct tdd_draft *draft,
			    struct tdp_fault *fault) TDP_MUST_CHECK;

#endif
