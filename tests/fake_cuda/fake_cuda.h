/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_FAKE_CUDA_H
#define TT_FAKE_CUDA_H

#include <stddef.h>

/*
 * A libcuda.so.1 that knows what a test tells it, to be loaded with dlopen() or ctypes. As the real
 * one's, its registrations are by page, and its functions can fail.
 */

/* One range at a time is registered; @size_bytes 0: none. */
__attribute__((visibility("default"))) void fake_cuda_register(void *address, size_t size_bytes);

/* What its functions return from now on; 0: as they should. */
__attribute__((visibility("default"))) void fake_cuda_fail(int result);

/* Questions so far. */
__attribute__((visibility("default"))) size_t fake_cuda_asked(void);

#endif
