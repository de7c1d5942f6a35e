/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/base/checked.h"
#include "tests/support/leak.h"

TT_TEST(checked, add_and_multiply_tell_overflow_and_leave_the_result_alone)
{
	uint64_t result = 7;

	cr_assert(tdp_add_u64(UINT64_MAX - 1, 1, &result));
	cr_assert_eq(result, UINT64_MAX);
	cr_assert_not(tdp_add_u64(UINT64_MAX, 1, &result));
	cr_assert_eq(result, UINT64_MAX);
	cr_assert(tdp_mul_u64(1ull << 32, (1ull << 32) - 1, &result));
	cr_assert_eq(result, 0xffffffff00000000ull);
	cr_assert_not(tdp_mul_u64(1ull << 32, 1ull << 32, &result));
	cr_assert_eq(result, 0xffffffff00000000ull);
	cr_assert(tdp_mul_u64(0, UINT64_MAX, &result));
	cr_assert_eq(result, 0);
}

TT_TEST(checked, rounds_up)
{
	uint64_t result = 7;

	cr_assert(tdp_round_up_u64(0, 4096, &result) && result == 0);
	cr_assert(tdp_round_up_u64(1, 4096, &result) && result == 4096);
	cr_assert(tdp_round_up_u64(4096, 4096, &result) && result == 4096);
	cr_assert(tdp_round_up_u64(UINT64_MAX - 4095, 4096, &result));
	cr_assert_eq(result, UINT64_MAX - 4095);
	cr_assert_not(tdp_round_up_u64(UINT64_MAX - 4094, 4096, &result));
	cr_assert_eq(result, UINT64_MAX - 4095);
}
