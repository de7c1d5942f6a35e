/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA's driver library, as far as this process has it already: bound when it is asked, by whoever
 * needs an answer, and let go again. Its own header is not needed for what is asked here.
 */
#include "client/lib/cuda/driver.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#include "proto/mem/memfd.h"

#define DRIVER_NAME "libcuda.so.1"

/* Of the driver's interface, which never renumbers: CUDA_SUCCESS and
 * CU_POINTER_ATTRIBUTE_MEMORY_TYPE. */
enum { SUCCESS = 0, ATTRIBUTE_MEMORY_TYPE = 2 };

/* cuPointerGetAttributes(). Of memory that it does not know this one says 0 and succeeds, while
 * cuPointerGetAttribute() fails as it does for other reasons. Neither needs a current context for
 * the type of memory. */
typedef int (*attributes_fn)(unsigned int count, int *attributes, void **values,
			     unsigned long long address);

static attributes_fn driver_bind(void *library)
{
	void *symbol = dlsym(library, "cuPointerGetAttributes");
	attributes_fn function = NULL;

	memcpy(&function, &symbol, sizeof(function));
	return function;
}

/* Once it fails, it will for the other pages, too: nobody has called cuInit(), say, and so nothing
 * is registered. */
static bool pages_ask(attributes_fn ask, uintptr_t begin, uintptr_t end)
{
	int attribute = ATTRIBUTE_MEMORY_TYPE;
	unsigned int type = 0;
	void *value = &type;

	for (uintptr_t page = begin; page < end; page += tdp_page_bytes()) {
		if (ask(1, &attribute, &value, page) != SUCCESS)
			return false;
		if (type != 0)
			return true;
	}
	return false;
}

bool tdc_cuda_knows(uintptr_t begin, uintptr_t end)
{
	void *library = dlopen(DRIVER_NAME, RTLD_LAZY | RTLD_NOLOAD);
	attributes_fn ask = library != NULL ? driver_bind(library) : NULL;
	bool is_known = ask != NULL && pages_ask(ask, begin, end);

	if (library != NULL)
		(void)dlclose(library);
	return is_known;
}
