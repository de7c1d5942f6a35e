/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which pages may be exchanged under a block of memory. Blocks of malloc from some size on are maps
 * of their own in glibc, and say so in the header in front of them. Believes no header before it
 * knows whose malloc made it and that the kernel shows the pages as private memory. Changes
 * nothing.
 */
#include "client/lib/inplace/range.h"

#include <string.h>

#include "client/lib/inplace/allocator.h"
#include "proto/mem/memfd.h"

/* Room behind a block that its alignment may account for. */
#define SLACK_MAX_BYTES ((uintptr_t)1 << 16)

/* Bits of a chunk's size in glibc's malloc. */
enum { CHUNK_IS_MAPPED = 2, CHUNK_FLAGS = 7 };

static const char *refusal_sentence(enum tidl_copy_reason reason)
{
	switch (reason) {
	case TIDL_COPY_REASON_HEAP:
		return "the memory lies on malloc's heap, whose pages it shares with other data: "
		       "call tidl_prefer_shareable() before it is allocated, or allocate it "
		       "through the client";
	case TIDL_COPY_REASON_POOL:
		return "the memory is no block of its own, so its pages may hold other data: "
		       "allocate it through the client, or allow a copy";
	case TIDL_COPY_REASON_ALLOCATOR:
		return "this process's malloc is not glibc's own, so nobody knows where the "
		       "memory ends: allocate it through the client, or allow a copy";
	case TIDL_COPY_REASON_UNSURE:
		return "there is too little memory to find out whose malloc this process has (64 "
		       "MiB, for a moment): try again with more (RLIMIT_AS), or allow a copy";
	case TIDL_COPY_REASON_NOT_WRITABLE:
		return "the memory is mapped read-only: allocate it through the client, or allow "
		       "a copy";
	case TIDL_COPY_REASON_HUGETLB:
		return "the memory is made of huge pages, which a segment has none of: allow a "
		       "copy";
	case TIDL_COPY_REASON_PINNED:
		return "the memory is pinned to its pages (locked, or registered with a device): "
		       "unpin it, or allow a copy";
	case TIDL_COPY_REASON_SMALL:
		return "the tensor is too small to have pages of its own: allocate it through the "
		       "client, or allow a copy";
	default:
		return "the memory is a map of a file or of other memory, not the process's own: "
		       "allow a copy";
	}
}

int tdc_range_refuse(enum tidl_copy_reason reason, struct tdp_fault *fault)
{
	(void)tdp_fault_set(fault, TIDL_ERR_COPY_NEEDED, "%s", refusal_sentence(reason));
	fault->detail = (int)reason;
	return TIDL_ERR_COPY_NEEDED;
}

bool tdc_block_is_mapped_alone(const void *address, uintptr_t *ret_begin, uintptr_t *ret_end)
{
	uintptr_t page_mask = (uintptr_t)tdp_page_bytes() - 1;
	uintptr_t begin;
	uintptr_t end;
	size_t words[2]; /* what lies before in the map, and the size */

	memcpy(words, (const unsigned char *)address - sizeof(words), sizeof(words));
	if ((words[1] & CHUNK_FLAGS) != CHUNK_IS_MAPPED)
		return false;
	if (__builtin_sub_overflow((uintptr_t)address - sizeof(words), words[0], &begin) ||
	    __builtin_add_overflow((uintptr_t)address - sizeof(words),
				   words[1] & ~(size_t)CHUNK_FLAGS, &end))
		return false;
	if (((begin | end) & page_mask) != 0 || end <= (uintptr_t)address)
		return false;
	*ret_begin = begin;
	*ret_end = end;
	return true;
}

/* Why malloc's block has no map of its own. */
static enum tidl_copy_reason block_shared_reason(const struct tidl_block *block)
{
	return block->bytes < TIDL_SHAREABLE_MIN_BYTES ? TIDL_COPY_REASON_SMALL
						       : TIDL_COPY_REASON_POOL;
}

