/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDP_TENSOR_DTYPE_H
#define TDP_TENSOR_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "include/tidl/tensor.h"

/* 0, or TIDL_ERR_DTYPE: unknown code, a width that the code cannot have, lanes of 0, opaque
 * handles. */
int tdp_dtype_check(struct tidl_dtype dtype);

/* Bits of one element, lanes included. */
uint64_t tdp_dtype_bits(struct tidl_dtype dtype);

/* True for types of less than a byte, whose elements lie packed unless flagged as padded. */
bool tdp_dtype_is_subbyte(struct tidl_dtype dtype);

/* Bytes from one element to the next; 0 where packed sub-byte elements end within a byte. With
 * padding each lane has a byte of its own.
 */
uint64_t tdp_dtype_item_bytes(struct tidl_dtype dtype, bool is_padded);

const char *tdp_dtype_name(struct tidl_dtype dtype, char *buffer, size_t size);
int tdp_dtype_parse(const char *text, struct tidl_dtype *ret_dtype);

#endif
