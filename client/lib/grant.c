/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the broker grants is checked against what was asked for and against the memory that came
 * with it, row by row and segment by segment, before anybody sees a tensor of it. Asks nothing
 * itself.
 */
#include "client/lib/grant.h"

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
	for (size_t i = 0; i < granted->segment_count; i++) {
		int r = tdc_segment_check(&granted->segments[i], fault);

		if (r < 0)
			return r;
	}
	return 0;
}

static struct tdp_layout row_layout(const struct tdp_tensor *row)
{
	return (struct tdp_layout){
		.dtype = row->dtype,
		.ndim = row->ndim,
		.shape = row->shape,
		.strides = row->strides,
		.byte_offset = row->byte_offset,
		.flags = row->flags,
	};
}

/* Does the tensor lie in its segment? A window of nothing is right for one without. */
static int row_measure(const struct tdp_granted *granted, const struct tdp_tensor *row,
		       struct tdp_extent *ret_extent, struct tdp_fault *fault)
{
	struct tdp_layout layout = row_layout(row);
	uint64_t window_begin = 0;
	uint64_t window_end = 0;

	if (row->segment_index >= (int64_t)granted->segment_count)
		return tdp_fault_set(fault, TIDL_ERR_PROTOCOL,
				     "a tensor in a segment that is not there");
	if (row->segment_index >= 0) {
		const struct tdp_segment *segment = &granted->segments[row->segment_index];

		window_begin = segment->data_offset_bytes;
		window_end = window_begin + segment->data_size_bytes;
	}
	return tdp_layout_check(&layout, window_begin, window_end, ret_extent, fault);
}

static int granted_check_rows(const struct tdp_granted *granted, struct tdp_fault *fault)
{
	struct tdp_extent extent;
	struct tdp_fault refusal;

	for (size_t i = 0; i < granted->tensor_count; i++) {
		if (row_measure(granted, &granted->tensors[i], &extent, &refusal) < 0)
			return granted_refuse(refusal.text, fault);
	}
	return 0;
}

/* The segment, mapped now or before. */
static int segment_attach(struct tidl_client *client, const struct tdc_segment_spec *spec,
			  struct tdc_segment **ret_segment, struct tdp_fault *fault)
{
	struct tdc_segment *segment = tdc_segment_find(client, spec->wire, spec->era, spec->attach);
	int r;

	if (segment != NULL && atomic_load(&segment->access) == (int)spec->access) {
		*ret_segment = segment;
		return 0;
	}
	/* What was mapped before it was known to be published is verified now. */
	r = tdc_segment_verify(spec->wire, spec->fd, spec->access, fault);
	if (segment == NULL)
		return r < 0 ? r : tdc_segment_map(client, spec, ret_segment, fault);
	if (r < 0) {
		(void)tdc_segment_unref(client, segment);
		return r;
	}
	atomic_store(&segment->access, (int)spec->access);
	*ret_segment = segment;
	return 0;
}

static int granted_map(struct tidl_client *client, struct tdc_reply *reply,
		       struct tdc_origin *origin, struct tdp_fault *fault)
{
	const struct tdp_granted *granted = &reply->message.granted;

	for (size_t i = 0; i < granted->segment_count; i++) {
		struct tdc_segment_spec spec = {
			.wire = &granted->segments[i],
			.fd = reply->fds.fds[i],
			.era = reply->era,
			.attach = granted->attach,
			.owner_uid = granted->segment_owner_uid,
			.access = granted->access,
		};
		int r = segment_attach(client, &spec, &origin->segments[i], fault);

		if (r < 0)
			return r;
	}
	return 0;
}

static int granted_origin_new(struct tidl_client *client, const struct tdp_granted *granted,
			      const char *name, struct tdc_origin **ret_origin,
			      struct tdp_fault *fault)
{
	struct tdc_origin_spec spec = {
		.attach = granted->attach,
		.access = granted->access,
		.generation = granted->generation,
		.owner_uid = granted->owner_uid,
		.name = name,
		.metadata = granted->metadata,
		.segment_count = granted->segment_count,
	};

	return tdc_origin_new(client, &spec, ret_origin, fault);
}

int tdc_grant_init(struct tidl_client *client, const struct tdc_grant_request *request,
		   struct tdc_reply *reply, struct tdc_lease *lease, struct tdc_grant *ret_grant,
		   struct tdp_fault *fault)
{
	const struct tdp_granted *granted = &reply->message.granted;
	tdc_auto_origin *origin = NULL;
	int r;

	lease->id = granted->lease_id;
	lease->era = reply->era;
	r = granted_check(granted, reply, request->attach, fault);
	if (r == 0)
		r = granted_check_rows(granted, fault);
	if (r == 0)
		r = granted_origin_new(client, granted, request->name, &origin, fault);
	if (r < 0) {
		tdc_lease_end(client, lease);
		return r;
	}
	origin->lease = lease;
	r = granted_map(client, reply, origin, fault);
	if (r < 0)
		return r;
	tdp_fdset_deinit(&reply->fds);
	*ret_grant = (struct tdc_grant){
		.origin = origin,
		.reply = reply,
		.row_count = granted->tensor_count,
		.rows = granted->tensors,
	};
	origin = NULL;
	return 0;
}

int tdc_grant_tensor(const struct tdc_grant *grant, size_t index, struct tidl_tensor **ret_tensor,
		     struct tdp_fault *fault)
{
	const struct tdp_tensor *row = &grant->rows[index];
	struct tdc_tensor_spec spec = {
		.dtype = row->dtype,
		.ndim = row->ndim,
		.shape = row->shape,
		.strides = row->strides,
		.flags = row->flags & TDP_LAYOUT_SUBBYTE_PADDED,
	};
	struct tdp_extent extent;
	int r = row_measure(&grant->reply->message.granted, row, &extent, fault);

	if (r < 0)
		return r;
	spec.nbytes = extent.nbytes;
	r = tdc_tensor_new(grant->origin, &spec, ret_tensor, fault);
	if (r == 0 && !extent.is_empty)
		tdc_tensor_place(*ret_tensor, grant->origin->segments[row->segment_index],
				 row->byte_offset);
	return r;
}

void tdc_grant_deinit(struct tdc_grant *grant)
{
	grant->origin = tdc_origin_unref(grant->origin);
	grant->reply = tdc_reply_free(grant->reply);
}
