/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is the tensor in one of our segments already? If so it is published where it is, whatever view of
 * it this is. If not, it is copied once, row-major, into a new segment, which this process keeps no
 * map of. Knows neither names nor the publish message.
 */
#include "client/lib/placement.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "client/lib/allocation.h"
#include "client/lib/client.h"
#include "client/lib/fork.h"
#include "proto/tensor/layout.h"

/* Largest single write: Linux cuts at 2 GiB less a page, and this is a round number below. */
#define COPY_STEP_BYTES (UINT64_C(1) << 30)

static const char *copy_reason_sentence(enum tidl_copy_reason reason)
{
	switch (reason) {
	case TIDL_COPY_REASON_FOREIGN:
		return "the tensor does not lie in memory of this client";
	case TIDL_COPY_REASON_NOT_OWNER:
		return "the tensor lies in memory that belongs to another user";
	case TIDL_COPY_REASON_PRIVATE_MAP:
		return "the tensor was attached copy-on-write, so its pages may be private";
	case TIDL_COPY_REASON_OTHER_BROKER:
		return "the tensor lies in memory of another broker or connection";
	case TIDL_COPY_REASON_NONE:
	case TIDL_COPY_REASON_REQUESTED:
		break;
	}
	return "a copy was asked for";
}

/* Why memory in @segment cannot be published as it is; NONE when it can. */
static enum tidl_copy_reason segment_copy_reason(struct tidl_client *client,
						 const struct tdc_segment *segment)
{
	enum tidl_copy_reason reason = TIDL_COPY_REASON_NONE;

	tdc_client_lock(client);
	if (segment->key.era != client->era)
		reason = TIDL_COPY_REASON_OTHER_BROKER;
	else if (segment->owner_uid != client->broker.uid)
		reason = TIDL_COPY_REASON_NOT_OWNER;
	tdc_client_unlock(client);
	if (reason == TIDL_COPY_REASON_NONE && segment->attach == TIDL_ATTACH_COPY_ON_WRITE)
		reason = TIDL_COPY_REASON_PRIVATE_MAP;
	return reason;
}

/* Look the memory up; a segment that can be aliased is left in the placement. */
static enum tidl_copy_reason placement_find(struct tidl_client *client,
					    const struct tdc_import *import,
					    struct tdc_placement *placement)
{
	struct tdc_segment *segment = tdc_segment_find_range(client, import->begin, import->end);
	enum tidl_copy_reason reason;

	if (segment == NULL)
		return tdc_fork_find_elsewhere(client, import->begin, import->end)
			       ? TIDL_COPY_REASON_OTHER_BROKER
			       : TIDL_COPY_REASON_FOREIGN;
	reason = segment_copy_reason(client, segment);
	if (reason != TIDL_COPY_REASON_NONE)
		segment = tdc_segment_unref(client, segment);
	placement->segment = segment;
	return reason;
}

static void placement_describe(const struct tdc_import *import, struct tdc_placement *placement)
{
	placement->tensor = (struct tdp_tensor){
		.key = "",
		.segment_index = -1,
		.dtype = import->layout.dtype,
		.ndim = import->layout.ndim,
		.shape = import->layout.shape,
		.strides = placement->strides,
		.flags = import->layout.flags,
	};
}

static void placement_alias(const struct tdc_import *import, struct tdc_placement *placement)
{
	const struct tdc_segment *segment = placement->segment;
	const struct tdp_layout *layout = &import->layout;

	placement->path = segment->is_allocated ? TIDL_PATH_ALLOCATED : TIDL_PATH_ATTACHED;
	placement->wire = (struct tdp_segment){.kind = TDP_SEGMENT_MEMFD, .id = segment->key.id};
	placement->tensor.segment_index = 0;
	placement->tensor.byte_offset =
		segment->data_offset_bytes +
		(uint64_t)((uintptr_t)import->first - (uintptr_t)segment->base);
	if (layout->strides == NULL)
		tdp_layout_compact_strides(layout->ndim, layout->shape, placement->strides);
	else
		tdp_layout_normal_strides(layout->ndim, layout->shape, layout->strides,
					  placement->strides);
}

/* Writing through the descriptor is twice as fast as through a fresh map, and memory that is not
 * there gives an error instead of a crash. */
static int copy_written(const struct tdc_allocation *allocation, const struct tdc_import *import,
			struct tdp_fault *fault)
{
	uint64_t done = 0;

