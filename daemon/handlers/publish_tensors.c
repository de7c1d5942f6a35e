/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of a PUBLISH against the segments that they lie in. */
#include <inttypes.h>

#include "daemon/handlers/publish.h"
#include "proto/base/checked.h"
#include "proto/tensor/layout.h"

/* The bytes of its segment that a tensor may touch: the data, never the control page. */
static int find_window(const struct tdp_publish *publish, const struct tdp_tensor *tensor,
		       struct tdd_draft *draft, struct tdp_memfd_geometry *ret_window,
		       struct tdp_fault *fault)
{
	*ret_window = (struct tdp_memfd_geometry){0};
	if (tensor->segment_index < 0)
		return 0;
	if ((uint64_t)tensor->segment_index >= publish->segment_count)
		return tdp_fault_set(fault, TIDL_ERR_LAYOUT,
				     "the tensor of \"%s\" lies in segment %" PRId64
				     " of %zu: count from 0",
				     publish->name, tensor->segment_index, publish->segment_count);
	draft->is_used[tensor->segment_index] = true;
	*ret_window = draft->segments[tensor->segment_index]->geometry;
	return 0;
}

static int check_tensor(const struct tdp_publish *publish, const struct tdp_tensor *tensor,
			struct tdd_draft *draft, struct tdp_fault *fault)
{
	struct tdp_layout layout = {
		.dtype = tensor->dtype,
		.ndim = tensor->ndim,
		.shape = tensor->shape,
		.strides = tensor->strides,
		.byte_offset = tensor->byte_offset,
		.flags = tensor->flags,
	};
	struct tdp_memfd_geometry window;
	struct tdp_extent extent;
	int r = find_window(publish, tensor, draft, &window, fault);

	if (r < 0)
		return r;
	r = tdp_layout_check(&layout, window.data_offset_bytes,
			     window.data_offset_bytes + window.data_size_bytes, &extent, fault);
	if (r < 0)
		return r;
	if (extent.is_empty && tensor->segment_index >= 0)
		return tdp_fault_set(fault, TIDL_ERR_LAYOUT,
				     "the tensor of \"%s\" has no elements, but a segment: publish "
				     "it without",
				     publish->name);
	if (!tdp_add_u64(draft->spec.tensor_bytes, extent.nbytes, &draft->spec.tensor_bytes))
		return tdp_fault_set(fault, TIDL_ERR_LAYOUT,
				     "the tensors of \"%s\" are larger than any memory",
				     publish->name);
	return 0;
}

int tdd_draft_check_tensors(const struct tdp_publish *publish, struct tdd_draft *draft,
			    struct tdp_fault *fault)
{
	for (size_t i = 0; i < publish->tensor_count; i++) {
		int r = check_tensor(publish, &publish->tensors[i], draft, fault);

		if (r < 0)
			return r;
	}
	for (size_t i = 0; i < publish->segment_count; i++) {
		if (!draft->is_used[i])
			return tdp_fault_set(fault, TIDL_ERR_LAYOUT,
					     "segment %" PRIu64 " of \"%s\" is used by no tensor: "
					     "leave it out",
					     draft->segments[i]->id, publish->name);
	}
	return 0;
}
