/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDP_BASE_CHECKED_H
#define TDP_BASE_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

/* Arithmetic on sizes that came from outside: true when the result fits, *ret untouched otherwise.
 */

static inline bool tdp_add_u64(uint64_t a, uint64_t b, uint64_t *ret)
{
	uint64_t sum;

	if (__builtin_add_overflow(a, b, &sum))
		return false;
	*ret = sum;
	return true;
}

static inline bool tdp_mul_u64(uint64_t a, uint64_t b, uint64_t *ret)
{
	uint64_t product;

	if (__builtin_mul_overflow(a, b, &product))
		return false;
	*ret = product;
	return true;
}

/* Round up to a multiple of @unit, a power of two. */
static inline bool tdp_round_up_u64(uint64_t value, uint64_t unit, uint64_t *ret)
{
	uint64_t sum;

	if (!tdp_add_u64(value, unit - 1, &sum))
		return false;
	*ret = sum & ~(unit - 1);
	return true;
}

#endif
