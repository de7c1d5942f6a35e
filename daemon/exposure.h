/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_EXPOSURE_H
#define TDD_EXPOSURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/attr.h"
#include "proto/base/fault.h"
#include "proto/tensor/layout.h"

/*
 * What a publication shows of its segments beside its tensors. Readers map whole segments; who may
 * read only because of wider mode bits should not get more than the tensors unless the publisher
 * says so. The rest of a page, and what lies between members that are packed to
 * TDP_BUNDLE_ALIGN_BYTES, does not count.
 */
struct tdd_exposed {
	uint32_t segment;
	uint64_t begin_bytes;
	uint64_t end_bytes;
	uint64_t nbytes;
};

struct tdd_exposure {
	size_t count;
	size_t capacity;
	struct tdd_exposed *extents;
};

int tdd_exposure_init(struct tdd_exposure *exposure, size_t capacity,
		      struct tdp_fault *fault) TDP_MUST_CHECK;
void tdd_exposure_deinit(struct tdd_exposure *exposure);

/* A tensor in segment number @segment; those without elements show nothing. At most `capacity`. */
void tdd_exposure_add(struct tdd_exposure *exposure, uint32_t segment,
		      const struct tdp_extent *extent);

/* Call this once all are added. */
void tdd_exposure_sort(struct tdd_exposure *exposure);

/*
 * Bytes of one segment that are a tensor's, in whole pages. Ask for the segments in rising order;
 * *position is 0 at first. Memory that several tensors share counts once, gaps inside a strided
 * one do not count.
 */
uint64_t tdd_exposure_covered_bytes(const struct tdd_exposure *exposure, uint32_t segment,
				    size_t *position);

#endif
