/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layout helpers: what is row-major, and the copy of any strided tensor into a row-major block.
 * Touches no Python object and may run without the GIL.
 */
#include "client/python/src/_core/core.h"

#include <string.h>

/* Row-major without gaps; strides of extents below 2, and all of an empty tensor, do not matter. */
int tpy_is_compact(uint32_t ndim, const int64_t *shape, const int64_t *strides)
{
	for (uint32_t i = 0; i < ndim; i++) {
		if (shape[i] == 0)
			return 1;
	}
	int64_t expected = 1;
	for (uint32_t i = ndim; i-- > 0;) {
		if (shape[i] > 1 && strides[i] != expected)
			return 0;
		expected *= shape[i];
	}
	return 1;
}

void tpy_compact_strides(uint32_t ndim, const int64_t *shape, int64_t *ret_strides)
{
	int64_t step = 1;
	for (uint32_t i = ndim; i-- > 0;) {
		ret_strides[i] = step;
		step *= shape[i] > 0 ? shape[i] : 1;
	}
}

/* The trailing axes that are row-major together are copied as one run. */
static uint32_t outer_axes_count(uint32_t ndim, const int64_t *shape, const int64_t *strides,
				 int64_t *ret_run)
{
	int64_t run = 1;
	uint32_t outer = ndim;
	while (outer > 0 && (shape[outer - 1] == 1 || strides[outer - 1] == run)) {
		run *= shape[outer - 1];
		outer--;
	}
	*ret_run = run;
	return outer;
}

/* Copies a tensor that is not empty, in row-major order. Elements are whole bytes. */
void tpy_gather(const struct tidl_tensor *tensor, size_t element_bytes, void *destination)
{
	const int64_t *shape = tidl_tensor_shape(tensor);
	const int64_t *strides = tidl_tensor_strides(tensor);
	const char *source = tidl_tensor_data(tensor);
	char *target = destination;
	int64_t index[TIDL_MAX_NDIM] = {0};
	int64_t run;
	uint32_t outer = outer_axes_count(tidl_tensor_ndim(tensor), shape, strides, &run);
	size_t run_bytes = (size_t)run * element_bytes;
	int64_t element = (int64_t)element_bytes;

	for (;;) {
		memcpy(target, source, run_bytes);
		target += run_bytes;
		uint32_t axis = outer;
		for (; axis > 0; axis--) { /* an odometer, last outer axis first */
			int64_t step = strides[axis - 1] * element;
			if (++index[axis - 1] < shape[axis - 1]) {
				source += step;
				break;
			}
			source -= step * (shape[axis - 1] - 1);
			index[axis - 1] = 0;
		}
		if (axis == 0)
			return;
	}
}
