/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Access as seals. Sealing against future writes is a matter of a bit, and done here. Sealing
 * against all writing is not: the kernel looks at every page and waits up to 150 ms for those that
 * are pinned, and a client can pin them. So its client does that before it publishes, and here it
 * is only looked at.
 */
#include "daemon/access.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>

#include "daemon/lease.h"
#include "proto/base/fd.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

static const char *access_name(enum tidl_access access)
{
	switch (access) {
	case TIDL_ACCESS_LIVE:
		return "live";
	case TIDL_ACCESS_IMMUTABLE:
		return "immutable";
	case TIDL_ACCESS_SHARED:
		break;
	}
	return "shared";
}

static int access_check_seals(const struct tdd_segment *segment, enum tidl_access access,
			      const char *name, bool is_trial, struct tdp_fault *fault)
{
	uint32_t seals;
	int r = tdp_memfd_seals(segment->read_fd, &seals, fault);

	if (r < 0)
		return r;
	if (access == TIDL_ACCESS_IMMUTABLE) {
		if (seals & F_SEAL_WRITE || is_trial)
			return 0;
		return tdp_fault_set(fault, TIDL_ERR_ACCESS,
				     "the memory of \"%s\" can still be written: seal it against "
				     "writing (F_SEAL_WRITE) before it is published as immutable",
				     name);
	}
	/* Before anything is sealed: of several segments all are, or none. */
	if (access == TIDL_ACCESS_LIVE && seals & F_SEAL_SEAL)
		return tdp_fault_set(fault, TIDL_ERR_ACCESS,
				     "the seals of segment %" PRIu64 " were made final by its "
				     "creator: publish \"%s\" as a copy",
				     segment->id, name);
	if (!(seals & F_SEAL_WRITE) &&
	    (access == TIDL_ACCESS_LIVE || !(seals & F_SEAL_FUTURE_WRITE)))
		return 0;
	return tdp_fault_set(fault, TIDL_ERR_ACCESS,
			     "the memory of \"%s\" is sealed against writing: publish it as "
			     "immutable, or publish a copy",
			     name);
}

int tdd_access_check(const struct tdd_segment *segment, enum tidl_access access, const char *name,
		     bool is_trial, struct tdp_fault *fault)
{
	if (segment->access == 0)
		return access_check_seals(segment, access, name, is_trial, fault);
	if (segment->access == access)
		return 0;
	return tdp_fault_set(fault, TIDL_ERR_ACCESS,
			     "the memory of \"%s\" was published with access \"%s\" before, which "
			     "is for good: ask for that, or publish a copy",
			     name, access_name(segment->access));
}

int tdd_access_seal(struct tdd_segment *segment, enum tidl_access access, struct tdp_fault *fault)
{
	if (segment->access != 0 || access != TIDL_ACCESS_LIVE)
		return 0;
	if (fcntl(segment->write_fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) == 0)
		return 0;
	if (errno == EPERM)
		return tdp_fault_set(fault, TIDL_ERR_ACCESS,
				     "the seals of segment %" PRIu64 " were made final by its "
				     "creator: publish a copy",
				     segment->id);
	return tdp_fault_errno(fault, errno, "cannot seal segment %" PRIu64, segment->id);
}

/* Nobody writes any more, so nobody needs to be able to. */
static void access_drop_writers(struct tdd_segment *segment)
{
	struct tdd_hold *allocation;

	/* EPERM: they are final already. */
	(void)fcntl(segment->write_fd, F_ADD_SEALS, F_SEAL_SEAL);
	tdd_segment_close_write(segment);
	DL_FOREACH (segment->allocations, allocation)
		tdd_allocation_stop_writing(allocation);
}

void tdd_access_settle(struct tdd_segment *segment, enum tidl_access access)
{
	if (segment->access != 0)
		return;
	segment->access = access;
	if (access == TIDL_ACCESS_IMMUTABLE)
		access_drop_writers(segment);
}