	while (done < import->extent.nbytes) {
		uint64_t left = import->extent.nbytes - done;
		uint64_t step = left < COPY_STEP_BYTES ? left : COPY_STEP_BYTES;
		ssize_t written = pwrite(allocation->fd, import->first + done, step,
					 (off_t)(allocation->wire.data_offset_bytes + done));

		if (written > 0)
			done += (uint64_t)written;
		else if (written < 0 && errno == EFAULT)
			return tdp_fault_set(fault, TIDL_ERR_LAYOUT,
					     "the tensor's memory cannot be read: check its shape "
					     "and address");
		else if (written == 0 || errno == ENOSPC || errno == ENOMEM)
			return tdp_fault_set(fault, TIDL_ERR_NO_MEMORY,
					     "the system has no %llu bytes of shared memory left: "
					     "free some, or raise the memory limit of this "
					     "process's cgroup",
					     (unsigned long long)import->extent.nbytes);
		else if (errno != EINTR)
			return tdp_fault_errno(fault, errno, "cannot copy the tensor");
	}
	return 0;
}

/* A write behind `ulimit -f` ends the process by SIGXFSZ, memory or not; a map knows no such limit.
 */
static bool copy_can_write(const struct tdc_allocation *allocation, const struct tdc_import *import)
{
	struct rlimit limit;

	return import->extent.is_compact && getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
	       limit.rlim_cur >= allocation->wire.data_offset_bytes + import->extent.nbytes;
}

static int copy_mapped(struct tidl_client *client, const struct tdc_allocation *allocation,
		       const struct tdc_import *import, struct tdp_fault *fault)
{
	void *target;
	int r = tdc_allocation_reserve(client, allocation, fault);

	if (r < 0)
		return r;
	target = mmap(NULL, allocation->wire.data_size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
		      allocation->fd, (off_t)allocation->wire.data_offset_bytes);
	if (target == MAP_FAILED)
		return tdp_fault_errno(fault, errno, "cannot map %llu bytes to copy the tensor",
				       (unsigned long long)allocation->wire.data_size_bytes);
	tdp_layout_gather(&import->layout, import->first, target);
	(void)munmap(target, allocation->wire.data_size_bytes);
	return 0;
}

static int placement_copy(struct tidl_client *client, const struct tdc_import *import,
			  struct tdc_placement *placement, struct tdp_fault *fault)
{
	struct tdc_allocation allocation;
	int r = tdc_allocate(client, import->extent.nbytes, &allocation, fault);

	if (r < 0)
		return r;
	if (copy_can_write(&allocation, import))
		r = copy_written(&allocation, import, fault);
	else
		r = copy_mapped(client, &allocation, import, fault);
	if (r == 0) {
		placement->path = TIDL_PATH_COPIED;
		placement->wire =
			(struct tdp_segment){.kind = TDP_SEGMENT_MEMFD, .id = allocation.wire.id};
		placement->lease = allocation.lease;
		allocation.lease = NULL;
		placement->tensor.segment_index = 0;
		placement->tensor.byte_offset = allocation.wire.data_offset_bytes;
		tdp_layout_compact_strides(import->layout.ndim, import->layout.shape,
					   placement->strides);
	}
	tdc_allocation_deinit(client, &allocation);
	return r;
}

static int placement_fill(struct tidl_client *client, const struct tdc_import *import,
			  enum tidl_copy copy, struct tdc_placement *placement,
			  struct tdp_fault *fault)
{
	enum tidl_copy_reason reason = TIDL_COPY_REASON_REQUESTED;

	placement_describe(import, placement);
	if (import->extent.is_empty) {
		placement->path = TIDL_PATH_EMPTY;
		tdp_layout_compact_strides(import->layout.ndim, import->layout.shape,
					   placement->strides);
		return 0;
	}
	if (copy != TIDL_COPY_ALWAYS)
		reason = placement_find(client, import, placement);
	if (reason == TIDL_COPY_REASON_NONE) {
		placement_alias(import, placement);
		return 0;
	}
	if (copy == TIDL_COPY_NEVER)
		return tdp_fault_set(fault, TIDL_ERR_COPY_NEEDED,
				     "%s: allow a copy, or allocate the tensor through this client",
				     copy_reason_sentence(reason));
	placement->reason = reason;
	return placement_copy(client, import, placement, fault);
}

int tdc_placement_init(struct tidl_client *client, const struct tdc_import *import,
		       enum tidl_copy copy, struct tdc_placement *ret_placement,
		       struct tdp_fault *fault)
{
	int r;

	memset(ret_placement, 0, sizeof(*ret_placement));
	r = placement_fill(client, import, copy, ret_placement, fault);
	if (r < 0)
		tdc_placement_deinit(client, ret_placement);
	return r;
}

void tdc_placement_handed_over(struct tdc_placement *placement)
{
	placement->lease = tdc_lease_forget(placement->lease);
}

void tdc_placement_deinit(struct tidl_client *client, struct tdc_placement *placement)
{
	placement->segment = tdc_segment_unref(client, placement->segment);
	tdc_lease_end(client, placement->lease);
	placement->lease = NULL;
}
