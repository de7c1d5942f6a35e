/* SPDX-License-Identifier: Apache-2.0 */
/* New tensors in shareable memory: allocated by the broker, paid for and mapped here. */
#include "client/lib/empty.h"

#include "client/lib/allocation.h"
#include "client/lib/client.h"
#include "client/lib/huge.h"
#include "client/lib/tensor.h"
#include "proto/tensor/layout.h"

static int empty_measure(const struct tdc_tensor_spec *spec, struct tdp_extent *ret_extent,
			 struct tdp_fault *fault)
{
	struct tdp_layout layout = {
		.dtype = spec->dtype,
		.ndim = spec->ndim,
		.shape = spec->shape,
	};

	return tdp_layout_check(&layout, 0, UINT64_MAX, ret_extent, fault);
}

/* Reserve and map; the tensor's origin takes the hold over with the map. */
static int empty_fill(struct tidl_client *client, struct tidl_tensor *tensor,
		      struct tdc_allocation *allocation, struct tdp_fault *fault)
{
	struct tdc_origin *origin = tensor->origin;
	struct tdc_segment_spec spec = {
		.wire = &allocation->wire,
		.fd = allocation->fd,
		.era = allocation->lease->era,
		.attach = TIDL_ATTACH_WRITE,
		.owner_uid = origin->owner_uid,
		.is_allocated = true,
	};
	bool is_huge = tdc_huge_is_allowed(allocation->wire.data_size_bytes);
	struct tdc_segment *segment;
	int r = is_huge ? 0 : tdc_allocation_reserve(client, allocation, fault);

	if (r == 0)
		r = tdc_segment_map(client, &spec, &origin->segments[0], fault);
	if (r < 0)
		return r;
	segment = origin->segments[0];
	if (is_huge)
		r = tdc_huge_reserve(client, segment->base, segment->map_bytes, fault);
	if (r < 0)
		return r;
	tdc_tensor_place(tensor, origin->segments[0], allocation->wire.data_offset_bytes);
	origin->lease = allocation->lease;
	allocation->lease = NULL;
	return 0;
}

static int empty_allocate(struct tidl_client *client, struct tidl_tensor *tensor,
			  struct tdp_fault *fault)
{
	struct tdc_allocation allocation;
	int r = tdc_allocate(client, tensor->nbytes, &allocation, fault);

	if (r < 0)
		return r;
	r = empty_fill(client, tensor, &allocation, fault);
	tdc_allocation_deinit(client, &allocation);
	return r;
}

static int empty_new(struct tidl_client *client, const struct tdc_tensor_spec *spec,
		     struct tidl_tensor **ret_tensor, struct tdp_fault *fault)
{
	struct tdc_origin_spec origin_spec = {
		.attach = TIDL_ATTACH_WRITE,
		.access = TIDL_ACCESS_SHARED,
		.segment_count = 1,
	};
	tdc_auto_origin *origin = NULL;
	int r = tdc_client_lock_open(client, fault);

	if (r < 0)
		return r;
	origin_spec.owner_uid = client->broker.uid;
	tdc_client_unlock(client);
	r = tdc_origin_new(client, &origin_spec, &origin, fault);
	return r < 0 ? r : tdc_tensor_new(origin, spec, ret_tensor, fault);
}

int tdc_empty(struct tidl_client *client, uint32_t ndim, const int64_t *shape,
	      struct tidl_dtype dtype, struct tidl_tensor **ret_tensor, struct tdp_fault *fault)
{
	struct tdc_tensor_spec spec = {.dtype = dtype, .ndim = ndim, .shape = shape};
	tdc_auto_tensor *tensor = NULL;
	struct tdp_extent extent;
	int r = empty_measure(&spec, &extent, fault);

	if (r < 0)
		return r;
	spec.nbytes = extent.nbytes;
	r = empty_new(client, &spec, &tensor, fault);
	if (r == 0 && !extent.is_empty)
		r = empty_allocate(client, tensor, fault);
	if (r < 0)
		return r;
	*ret_tensor = tensor;
	tensor = NULL;
	return 0;
}
