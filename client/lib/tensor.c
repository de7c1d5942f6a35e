/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors: a description, the segment it lies in and the lease that keeps it. Counted by the user
 * and by exports. Does not talk to the broker: ending the lease does.
 */
#include "client/lib/tensor.h"

#include <stdlib.h>
#include <string.h>

#include "client/lib/client.h"
#include "proto/tensor/layout.h"

static void tensor_fill_extents(struct tidl_tensor *tensor, const struct tdc_tensor_spec *spec)
{
	tensor->shape = tensor->extents;
	tensor->strides = tensor->extents + spec->ndim;
	if (spec->ndim == 0)
		return;
	memcpy(tensor->shape, spec->shape, spec->ndim * sizeof(int64_t));
	if (spec->strides == NULL)
		tdp_layout_compact_strides(spec->ndim, spec->shape, tensor->strides);
	else
		tdp_layout_normal_strides(spec->ndim, spec->shape, spec->strides, tensor->strides);
}

static int tensor_fill_texts(struct tidl_tensor *tensor, const struct tdc_tensor_spec *spec)
{
	if (spec->name != NULL) {
		tensor->name = strdup(spec->name);
		if (tensor->name == NULL)
			return TIDL_ERR_NO_MEMORY;
	}
	if (spec->metadata != NULL) {
		tensor->metadata = strdup(spec->metadata);
		if (tensor->metadata == NULL)
			return TIDL_ERR_NO_MEMORY;
	}
	return 0;
}

int tdc_tensor_new(struct tidl_client *client, const struct tdc_tensor_spec *spec,
		   struct tidl_tensor **ret_tensor, struct tdp_fault *fault)
{
	struct tidl_tensor *tensor =
		calloc(1, sizeof(*tensor) + 2 * (size_t)spec->ndim * sizeof(int64_t));

	if (tensor == NULL)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	atomic_init(&tensor->refs, 1);
	tensor->client = tdc_client_ref(client);
	tensor->dtype = spec->dtype;
	tensor->ndim = spec->ndim;
	tensor->flags = spec->flags;
	tensor->attach = spec->attach;
	tensor->access = spec->access;
	tensor->generation = spec->generation;
	tensor->nbytes = spec->nbytes;
	tensor->owner_uid = spec->owner_uid;
	tensor_fill_extents(tensor, spec);
	if (tensor_fill_texts(tensor, spec) < 0) {
		(void)tidl_tensor_unref(tensor);
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	}
	*ret_tensor = tensor;
	return 0;
}

struct tidl_tensor *tidl_tensor_ref(struct tidl_tensor *tensor)
{
	if (tensor != NULL)
		atomic_fetch_add_explicit(&tensor->refs, 1, memory_order_relaxed);
	return tensor;
}

struct tidl_tensor *tidl_tensor_unref(struct tidl_tensor *tensor)
{
	if (tensor == NULL ||
	    atomic_fetch_sub_explicit(&tensor->refs, 1, memory_order_acq_rel) != 1)
		return NULL;
	/* Unmap first: once the lease is back, the broker may promise others that nobody writes. */
	(void)tdc_segment_unref(tensor->client, tensor->segment);
	tdc_lease_end(tensor->client, tensor->lease);
	(void)tdc_client_unref(tensor->client);
	free(tensor->metadata);
	free(tensor->name);
	free(tensor);
	return NULL;
}