static int block_refuse(const struct tidl_block *block, enum tidl_copy_reason reason,
			struct tdp_fault *fault)
{
	if (reason == TIDL_COPY_REASON_HEAP && block->bytes < TIDL_SHAREABLE_MIN_BYTES)
		reason = TIDL_COPY_REASON_SMALL;
	return tdc_range_refuse(reason, fault);
}

/* The first tensor of a pool's region has malloc's header in front of it, too; the region goes on
 * behind it. Aligned blocks may have as much room behind them as before. */
static bool block_fills(const struct tidl_block *block, uintptr_t address, uintptr_t end)
{
	uintptr_t alignment = address & -address;
	uintptr_t slack_bytes = end - address - block->bytes;

	if (alignment > SLACK_MAX_BYTES)
		alignment = SLACK_MAX_BYTES;
	return block->bytes <= end - address && slack_bytes < 2 * tdp_page_bytes() + alignment;
}

static int range_of_malloc(const struct tdc_maps *maps, const struct tidl_block *block,
			   struct tdc_range *ret_range, struct tdp_fault *fault)
{
	uintptr_t page_mask = (uintptr_t)tdp_page_bytes() - 1;
	uintptr_t address = (uintptr_t)block->address;
	struct tdc_range range = {.header = NULL};
	enum tidl_copy_reason reason;
	uintptr_t begin;
	uintptr_t end;

	if (address < TDC_HEADER_BYTES || address % sizeof(void *) != 0)
		return tdc_range_refuse(TIDL_COPY_REASON_POOL, fault);
	reason = tdc_malloc_refusal();
	if (reason != TIDL_COPY_REASON_NONE)
		return tdc_range_refuse(reason, fault);
	reason = tdc_maps_refusal(maps, address - TDC_HEADER_BYTES, address + 1);
	if (reason != TIDL_COPY_REASON_NONE)
		return block_refuse(block, reason, fault);
	if (!tdc_block_is_mapped_alone(block->address, &begin, &end))
		return block_refuse(block, block_shared_reason(block), fault);
	if (!block_fills(block, address, end))
		return tdc_range_refuse(TIDL_COPY_REASON_POOL, fault);
	/* A header on a page before the data stays where nobody else can write it. */
	begin = address & ~page_mask;
	range.begin = (unsigned char *)block->address - (address - begin);
	range.size_bytes = end - begin;
	range.content_begin = address;
	range.content_end = address + block->bytes;
	if (address != begin) {
		range.header = (unsigned char *)block->address - TDC_HEADER_BYTES;
		memcpy(range.saved_header, range.header, TDC_HEADER_BYTES);
	}
	*ret_range = range;
	return 0;
}

static int range_of_pages(const struct tidl_block *block, struct tdc_range *ret_range,
			  struct tdp_fault *fault)
{
	uint64_t page_mask = tdp_page_bytes() - 1;

	if ((((uintptr_t)block->address | block->bytes) & page_mask) != 0 || block->bytes == 0 ||
	    block->bytes > PTRDIFF_MAX)
		return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT,
				     "a block of pages must begin and end on page boundaries: "
				     "round it");
	*ret_range = (struct tdc_range){
		.begin = block->address,
		.size_bytes = block->bytes,
		.content_begin = (uintptr_t)block->address,
		.content_end = (uintptr_t)block->address + block->bytes,
	};
	return 0;
}

int tdc_range_find(const struct tdc_maps *maps, const struct tidl_block *block,
		   struct tdc_range *ret_range, struct tdp_fault *fault)
{
	struct tdc_range range;
	int r = block->kind == TIDL_BLOCK_PAGES ? range_of_pages(block, &range, fault)
						: range_of_malloc(maps, block, &range, fault);

	if (r == 0)
		r = tdc_range_check(maps, &range, fault);
	if (r == 0)
		*ret_range = range;
	return r;
}

int tdc_range_check(const struct tdc_maps *maps, const struct tdc_range *range,
		    struct tdp_fault *fault)
{
	uintptr_t begin = (uintptr_t)range->begin;
	enum tidl_copy_reason reason = tdc_maps_refusal(maps, begin, begin + range->size_bytes);

	return reason == TIDL_COPY_REASON_NONE ? 0 : tdc_range_refuse(reason, fault);
}
