/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors of segments that this client holds, asked for again when something has to be mapped
 * anew: in place for another access, or the control page. Believes the answer as little as the
 * first one. Maps nothing.
 */
#include "client/lib/open.h"

#include "client/lib/call.h"
#include "client/lib/client.h"
#include "proto/base/fd.h"

static int open_check_era(struct tidl_client *client, const struct tdc_lease *lease,
			  struct tdp_fault *fault)
{
	uint64_t era;
	int r = tdc_client_lock_open(client, fault);

	if (r < 0)
		return r;
	era = client->era;
	tdc_client_unlock(client);
	if (lease != NULL && lease->era == era)
		return 0;
	return tdp_fault_set(fault, TIDL_ERR_RELEASED,
			     "the tensor came over another connection, before a fork() for "
			     "example, so the broker does not count it for this process: get it "
			     "again here");
}

/* A part of moved memory is only a part of its segment. */
static bool opened_has(const struct tdp_segment *wire, const struct tdc_segment *segment)
{
	if (segment->moved == NULL)
		return wire->data_size_bytes == segment->map_bytes &&
		       wire->data_offset_bytes == segment->data_offset_bytes;
	return segment->data_offset_bytes >= wire->data_offset_bytes &&
	       segment->data_offset_bytes - wire->data_offset_bytes + segment->map_bytes <=
		       wire->data_size_bytes;
}

static int opened_verify(const struct tdc_opened *opened, const struct tdc_segment *segment,
			 struct tdp_fault *fault)
{
	const struct tdp_segment *wire = &opened->wire;
	enum tidl_access access = (enum tidl_access)atomic_load(&segment->access);
	int r = tdc_segment_check(wire, fault);

	if (r < 0)
		return r;
	if (wire->id != segment->key.id || !opened_has(wire, segment))
		return tdp_fault_set(fault, TIDL_ERR_SEGMENT_BAD,
				     "the broker opened another segment than the one asked for: "
				     "check its version");
	if (opened->write_fd >= 0)
		r = tdc_segment_verify(wire, opened->write_fd, access, fault);
	if (r == 0 && opened->read_fd >= 0)
		r = tdc_segment_verify(wire, opened->read_fd, access, fault);
	return r;
}

static int opened_take_fds(struct tdc_opened *opened, const struct tdc_lease *lease,
			   enum tidl_attach attach, struct tdc_reply *reply,
			   struct tdp_fault *fault)
{
	bool is_allocation = lease->kind == TDC_LEASE_ALLOCATION;
	uint32_t count = reply->fds.count;

	if (count == 0 || count > (is_allocation ? 2 : 1))
		return tdp_fault_set(fault, TIDL_ERR_PROTOCOL,
				     "the broker opened a segment with %u descriptors: check its "
				     "version",
				     count);
	if (is_allocation ? count == 2 : attach == TIDL_ATTACH_WRITE)
		opened->write_fd = tdp_fdset_steal(&reply->fds, 0);
	if (is_allocation || attach != TIDL_ATTACH_WRITE)
		opened->read_fd = tdp_fdset_steal(&reply->fds, count - 1);
	return 0;
}

int tdc_open(struct tidl_client *client, const struct tdc_lease *lease,
	     const struct tdc_segment *segment, struct tdc_opened *ret_opened,
	     struct tdp_fault *fault)
{
	struct tdp_message request = {
		.kind = TDP_MESSAGE_OPEN,
		.open = {.segment_id = segment->key.id},
	};
	tdc_auto_opened opened = TDC_OPENED_NONE;
	tdc_auto_reply *reply = NULL;
	int r = open_check_era(client, lease, fault);

	if (r < 0)
		return r;
	if (lease->kind == TDC_LEASE_PUBLICATION)
		request.open.lease_id = lease->id;
	r = tdc_call(client, &request, TDC_ANSWER_DUE, TDP_MESSAGE_OPENED, &reply, fault);
	if (r < 0)
		return r;
	opened.wire = reply->message.opened.segment;
	r = opened_take_fds(&opened, lease, segment->attach, reply, fault);
	if (r == 0)
		r = opened_verify(&opened, segment, fault);
	if (r < 0)
		return r;
	*ret_opened = opened;
	opened = TDC_OPENED_NONE;
	return 0;
}

void tdc_opened_deinit(struct tdc_opened *opened)
{
	opened->write_fd = tdp_fd_close(opened->write_fd);
	opened->read_fd = tdp_fd_close(opened->read_fd);
}
