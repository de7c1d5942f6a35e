/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_CUDA_DRIVER_H
#define TDC_CUDA_DRIVER_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Does CUDA know any page of [@begin, @end), because it was allocated by it (cudaHostAlloc) or
 * registered with it (cudaHostRegister), whole or in part? Devices go on using those pages whatever
 * is mapped there later. False where this process has not loaded CUDA's driver: it is never loaded
 * here, and no context is made. One question for each page.
 */
bool tdc_cuda_knows(uintptr_t begin, uintptr_t end);

#endif
