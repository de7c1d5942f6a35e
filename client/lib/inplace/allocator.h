/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_INPLACE_ALLOCATOR_H
#define TDC_INPLACE_ALLOCATOR_H

#include "include/tidl/publish.h"

/*
 * Is this process's malloc glibc's own? Others keep their records elsewhere and differently. NONE
 * if so, else ALLOCATOR; or UNSURE when there is too little memory to find out, which the next call
 * tries again. Locks the moves.
 */
enum tidl_copy_reason tdc_malloc_refusal(void);

#endif
