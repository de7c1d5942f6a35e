/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors of other processes, by name: one round trip, one map. What the broker grants is checked
 * against what was asked for and against the memory that came with it; what does not fit is given
 * back and refused.
 */
#include "client/lib/attach.h"

#include "client/lib/call.h"
#include "client/lib/client.h"
#include "client/lib/deadline.h"
#include "client/lib/tensor.h"
#include "proto/tensor/layout.h"

static int granted_refuse(const char *why, struct tdp_fault *fault)
{
	return tdp_fault_set(fault, TIDL_ERR_PROTOCOL,
			     "the broker granted something impossible (%s): check its version",
			     why);
}

static int granted_check(const struct tdp_granted *granted, const struct tdc_reply *reply,
			 enum tidl_attach attach, struct tdp_fault *fault)
{
	const struct tdp_tensor *tensor;

	if (granted->lease_id == 0 || granted->generation == 0)
		return granted_refuse("no lease", fault);
	if (granted->attach != attach)
		return granted_refuse("another attach than asked for", fault);
	if (granted->tensor_count > 1 || granted->segment_count > 1)
		return tdp_fault_set(fault, TIDL_ERR_UNSUPPORTED,
				     "this is a bundle of %zu tensors, which this version cannot "
				     "attach: update tidl",
				     granted->tensor_count);
	if (granted->tensor_count == 0)
		return granted_refuse("no tensor", fault);
	if (reply->fds.count != granted->segment_count)
		return granted_refuse("descriptors that are not one for each segment", fault);
	tensor = &granted->tensors[0];
	if (tensor->segment_index >= (int64_t)granted->segment_count)
		return granted_refuse("a tensor in a segment that is not there", fault);
	return 0;
}

/* Where the tensor lies in its segment. A window of nothing is right for a tensor without one. */
static int granted_measure(const struct tdp_granted *granted, struct tdp_extent *ret_extent,
			   struct tdp_fault *fault)
{
	const struct tdp_tensor *tensor = &granted->tensors[0];
	struct tdp_layout layout = {
		.dtype = tensor->dtype,
		.ndim = tensor->ndim,
		.shape = tensor->shape,
		.strides = tensor->strides,
		.byte_offset = tensor->byte_offset,
		.flags = tensor->flags,
	};
	struct tdp_fault refusal;
	uint64_t window_begin = 0;
	uint64_t window_end = 0;
	int r;

	if (tensor->segment_index >= 0) {
		const struct tdp_segment *segment = &granted->segments[tensor->segment_index];

		r = tdc_segment_check(segment, fault);
		if (r < 0)
			return r;
		window_begin = segment->data_offset_bytes;
		window_end = window_begin + segment->data_size_bytes;
	}
	r = tdp_layout_check(&layout, window_begin, window_end, ret_extent, &refusal);
	return r < 0 ? granted_refuse(refusal.text, fault) : 0;
}

/* The segment, mapped now or before. */
static int granted_map(struct tidl_client *client, struct tdc_reply *reply,
		       struct tdc_segment **ret_segment, struct tdp_fault *fault)
{
	const struct tdp_granted *granted = &reply->message.granted;
	struct tdc_segment_spec spec = {
		.wire = &granted->segments[0],
		.fd = reply->fds.fds[0],
		.era = reply->era,
		.attach = granted->attach,
		.owner_uid = granted->segment_owner_uid,
	};
	struct tdc_segment *segment =
		tdc_segment_find(client, spec.wire, reply->era, granted->attach);
	int r;

	if (segment != NULL) {
		*ret_segment = segment;
		return 0;
	}
	r = tdc_segment_verify(spec.wire, spec.fd, fault);
	if (r < 0)
		return r;
	return tdc_segment_map(client, &spec, ret_segment, fault);
}

static int granted_tensor_new(struct tidl_client *client, const struct tdp_granted *granted,
			      const char *name, uint64_t nbytes, struct tidl_tensor **ret_tensor,
			      struct tdp_fault *fault)
{
	const struct tdp_tensor *tensor = &granted->tensors[0];
	struct tdc_tensor_spec spec = {
		.dtype = tensor->dtype,
		.ndim = tensor->ndim,
		.shape = tensor->shape,
		.strides = tensor->strides,
		.flags = tensor->flags & TDP_LAYOUT_SUBBYTE_PADDED,
		.attach = granted->attach,
		.access = granted->access,
		.generation = granted->generation,
		.nbytes = nbytes,
		.owner_uid = granted->owner_uid,
		.name = name,
		.metadata = granted->metadata,
	};

	return tdc_tensor_new(client, &spec, ret_tensor, fault);
}

/* From a grant to a tensor over mapped memory. The lease is taken over in any case. */
static int granted_accept(struct tidl_client *client, struct tdc_reply *reply,
			  struct tdc_lease *lease, const struct tdc_attach_request *request,
			  struct tidl_tensor **ret_tensor, struct tdp_fault *fault)
{
	const struct tdp_granted *granted = &reply->message.granted;
	tdc_auto_tensor *tensor = NULL;
	struct tdp_extent extent;
	int r;

	lease->id = granted->lease_id;
	lease->era = reply->era;
	r = granted_check(granted, reply, request->attach, fault);
	if (r == 0)
		r = granted_measure(granted, &extent, fault);
	if (r == 0)
		r = granted_tensor_new(client, granted, request->name->path, extent.nbytes, &tensor,
				       fault);
	if (r < 0) {
		tdc_lease_end(client, lease);
		return r;
	}
	tensor->lease = lease;
	if (!extent.is_empty) {
		const struct tdp_tensor *wire = &granted->tensors[0];

		r = granted_map(client, reply, &tensor->segment, fault);
		if (r < 0)
			return r;
		tensor->data = (unsigned char *)tensor->segment->base +
			       (wire->byte_offset - tensor->segment->data_offset_bytes);
	}
	*ret_tensor = tensor;
	tensor = NULL;
	return 0;
}

static int attach_expired(const struct tdc_attach_request *request, struct tdp_fault *fault)
{
	return tdp_fault_set(fault, TIDL_ERR_TIMEOUT,
			     "nothing that you may read was published as '%s' within %lld ms: "
			     "wait longer, or check that its publisher runs",
			     request->name->path, (long long)request->timeout_ms);
}

int tdc_attach(struct tidl_client *client, const struct tdc_attach_request *request,
	       struct tidl_tensor **ret_tensor, struct tdp_fault *fault)
{
	struct tdp_message message = {
		.kind = TDP_MESSAGE_GET,
		.get = {.name = request->name->path,
			.has_owner = request->name->has_owner,
			.owner_uid = request->name->owner_uid,
			.attach = request->attach,
			.wait = request->timeout_ms != 0,
			.generation = request->generation},
	};
	int64_t deadline =
		request->timeout_ms == 0 ? TDC_ANSWER_DUE : tdc_deadline_after(request->timeout_ms);
	struct tdc_lease *lease;
	tdc_auto_reply *reply = NULL;
	int r = tdc_lease_new(TDC_LEASE_PUBLICATION, &lease, fault);

	if (r < 0)
		return r;
	r = tdc_call(client, &message, deadline, TDP_MESSAGE_GRANTED, &reply, fault);
	if (r != 0) {
		tdc_lease_end(client, lease);
		return r == TDC_CALL_EXPIRED ? attach_expired(request, fault) : r;
	}
	return granted_accept(client, reply, lease, request, ret_tensor, fault);
}
