/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the host that a device knows, without a device. Not for many threads. */
#include "tests/fake_cuda/fake_cuda.h"

#include <stdint.h>

enum { INVALID_VALUE = 1, ATTRIBUTE_MEMORY_TYPE = 2, MEMORY_TYPE_HOST = 1 };

static uintptr_t known_begin;
static uintptr_t known_end;
static int failure;
static size_t asked_count;

void fake_cuda_register(void *address, size_t size_bytes)
{
	const uintptr_t page_mask = 4095;

	known_begin = (uintptr_t)address & ~page_mask;
	known_end = size_bytes > 0 ? ((uintptr_t)address + size_bytes + page_mask) & ~page_mask
				   : known_begin;
}

void fake_cuda_fail(int result)
{
	failure = result;
}

size_t fake_cuda_asked(void)
{
	return asked_count;
}

int cuPointerGetAttributes(unsigned int count, int *attributes, void **values,
			   unsigned long long address);

__attribute__((visibility("default"))) int cuPointerGetAttributes(unsigned int count,
								  int *attributes, void **values,
								  unsigned long long address)
{
	asked_count++;
	if (failure != 0)
		return failure;
	for (unsigned int i = 0; i < count; i++) {
		if (attributes[i] != ATTRIBUTE_MEMORY_TYPE)
			return INVALID_VALUE;
		*(unsigned int *)values[i] =
			address >= known_begin && address < known_end ? MEMORY_TYPE_HOST : 0;
	}
	return 0;
}
