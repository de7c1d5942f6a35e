/* SPDX-License-Identifier: Apache-2.0 */
/* From which size on malloc gives a block pages of its own. Touches no memory that it allocates. */
#include "client/lib/inplace/threshold.h"

#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>

#include "client/lib/inplace/allocator.h"
#include "client/lib/inplace/range.h"

/* The largest threshold that glibc takes (HEAP_MAX_SIZE / 2 of 64-bit systems). */
#define THRESHOLD_MAX_BYTES ((size_t)32 << 20)

/* Would a block of this size still come from the heap, because there is room? */
static bool size_is_late(size_t size_bytes)
{
	void *probe = malloc(size_bytes);
	uintptr_t begin;
	uintptr_t end;
	bool is_late = false;

	if (probe != NULL) {
		/* The compiler takes the address alone for a read of what is there. */
		*(volatile char *)probe = 0;
		is_late = !tdc_block_is_mapped_alone(probe, &begin, &end);
	}
	free(probe);
	return is_late;
}

int tdc_prefer_shareable(size_t min_bytes, size_t *ret_from_bytes, struct tdp_fault *fault)
{
	enum tidl_copy_reason reason = tdc_malloc_refusal();
	size_t from_bytes = min_bytes;

	if (reason == TIDL_COPY_REASON_UNSURE)
		return tdp_fault_set(fault, TIDL_ERR_NO_MEMORY,
				     "there is too little memory to find out whose malloc this "
				     "process has (64 MiB, for a moment): try again with more");
	if (reason != TIDL_COPY_REASON_NONE)
		return tdp_fault_set(fault, TIDL_ERR_UNSUPPORTED,
				     "this process's malloc is not glibc's own, so it cannot be "
				     "asked for shareable blocks: allocate tensors through the "
				     "client");
	if (min_bytes > THRESHOLD_MAX_BYTES || mallopt(M_MMAP_THRESHOLD, (int)min_bytes) == 0)
		return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT,
				     "malloc takes no threshold of %zu bytes, only up to %zu",
				     min_bytes, THRESHOLD_MAX_BYTES);
	/* Room in the heap is used before anything is mapped, whatever the threshold. */
	for (size_t size = min_bytes; size <= THRESHOLD_MAX_BYTES; size *= 2) {
		if (size_is_late(size))
			from_bytes = 2 * size;
	}
	*ret_from_bytes = from_bytes;
	return 0;
}
