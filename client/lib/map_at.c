/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tensor's pages once more, where the caller wants them: under memory that a framework has laid
 * out by itself. The pages stay the framework's, which unmaps them when it frees them; nothing here
 * remembers or undoes them.
 */
#include "client/lib/map_at.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>

#include "client/lib/client.h"
#include "client/lib/open.h"
#include "proto/mem/memfd.h"
#include "proto/tensor/layout.h"

/* What is to be shown: pages of the segment, and how. */
struct page_range {
	uint64_t offset_bytes; /* in the memfd */
	int protection;
	int flags;
};

/* The page that the tensor's lowest byte lies in, from the start of the segment's data. */
static int first_page(const struct tidl_tensor *tensor, uint64_t *ret_offset_bytes,
		      struct tdp_fault *fault)
{
	const struct tdc_segment *segment = tensor->segment;
	const struct tdp_layout layout = {
		.dtype = tensor->dtype,
		.ndim = tensor->ndim,
		.shape = tensor->shape,
		.strides = tensor->strides,
		.byte_offset = (uint64_t)((uintptr_t)tensor->data - (uintptr_t)segment->base),
		.flags = tensor->flags,
	};
	struct tdp_extent extent;
	int r = tdp_layout_check(&layout, 0, segment->map_bytes, &extent, fault);

	if (r < 0)
		return r;
	*ret_offset_bytes = extent.begin_bytes & ~(tdp_page_bytes() - 1);
	return 0;
}

static int map_at_check(const struct tidl_tensor *tensor, const void *address, size_t size_bytes,
			uint64_t *ret_offset_bytes, struct tdp_fault *fault)
{
	uint64_t page_mask = tdp_page_bytes() - 1;
	uint64_t offset_bytes;
	int r;

	if (tensor->segment == NULL)
		return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT,
				     "a tensor without elements has no memory: use one with "
				     "elements");
	if (size_bytes == 0 || (((uintptr_t)address | size_bytes) & page_mask) != 0)
		return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT,
				     "only whole pages can be mapped: round address and size to "
				     "%llu bytes",
				     (unsigned long long)(page_mask + 1));
	r = first_page(tensor, &offset_bytes, fault);
	if (r < 0)
		return r;
	if (size_bytes > tensor->segment->map_bytes - offset_bytes)
		return tdp_fault_set(
			fault, TIDL_ERR_INVALID_ARGUMENT,
			"%zu bytes are more than the tensor's memory has from its "
			"first page on: map %llu at most",
			size_bytes,
			(unsigned long long)(tensor->segment->map_bytes - offset_bytes));
	*ret_offset_bytes = offset_bytes;
	return 0;
}

static int map_at_fail(int error, void *address, size_t size_bytes, struct tdp_fault *fault)
{
	/* The kernel may have taken the old pages away already. What is a hole gets empty pages, so
	 * that nobody else's come to lie there; what is still mapped is left as it is. */
	(void)mmap(address, size_bytes, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (error == EPERM || error == EACCES)
		return tdp_fault_set(fault, TIDL_ERR_ACCESS,
				     "live memory takes no new writable maps, not even of its "
				     "producer: map it before it is published");
	return tdp_fault_errno(fault, error, "cannot map %zu bytes", size_bytes);
}

static int range_map(const struct page_range *range, int fd, void *address, size_t size_bytes,
		     struct tdp_fault *fault)
{
	if (mmap(address, size_bytes, range->protection, range->flags | MAP_FIXED, fd,
		 (off_t)range->offset_bytes) != MAP_FAILED)
		return 0;
	return map_at_fail(errno, address, size_bytes, fault);
}

int tdc_tensor_map_at(const struct tidl_tensor *tensor, void *address, size_t size_bytes,
		      struct tdp_fault *fault)
{
	enum tidl_attach attach = tidl_tensor_attach(tensor);
	struct page_range range = {
		.protection = attach == TIDL_ATTACH_READ ? PROT_READ : PROT_READ | PROT_WRITE,
		.flags = attach == TIDL_ATTACH_COPY_ON_WRITE ? MAP_PRIVATE : MAP_SHARED,
	};
	tdc_auto_opened opened = TDC_OPENED_NONE;
	int r = map_at_check(tensor, address, size_bytes, &range.offset_bytes, fault);

	if (r == 0)
		r = tdc_open(tensor->origin->client, tensor->origin->lease, tensor->segment,
			     &opened, fault);
	if (r < 0)
		return r;
	range.offset_bytes += tensor->segment->data_offset_bytes;
	return range_map(&range, attach == TIDL_ATTACH_WRITE ? opened.write_fd : opened.read_fd,
			 address, size_bytes, fault);
}
