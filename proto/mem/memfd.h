/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDP_MEM_MEMFD_H
#define TDP_MEM_MEMFD_H

#include <stdint.h>

#include "proto/base/attr.h"
#include "proto/base/fault.h"

/*
 * A segment of host memory: one memfd. Layout: data, rounded up to pages, then one control page.
 */
struct tdp_memfd_geometry {
	uint64_t size_bytes;
	uint64_t data_offset_bytes;
	uint64_t data_size_bytes; /* rounded up to pages */
	uint64_t control_offset_bytes;
};

/* Where things lie in a segment for @data_bytes of payload. TIDL_ERR_LIMIT when it overflows. */
int tdp_memfd_plan(uint64_t data_bytes, struct tdp_memfd_geometry *ret_geometry,
		   struct tdp_fault *fault) TDP_MUST_CHECK;

/*
 * Create the memfd (close-on-exec, not executable, mode 0400, SHRINK and GROW sealed) and a second,
 * read-only description of it. No pages are reserved: the client does that, so that its cgroup
 * pays.
 * @name shows up in /proc/PID/maps.
 */
int tdp_memfd_create(const char *name, uint64_t size_bytes, int *ret_write_fd, int *ret_read_fd,
		     struct tdp_fault *fault) TDP_MUST_CHECK;

/* The F_SEAL_* bits of a descriptor, or TIDL_ERR_SEGMENT_BAD when it is not sealable memory. */
int tdp_memfd_seals(int fd, uint32_t *ret_seals, struct tdp_fault *fault) TDP_MUST_CHECK;

/*
 * Is this received descriptor shared memory of at least @size_bytes that can never shrink? Asks for
 * the seals first and the size after: only a sealed size is stable, and fstat() on something that
 * is not memory (a FUSE file) can hang for ever. TIDL_ERR_SEGMENT_BAD otherwise.
 */
int tdp_memfd_verify(int fd, uint64_t size_bytes, struct tdp_fault *fault) TDP_MUST_CHECK;

/* An empty memfd, close-on-exec, sealable, not executable where the kernel can tell; or -1 and
 * errno. */
int tdp_memfd_open(const char *name) TDP_MUST_CHECK;

uint64_t tdp_page_bytes(void);

#endif
