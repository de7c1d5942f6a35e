/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making memory immutable. The kernel refuses to seal what anybody has mapped for writing, and a
 * map that mprotect() made read-only still counts. A map of a read-only descriptor does not, so one
 * is put over the old one (MAP_FIXED), which keeps address and content.
 */
#include "client/lib/seal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "client/lib/client.h"
#include "client/lib/deadline.h"
#include "client/lib/inplace/move.h"
#include "client/lib/inplace/moved.h"
#include "client/lib/open.h"
#include "client/lib/steps.h"
#include "client/lib/writers.h"
#include "proto/mem/memfd.h"

enum { SEAL_PAUSE_MIN_MS = 1, SEAL_PAUSE_MAX_MS = 32 };

static int seal_fail(int error, int write_fd, struct tdp_fault *fault)
{
	char writers[TDC_WRITERS_TEXT_BYTES];

	if (error == EBUSY) {
		tdc_writers_describe(write_fd, writers);
		return tdp_fault_set(fault, TIDL_ERR_BUSY,
				     "the memory cannot become immutable while it is mapped for "
				     "writing (%s): end that, or publish a copy (copy=True)",
				     writers);
	}
	if (error == EPERM)
		return tdp_fault_set(fault, TIDL_ERR_ACCESS,
				     "the memory cannot become immutable, since others may write "
				     "it: publish a copy (copy=True)");
	return tdp_fault_errno(fault, error, "cannot seal memory");
}

/* 0 or an errno. */
static int seal_try(int write_fd)
{
	int seals;

	if (fcntl(write_fd, F_ADD_SEALS, F_SEAL_WRITE) == 0)
		return 0;
	if (errno != EPERM)
		return errno;
	seals = fcntl(write_fd, F_GET_SEALS);
	return seals >= 0 && (seals & F_SEAL_WRITE) != 0 ? 0 : EPERM;
}

int tdc_seal(struct tidl_client *client, int write_fd, struct tdp_fault *fault)
{
	int64_t deadline = tdc_deadline_after(TDC_SEAL_PATIENCE_MS);
	int pause_ms = SEAL_PAUSE_MIN_MS;
	int error;

	while ((error = seal_try(write_fd)) == EBUSY && tdc_deadline_poll_ms(deadline) != 0) {
		if (poll(NULL, 0, pause_ms) < 0 && tdc_interrupt_is_asked(&client->interrupt))
			return tdp_fault_code(fault, TIDL_ERR_INTERRUPTED);
		if (pause_ms < SEAL_PAUSE_MAX_MS)
			pause_ms *= 2;
	}
	return error == 0 ? 0 : seal_fail(error, write_fd, fault);
}

static int map_anew(void *base, size_t size_bytes, int protection, int fd, uint64_t offset_bytes,
		    struct tdp_fault *fault)
{
	if (mmap(base, size_bytes, protection, MAP_SHARED | MAP_FIXED, fd, (off_t)offset_bytes) !=
	    MAP_FAILED)
		return 0;
	return tdp_fault_errno(fault, errno, "cannot map %zu bytes anew at their address",
			       size_bytes);
}

/* The data, and the page of the steps if it is mapped, too. */
static int segment_remap(struct tdc_segment *segment, const struct tdc_opened *opened,
			 bool writable, struct tdp_fault *fault)
{
	int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
	int fd = writable ? opened->write_fd : opened->read_fd;
	struct tdc_steps *steps = segment->steps;
	int r = map_anew(segment->base, segment->map_bytes, protection, fd,
			 segment->data_offset_bytes, fault);

	if (r == 0 && steps != NULL)
		r = map_anew(steps->control, tdp_page_bytes(), protection, fd,
			     opened->wire.control_offset_bytes, fault);
	if (r < 0)
		return r;
	atomic_store(&segment->is_readonly, !writable);
	if (steps != NULL)
		atomic_store(&steps->is_writable, writable);
	return 0;
}

static int part_remap(struct tdc_moved_part *part, const struct tdc_opened *opened, bool writable,
		      struct tdp_fault *fault)
{
	int r = segment_remap(part->segment, opened, writable, fault);

	if (r < 0 || tdc_range_mark(&part->range))
		return r;
	return tdp_fault_set(fault, TIDL_ERR_NO_MEMORY,
			     "this process has as many maps as the system allows "
			     "(vm.max_map_count): free some memory");
}

/* Of moved memory all parts, which become read-only together. */
static int parts_remap(struct tdc_segment *segment, const struct tdc_opened *opened, bool writable,
		       struct tdp_fault *fault)
{
	struct tdc_moved *moved = segment->moved;
	int r = 0;

	if (moved == NULL)
		return segment_remap(segment, opened, writable, fault);
	/* What is undone is undone as far as possible. */
	for (size_t i = 0; i < moved->part_count && (r == 0 || writable); i++) {
		int one = part_remap(&moved->parts[i], opened, writable, fault);

		if (r == 0)
			r = one;
	}
	return r;
}

static int segment_seal(struct tidl_client *client, struct tdc_segment *segment,
			const struct tdc_opened *opened, struct tdp_fault *fault)
{
	struct tdp_fault undone;
	int r;

	if (opened->write_fd < 0)
		return tdp_fault_set(fault, TIDL_ERR_SEGMENT_BAD,
				     "the broker does not let this client write its own memory: "
				     "check its version");
	r = parts_remap(segment, opened, false, fault);
	if (r == 0)
		r = tdc_seal(client, opened->write_fd, fault);
	if (r < 0)
		(void)!parts_remap(segment, opened, true, &undone);
	return r;
}

/* One thread at a time: two would undo each other's maps. */
static int segment_claim(struct tidl_client *client, struct tdc_segment *segment,
			 struct tdp_fault *fault)
{
	const char *reason = NULL;

	tdc_client_lock(client);
	if (segment->is_sealing)
		reason = "another thread is publishing this memory as immutable: wait until it is "
			 "done";
	else if (segment->steps != NULL && atomic_load(&segment->steps->open_word) != 0)
		reason = "an update of the tensor is open: end it before the memory becomes "
			 "immutable";
	else
		segment->is_sealing = true;
	tdc_client_unlock(client);
	return reason == NULL ? 0 : tdp_fault_set(fault, TIDL_ERR_BUSY, "%s", reason);
}

int tdc_seal_in_place(struct tidl_client *client, struct tdc_segment *segment,
		      struct tdp_fault *fault)
{
	struct tdc_lease lease = {
		.kind = TDC_LEASE_ALLOCATION, .id = segment->key.id, .era = segment->key.era};
	tdc_auto_opened opened = TDC_OPENED_NONE;
	int r = segment_claim(client, segment, fault);

	if (r < 0)
		return r;
	if (!atomic_load(&segment->is_readonly)) {
		r = tdc_open(client, &lease, segment, &opened, fault);
		if (r == 0)
			r = segment_seal(client, segment, &opened, fault);
	}
	tdc_client_lock(client);
	segment->is_sealing = false;
	tdc_client_unlock(client);
	return r;
}
