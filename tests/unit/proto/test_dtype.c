/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "include/tidl/error.h"
#include "proto/base/attr.h"
#include "proto/tensor/dtype.h"
#include "tests/support/leak.h"

/* DLPack 1.3's types with all widths they have, and bytes of an element (packed, padded). */
static const struct {
	uint8_t code, bits;
	const char *name;
	uint64_t packed_bytes, padded_bytes;
} types[] = {
	{0, 8, "int8", 1, 1},
	{0, 16, "int16", 2, 2},
	{0, 32, "int32", 4, 4},
	{0, 64, "int64", 8, 8},
	{1, 8, "uint8", 1, 1},
	{1, 16, "uint16", 2, 2},
	{1, 32, "uint32", 4, 4},
	{1, 64, "uint64", 8, 8},
	{2, 16, "float16", 2, 2},
	{2, 32, "float32", 4, 4},
	{2, 64, "float64", 8, 8},
	{4, 16, "bfloat16", 2, 2},
	{5, 32, "complex32", 4, 4},
	{5, 64, "complex64", 8, 8},
	{5, 128, "complex128", 16, 16},
	{6, 8, "bool", 1, 1},
	{7, 8, "float8_e3m4", 1, 1},
	{8, 8, "float8_e4m3", 1, 1},
	{9, 8, "float8_e4m3b11fnuz", 1, 1},
	{10, 8, "float8_e4m3fn", 1, 1},
	{11, 8, "float8_e4m3fnuz", 1, 1},
	{12, 8, "float8_e5m2", 1, 1},
	{13, 8, "float8_e5m2fnuz", 1, 1},
	{14, 8, "float8_e8m0fnu", 1, 1},
	{15, 6, "float6_e2m3fn", 0, 1},
	{16, 6, "float6_e3m2fn", 0, 1},
	{17, 4, "float4_e2m1fn", 0, 1},
};

static bool is_listed(int code, int bits)
{
	for (size_t i = 0; i < TDP_ARRAY_LENGTH(types); i++) {
		if (types[i].code == code && types[i].bits == bits)
			return true;
	}
	return false;
}

TT_TEST(dtype, takes_exactly_the_listed_codes_and_widths)
{
	for (int code = 0; code < 256; code++) {
		for (int bits = 0; bits < 256; bits++) {
			struct tidl_dtype dtype = {(uint8_t)code, (uint8_t)bits, 1};
			int expected = is_listed(code, bits) ? 0 : TIDL_ERR_DTYPE;

			cr_assert_eq(tdp_dtype_check(dtype), expected, "code %d, bits %d", code,
				     bits);
		}
	}
}

TT_TEST(dtype, wants_at_least_one_lane)
{
	cr_assert_eq(tdp_dtype_check((struct tidl_dtype){2, 32, 0}), TIDL_ERR_DTYPE);
	cr_assert_eq(tdp_dtype_check((struct tidl_dtype){2, 32, 4}), 0);
	cr_assert_eq(tdp_dtype_check((struct tidl_dtype){2, 32, UINT16_MAX}), 0);
}

TT_TEST(dtype, sizes)
{
	for (size_t i = 0; i < TDP_ARRAY_LENGTH(types); i++) {
		struct tidl_dtype dtype = {types[i].code, types[i].bits, 1};

		cr_assert_eq(tdp_dtype_bits(dtype), types[i].bits);
		cr_assert_eq(tdp_dtype_is_subbyte(dtype), types[i].bits < 8);
		cr_assert_eq(tdp_dtype_item_bytes(dtype, false), types[i].packed_bytes);
		cr_assert_eq(tdp_dtype_item_bytes(dtype, true), types[i].padded_bytes);
	}
}

TT_TEST(dtype, sizes_with_lanes)
{
	static const struct {
		struct tidl_dtype dtype;
		uint64_t packed_bytes, padded_bytes;
	} cases[] = {
		{{2, 32, 4}, 16, 16}, {{0, 8, 3}, 3, 3},  {{5, 128, 65535}, 1048560, 1048560},
		{{17, 4, 2}, 1, 2}, /* torch's float4_e2m1fn_x2 */
		{{17, 4, 3}, 0, 3},   {{15, 6, 4}, 3, 4}, {{15, 6, 2}, 0, 2},
	};

	for (size_t i = 0; i < TDP_ARRAY_LENGTH(cases); i++) {
		struct tidl_dtype dtype = cases[i].dtype;

		cr_assert_eq(tdp_dtype_item_bytes(dtype, false), cases[i].packed_bytes);
		cr_assert_eq(tdp_dtype_item_bytes(dtype, true), cases[i].padded_bytes);
	}
}

TT_TEST(dtype, names_and_parses_every_type)
{
	static const uint16_t lanes[] = {1, 2, 10, 65535};

	for (size_t i = 0; i < TDP_ARRAY_LENGTH(types) * TDP_ARRAY_LENGTH(lanes); i++) {
		size_t row = i / TDP_ARRAY_LENGTH(lanes);
		struct tidl_dtype dtype = {types[row].code, types[row].bits,
					   lanes[i % TDP_ARRAY_LENGTH(lanes)]};
		struct tidl_dtype parsed = {0};
		char expected[40], name[40];

		if (dtype.lanes == 1)
			snprintf(expected, sizeof(expected), "%s", types[row].name);
		else
			snprintf(expected, sizeof(expected), "%sx%u", types[row].name, dtype.lanes);
		cr_assert_eq(tdp_dtype_name(dtype, name, sizeof(name)), name);
		cr_assert_str_eq(name, expected);
		cr_assert_eq(tdp_dtype_parse(name, &parsed), 0, "%s", name);
		cr_assert_eq(memcmp(&parsed, &dtype, sizeof(dtype)), 0, "%s", name);
	}
}

TT_TEST(dtype, name_of_the_unknown_and_short_buffers)
{
	char name[8];

	tdp_dtype_name((struct tidl_dtype){3, 64, 1}, name, sizeof(name));
	cr_assert_str_eq(name, "unknown");
	tdp_dtype_name((struct tidl_dtype){2, 32, 12}, name, sizeof(name));
	cr_assert_str_eq(name, "float32");
	tdp_dtype_name((struct tidl_dtype){2, 32, 1}, name, 1);
	cr_assert_str_eq(name, "");
}

TT_TEST(dtype, parse_refuses_other_words)
{
	static const char *const words[] = {"",
					    "float",
					    "float3",
					    "float321",
					    "Float32",
					    "float32 ",
					    " float32",
					    "float32x",
					    "float32x0",
					    "float32x01",
					    "float32x-1",
					    "float32x+1",
					    "float32x65536",
					    "float32x99999999999999999999",
					    "float32x2x2",
					    "float32 x2",
					    "opaque",
					    "float128",
					    "boolx",
					    "x2"};

	for (size_t i = 0; i < TDP_ARRAY_LENGTH(words); i++) {
		struct tidl_dtype dtype = {9, 9, 9};

		cr_assert_eq(tdp_dtype_parse(words[i], &dtype), TIDL_ERR_DTYPE, "%s", words[i]);
		cr_assert_eq(dtype.code, 9, "untouched on failure");
	}
}
