/* SPDX-License-Identifier: Apache-2.0 */
/* Extents of tensors, and their union. Belongs to the check of one PUBLISH, and decides nothing. */
#include "daemon/exposure.h"

#include <stdlib.h>

#include "proto/base/checked.h"
#include "proto/mem/memfd.h"
#include "proto/wire/limits.h"

int tdd_exposure_init(struct tdd_exposure *exposure, size_t capacity, struct tdp_fault *fault)
{
	struct tdd_exposed *extents = malloc((capacity ? capacity : 1) * sizeof(*extents));

	if (!extents)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	*exposure = (struct tdd_exposure){.capacity = capacity, .extents = extents};
	return 0;
}

void tdd_exposure_deinit(struct tdd_exposure *exposure)
{
	free(exposure->extents);
	exposure->extents = NULL;
	exposure->capacity = exposure->count = 0;
}

void tdd_exposure_add(struct tdd_exposure *exposure, uint32_t segment,
		      const struct tdp_extent *extent)
{
	if (extent->is_empty || exposure->count == exposure->capacity)
		return;
	exposure->extents[exposure->count++] = (struct tdd_exposed){
		.segment = segment,
		.begin_bytes = extent->begin_bytes,
		.end_bytes = extent->end_bytes,
		.nbytes = extent->nbytes,
	};
}

static int exposed_compare(const void *left, const void *right)
{
	const struct tdd_exposed *a = left, *b = right;

	if (a->segment != b->segment)
		return a->segment < b->segment ? -1 : 1;
	return a->begin_bytes < b->begin_bytes ? -1 : a->begin_bytes > b->begin_bytes;
}

void tdd_exposure_sort(struct tdd_exposure *exposure)
{
	qsort(exposure->extents, exposure->count, sizeof(exposure->extents[0]), exposed_compare);
}

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
	uint64_t rounded;

	return tdp_round_up_u64(bytes, unit, &rounded) ? rounded : UINT64_MAX;
}

uint64_t tdd_exposure_covered_bytes(const struct tdd_exposure *exposure, uint32_t segment,
				    size_t *position)
{
	uint64_t sum = 0;	  /* too much where tensors share memory */
	uint64_t union_bytes = 0; /* too much where they have gaps inside */
	uint64_t end_bytes = 0;

	for (; *position < exposure->count; (*position)++) {
		const struct tdd_exposed *extent = &exposure->extents[*position];
		uint64_t extent_end = round_up(extent->end_bytes, TDP_BUNDLE_ALIGN_BYTES);
		uint64_t begin = extent->begin_bytes;

		if (extent->segment != segment)
			break;
		if (!tdp_add_u64(sum, round_up(extent->nbytes, TDP_BUNDLE_ALIGN_BYTES), &sum))
			sum = UINT64_MAX;
		if (extent_end <= end_bytes)
			continue;
		union_bytes += extent_end - (begin > end_bytes ? begin : end_bytes);
		end_bytes = extent_end;
	}
	return round_up(sum < union_bytes ? sum : union_bytes, tdp_page_bytes());
}
