/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments: a memfd each, with a writable and a read-only descriptor that the broker hands out. The
 * payload is never mapped here, and its pages are the client's to reserve.
 */
#include "daemon/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "daemon/closer.h"
#include "daemon/lease.h"
#include "daemon/pin.h"
#include "daemon/pool.h"
#include "daemon/publication.h"
#include "proto/base/fd.h"
#include "proto/mem/control.h"

enum { DESCRIPTORS_PER_SEGMENT = 2, MEMFD_NAME_BYTES = 32 };

static void segment_free(struct tdd_segment *segment)
{
	if (segment->map)
		HASH_DELETE(hh, *segment->map, segment);
	tdd_closer_take(segment->write_fd, segment->read_fd, segment->geometry.size_bytes);
	tdd_charge_deinit(&segment->bytes);
	tdd_charge_deinit(&segment->descriptors);
	tdd_process_unref(segment->creator);
	free(segment);
}

static int segment_open(struct tdd_segment *segment, uint64_t data_size_bytes,
			struct tdd_account *uid_account, struct tdp_fault *fault)
{
	char name[MEMFD_NAME_BYTES];
	int r = tdp_memfd_plan(data_size_bytes, &segment->geometry, fault);

	if (r < 0)
		return r;
	r = tdd_charge_init(&segment->bytes, uid_account, TDD_QUOTA_BYTES,
			    segment->geometry.size_bytes, fault);
	if (r < 0)
		return r;
	r = tdd_charge_init(&segment->descriptors, uid_account, TDD_QUOTA_DESCRIPTORS,
			    DESCRIPTORS_PER_SEGMENT, fault);
	if (r < 0)
		return r;
	tdd_closer_make_room();
	snprintf(name, sizeof(name), "tidl:%" PRIu64, segment->id);
	return tdp_memfd_create(name, segment->geometry.size_bytes, &segment->write_fd,
				&segment->read_fd, fault);
}

int tdd_segment_new(struct tdd_segment **map, uint64_t id, uint64_t data_size_bytes,
		    struct tdd_process *creator, struct tdd_account *uid_account,
		    struct tdd_segment **ret_segment, struct tdp_fault *fault)
{
	struct tdd_segment *segment = calloc(1, sizeof(*segment));
	int r;

	if (!segment)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	segment->id = id;
	segment->write_fd = -1;
	segment->read_fd = -1;
	segment->creator_uid = creator->uid;
	segment->creator = tdd_process_ref(creator);
	r = segment_open(segment, data_size_bytes, uid_account, fault);
	if (r == 0) {
		HASH_ADD(hh, *map, id, sizeof(segment->id), segment);
		if (segment->hh.tbl)
			segment->map = map;
		else
			r = tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	}
	if (r < 0) {
		segment_free(segment);
		return r;
	}
	*ret_segment = segment;
	return 0;
}

struct tdd_segment *tdd_segment_find(struct tdd_segment *map, uint64_t id)
{
	struct tdd_segment *segment = NULL;

	HASH_FIND(hh, map, &id, sizeof(id), segment);
	return segment;
}

uint64_t tdd_segment_new_mark(void)
{
	static uint64_t last_mark;

	return ++last_mark;
}

/* Who holds the memory of a publication that is not listed; NULL: nobody does. */
static struct tdd_account *use_heir(const struct tdd_segment_use *use)
{
	/* A lease of a bundle may leave out some of its segments; they stay with it. */
	if (use->publication->leases)
		return tdd_holder_uid_account(use->publication->leases->holder);
	return use->publication->pins ? use->publication->pins->charge.account : NULL;
}

/* Who has held it longest: a lease, appended as they come, or else a pin or a part of a bundle.
 * NULL: nobody does. */
static struct tdd_account *segment_heir(const struct tdd_segment *segment)
{
	const struct tdd_segment_use *use;

	if (segment->leases)
		return tdd_holder_uid_account(segment->leases->hold->holder);
	DL_FOREACH (segment->uses, use) {
		struct tdd_account *heir = use_heir(use);

		if (heir)
			return heir;
	}
	return NULL;
}

static void segment_charge(struct tdd_segment *segment, struct tdd_account *heir)
{
	tdd_charge_force(&segment->bytes, heir);
	tdd_charge_force(&segment->descriptors, heir);
}

void tdd_segment_settle(struct tdd_segment *segment)
{
	struct tdd_account *heir;

	if (!segment->uses && !segment->allocations && !segment->pooled) {
		segment_free(segment);
		return;
	}
	if (!segment->uses && !segment->allocations) {
		segment_charge(segment, tdd_holder_uid_account(segment->pooled->holder));
		return;
	}
	if (segment->listed_count > 0 || segment->allocations)
		return;
	heir = segment_heir(segment);
	if (heir)
		segment_charge(segment, heir);
}

int tdd_segment_reclaim(struct tdd_segment *segment, struct tdd_account *uid_account,
			struct tdp_fault *fault)
{
	int r = tdd_charge_move(&segment->bytes, uid_account, fault);

	if (r < 0)
		return r;
	r = tdd_charge_move(&segment->descriptors, uid_account, fault);
	if (r < 0)
		tdd_segment_settle(segment);
	return r;
}

int tdd_segment_seal_for_write(struct tdd_segment *segment, const struct tdd_process *writer,
			       struct tdp_fault *fault)
{
	if (segment->is_write_granted || writer == segment->creator)
		return 0;
	/* EPERM: the creator has already made them final. */
	if (fcntl(segment->write_fd, F_ADD_SEALS, F_SEAL_SEAL) < 0 && errno != EPERM)
		return tdp_fault_errno(fault, errno, "cannot seal segment %" PRIu64, segment->id);
	segment->is_write_granted = true;
	return 0;
}

void tdd_segment_close_write(struct tdd_segment *segment)
{
	segment->write_fd = tdp_fd_close(segment->write_fd);
	tdd_charge_reduce(&segment->descriptors, 1);
}

struct tdp_segment tdd_segment_view(const struct tdd_segment *segment)
{
	return (struct tdp_segment){
		.kind = TDP_SEGMENT_MEMFD,
		.id = segment->id,
		.size_bytes = segment->geometry.size_bytes,
		.data_offset_bytes = segment->geometry.data_offset_bytes,
		.data_size_bytes = segment->geometry.data_size_bytes,
		.control_offset_bytes = segment->geometry.control_offset_bytes,
	};
}

int tdd_segment_examine(const struct tdd_segment *segment, struct tdp_segment *ret_view,
			struct tdp_fault *fault)
{
	struct tdp_segment view = tdd_segment_view(segment);
	struct stat status;
	int r = tdp_memfd_seals(segment->read_fd, &view.seals, fault);

	if (r < 0)
		return r;
	if (fstat(segment->read_fd, &status) < 0)
		return tdp_fault_errno(fault, errno, "cannot examine segment %" PRIu64,
				       segment->id);
	view.inode = status.st_ino;
	view.huge_bytes = segment->huge_bytes;
	view.step_word = tdp_control_peek_by_fd(segment->read_fd, view.control_offset_bytes);
	*ret_view = view;
	return 0;
}
