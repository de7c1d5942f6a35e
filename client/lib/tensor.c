/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors: a description, and what keeps its memory. Counted by the user and by exports. Knows
 * neither the broker nor leases: those belong to the origin.
 */
#include "client/lib/tensor.h"

#include <stdlib.h>
#include <string.h>

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

int tdc_tensor_new(struct tdc_origin *origin, const struct tdc_tensor_spec *spec,
		   struct tidl_tensor **ret_tensor, struct tdp_fault *fault)
{
	size_t extents_bytes = 2 * (size_t)spec->ndim * sizeof(int64_t);
	size_t key_bytes = spec->key ? strlen(spec->key) + 1 : 0;
	struct tidl_tensor *tensor = calloc(1, sizeof(*tensor) + extents_bytes + key_bytes);

	if (tensor == NULL)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	atomic_init(&tensor->refs, 1);
	tensor->origin = tdc_origin_ref(origin);
	tensor->dtype = spec->dtype;
	tensor->ndim = spec->ndim;
	tensor->flags = spec->flags;
	tensor->nbytes = spec->nbytes;
	tensor_fill_extents(tensor, spec);
	if (key_bytes > 0)
		tensor->key = memcpy((unsigned char *)tensor->extents + extents_bytes, spec->key,
				     key_bytes);
	*ret_tensor = tensor;
	return 0;
}

void tdc_tensor_place(struct tidl_tensor *tensor, struct tdc_segment *segment,
		      uint64_t offset_bytes)
{
	tensor->segment = segment;
	tensor->data = (unsigned char *)segment->base + (offset_bytes - segment->data_offset_bytes);
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
	(void)tdc_origin_unref(tensor->origin);
	free(tensor);
	return NULL;
}
