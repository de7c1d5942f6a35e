/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDP_MEM_SEALED_H
#define TDP_MEM_SEALED_H

#include <stddef.h>

#include "proto/base/attr.h"
#include "proto/base/fault.h"

/*
 * Bytes that travel as a descriptor and can never change: a memfd with the seals SHRINK, GROW,
 * WRITE and SEAL. It is read with pread(), never mapped.
 */

int tdp_sealed_create(const char *name, const void *bytes, size_t size_bytes, int *ret_fd,
		      struct tdp_fault *fault) TDP_MUST_CHECK;

/*
 * Is a received descriptor such a memfd, and how large is it? Asks for the seals first, since
 * fstat() on something that is not memory can hang for ever. TIDL_ERR_SEGMENT_BAD when it is not,
 * or is empty, or has more than @max_bytes.
 */
int tdp_sealed_verify(int fd, size_t max_bytes, size_t *ret_size_bytes,
		      struct tdp_fault *fault) TDP_MUST_CHECK;

/* All bytes of a part of a verified one. */
int tdp_sealed_read(int fd, void *buffer, size_t size_bytes, size_t offset_bytes,
		    struct tdp_fault *fault) TDP_MUST_CHECK;

#endif
