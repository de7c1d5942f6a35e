/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors on their way into a new segment. Bytes that can stay as they are go through the
 * descriptor, all others through a map that lives no longer than the copy.
 */
#include "client/lib/copying.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "client/lib/client.h"
#include "proto/tensor/layout.h"

/* Largest single write: Linux cuts at 2 GiB less a page, and this is a round number below. */
#define COPY_STEP_BYTES (UINT64_C(1) << 30)

/* Writing through the descriptor is twice as fast as through a fresh map, and memory that is not
 * there gives an error instead of a crash. */
static int part_write(const struct tdc_allocation *allocation, const struct tdc_pack_part *part,
		      struct tdp_fault *fault)
{
	uint64_t target = allocation->wire.data_offset_bytes + part->offset_bytes;
	uint64_t done = 0;

	while (done < part->size_bytes) {
		uint64_t left = part->size_bytes - done;
		uint64_t step = left < COPY_STEP_BYTES ? left : COPY_STEP_BYTES;
		ssize_t written =
			pwrite(allocation->fd, part->source + done, step, (off_t)(target + done));

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
					     (unsigned long long)part->size_bytes);
		else if (errno != EINTR)
			return tdp_fault_errno(fault, errno, "cannot copy the tensor");
	}
	return 0;
}

/* A write behind `ulimit -f` ends the process by SIGXFSZ, memory or not; a map knows no such limit.
 */
static bool copy_can_write(const struct tdc_allocation *allocation, const struct tdc_pack *pack)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
	       limit.rlim_cur >= allocation->wire.data_offset_bytes + pack->size_bytes;
}

static bool part_is_written(const struct tdc_pack_part *part, bool can_write)
{
	return can_write && part->gathered == NULL;
}

static int copy_write(const struct tdc_allocation *allocation, const struct tdc_pack *pack,
		      size_t *ret_member, size_t *ret_left, struct tdp_fault *fault)
{
	bool can_write = copy_can_write(allocation, pack);
	size_t left = 0;

	for (size_t i = 0; i < pack->part_count; i++) {
		int r;

		if (!part_is_written(&pack->parts[i], can_write)) {
			left++;
			continue;
		}
		r = part_write(allocation, &pack->parts[i], fault);
		if (r < 0) {
			*ret_member = pack->parts[i].member;
			return r;
		}
	}
	*ret_left = left;
	return 0;
}

static void part_gather(const struct tdc_pack_part *part, unsigned char *target)
{
	if (part->gathered != NULL)
		tdp_layout_gather(part->gathered, part->source, target + part->offset_bytes);
	else
		memcpy(target + part->offset_bytes, part->source, part->size_bytes);
}

/* The rest of the parts. The pages have to be there before: a write to a map cannot fail well. */
static int copy_mapped(struct tidl_client *client, const struct tdc_allocation *allocation,
		       const struct tdc_pack *pack, struct tdp_fault *fault)
{
	bool can_write = copy_can_write(allocation, pack);
	unsigned char *target;
	int r = tdc_allocation_reserve(client, allocation, fault);

	if (r < 0)
		return r;
	target = mmap(NULL, allocation->wire.data_size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
		      allocation->fd, (off_t)allocation->wire.data_offset_bytes);
	if (target == MAP_FAILED)
		return tdp_fault_errno(fault, errno, "cannot map %llu bytes to copy the tensor",
				       (unsigned long long)allocation->wire.data_size_bytes);
	for (size_t i = 0; i < pack->part_count; i++) {
		if (!part_is_written(&pack->parts[i], can_write))
			part_gather(&pack->parts[i], target);
	}
	(void)munmap(target, allocation->wire.data_size_bytes);
	return 0;
}

int tdc_copy(struct tidl_client *client, const struct tdc_allocation *allocation,
	     const struct tdc_pack *pack, size_t *ret_member, struct tdp_fault *fault)
{
	size_t left = 0;
	int r = copy_write(allocation, pack, ret_member, &left, fault);

	return r < 0 || left == 0 ? r : copy_mapped(client, allocation, pack, fault);
}
