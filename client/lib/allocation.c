/* SPDX-License-Identifier: Apache-2.0 */
/* New segments: asked for, verified, their pages reserved. Owned by whoever asked; maps nothing. */
#include "client/lib/allocation.h"

#include <errno.h>
#include <fcntl.h>

#include "client/lib/call.h"
#include "client/lib/client.h"
#include "client/lib/segment.h"
#include "proto/base/fd.h"

/* Pages reserved in one system call. A signal undoes what an interrupted fallocate() has done, so
 * a process with a fast timer would never get a large segment in one piece. */
#define RESERVE_STEP_BYTES (UINT64_C(32) << 20)

static int allocation_check(const struct tdc_allocation *allocation, uint64_t data_bytes,
			    struct tdp_fault *fault)
{
	int r = tdc_segment_check(&allocation->wire, fault);

	if (r < 0)
		return r;
	if (allocation->fd < 0 || allocation->wire.data_size_bytes < data_bytes)
		return tdp_fault_set(fault, TIDL_ERR_SEGMENT_BAD,
				     "the broker allocated %llu bytes instead of %llu: check its "
				     "version",
				     (unsigned long long)allocation->wire.data_size_bytes,
				     (unsigned long long)data_bytes);
	return tdc_segment_verify(&allocation->wire, allocation->fd, 0, fault);
}

int tdc_allocate(struct tidl_client *client, uint64_t data_bytes,
		 struct tdc_allocation *ret_allocation, struct tdp_fault *fault)
{
	struct tdp_message request = {
		.kind = TDP_MESSAGE_ALLOCATE,
		.allocate = {.data_size_bytes = data_bytes},
	};
	struct tdc_allocation allocation = {.fd = -1};
	tdc_auto_reply *reply = NULL;
	int r = tdc_lease_new(TDC_LEASE_ALLOCATION, &allocation.lease, fault);

	if (r < 0)
		return r;
	r = tdc_call(client, &request, TDC_ANSWER_DUE, TDP_MESSAGE_ALLOCATED, &reply, fault);
	if (r == 0) {
		allocation.wire = reply->message.allocated.segment;
		allocation.lease->id = allocation.wire.id;
		allocation.lease->era = reply->era;
		allocation.fd = tdp_fdset_steal(&reply->fds, 0);
		r = allocation_check(&allocation, data_bytes, fault);
	}
	if (r < 0) {
		tdc_allocation_deinit(client, &allocation);
		return r;
	}
	*ret_allocation = allocation;
	return 0;
}

void tdc_allocation_deinit(struct tidl_client *client, struct tdc_allocation *allocation)
{
	allocation->fd = tdp_fd_close(allocation->fd);
	tdc_lease_end(client, allocation->lease);
	allocation->lease = NULL;
}

static int reserve_fail(int error, uint64_t data_bytes, struct tdp_fault *fault)
{
	if (error == ENOSPC || error == ENOMEM)
		return tdp_fault_set(fault, TIDL_ERR_NO_MEMORY,
				     "the system has no %llu bytes of shared memory left: free "
				     "some, or raise the memory limit of this process's cgroup",
				     (unsigned long long)data_bytes);
	if (error == EBADF || error == EPERM)
		return tdp_fault_set(fault, TIDL_ERR_SEGMENT_BAD,
				     "the broker allocated memory that cannot be written: check "
				     "its version");
	return tdp_fault_errno(fault, error, "cannot reserve %llu bytes",
			       (unsigned long long)data_bytes);
}

int tdc_allocation_reserve(struct tidl_client *client, const struct tdc_allocation *allocation,
			   struct tdp_fault *fault)
{
	const struct tdp_segment *wire = &allocation->wire;
	uint64_t done = 0;

	while (done < wire->data_size_bytes) {
		uint64_t left = wire->data_size_bytes - done;
		uint64_t step = left < RESERVE_STEP_BYTES ? left : RESERVE_STEP_BYTES;

		if (fallocate(allocation->fd, FALLOC_FL_KEEP_SIZE,
			      (off_t)(wire->data_offset_bytes + done), (off_t)step) == 0)
			done += step;
		else if (errno != EINTR)
			return reserve_fail(errno, wire->data_size_bytes, fault);
		else if (tdc_interrupt_is_asked(&client->interrupt))
			return tdp_fault_code(fault, TIDL_ERR_INTERRUPTED);
	}
	return 0;
}
