/* SPDX-License-Identifier: Apache-2.0 */
/* The one table of data types: DLPack's codes with the widths they can have and NumPy's words. */
#include "proto/tensor/dtype.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "include/tidl/error.h"
#include "proto/base/attr.h"

/* Numbers of DLPack 1.3's DLDataTypeCode; dlpack_abi.c compares them with its header. Code 3,
 * opaque handles, is not here: a handle means nothing in another process. */
static const struct dtype_row {
	uint8_t code;
	uint8_t bits;
	const char *name;
} dtype_rows[] = {
	{0, 8, "int8"},
	{0, 16, "int16"},
	{0, 32, "int32"},
	{0, 64, "int64"},
	{1, 8, "uint8"},
	{1, 16, "uint16"},
	{1, 32, "uint32"},
	{1, 64, "uint64"},
	{2, 16, "float16"},
	{2, 32, "float32"},
	{2, 64, "float64"},
	{4, 16, "bfloat16"},
	{5, 32, "complex32"},
	{5, 64, "complex64"},
	{5, 128, "complex128"},
	{6, 8, "bool"},
	{7, 8, "float8_e3m4"},
	{8, 8, "float8_e4m3"},
	{9, 8, "float8_e4m3b11fnuz"},
	{10, 8, "float8_e4m3fn"},
	{11, 8, "float8_e4m3fnuz"},
	{12, 8, "float8_e5m2"},
	{13, 8, "float8_e5m2fnuz"},
	{14, 8, "float8_e8m0fnu"},
	{15, 6, "float6_e2m3fn"},
	{16, 6, "float6_e3m2fn"},
	{17, 4, "float4_e2m1fn"},
};

static const struct dtype_row *dtype_row_find(struct tidl_dtype dtype)
{
	for (size_t i = 0; i < TDP_ARRAY_LENGTH(dtype_rows); i++) {
		if (dtype_rows[i].code == dtype.code && dtype_rows[i].bits == dtype.bits)
			return &dtype_rows[i];
	}
	return NULL;
}

int tdp_dtype_check(struct tidl_dtype dtype)
{
	return dtype.lanes > 0 && dtype_row_find(dtype) != NULL ? 0 : TIDL_ERR_DTYPE;
}

uint64_t tdp_dtype_bits(struct tidl_dtype dtype)
{
	return (uint64_t)dtype.bits * dtype.lanes;
}

bool tdp_dtype_is_subbyte(struct tidl_dtype dtype)
{
	return dtype.bits < 8;
}

uint64_t tdp_dtype_item_bytes(struct tidl_dtype dtype, bool is_padded)
{
	uint64_t bits = tdp_dtype_bits(dtype);

	/* Padding gives every lane its own byte. */
	if (is_padded && tdp_dtype_is_subbyte(dtype))
		return dtype.lanes;
	return bits % 8 == 0 ? bits / 8 : 0;
}

const char *tdp_dtype_name(struct tidl_dtype dtype, char *buffer, size_t size)
{
	const struct dtype_row *row = dtype_row_find(dtype);

	if (row == NULL)
		(void)snprintf(buffer, size, "unknown(%u,%u,%u)", dtype.code, dtype.bits,
			       dtype.lanes);
	else if (dtype.lanes == 1)
		(void)snprintf(buffer, size, "%s", row->name);
	else
		(void)snprintf(buffer, size, "%sx%u", row->name, dtype.lanes);
	return buffer;
}

/* `x<lanes>` to the end of the text, or nothing, which means one lane. */
static bool lanes_parse(const char *text, uint16_t *ret_lanes)
{
	unsigned long lanes;
	char *end;

	if (*text == '\0') {
		*ret_lanes = 1;
		return true;
	}
	if (text[0] != 'x' || text[1] < '1' || text[1] > '9')
		return false;
	lanes = strtoul(text + 1, &end, 10);
	if (*end != '\0' || lanes > UINT16_MAX)
		return false;
	*ret_lanes = (uint16_t)lanes;
	return true;
}

int tdp_dtype_parse(const char *text, struct tidl_dtype *ret_dtype)
{
	for (size_t i = 0; i < TDP_ARRAY_LENGTH(dtype_rows); i++) {
		size_t length = strlen(dtype_rows[i].name);
		uint16_t lanes;

		if (strncmp(text, dtype_rows[i].name, length) != 0 ||
		    !lanes_parse(text + length, &lanes))
			continue;
		*ret_dtype = (struct tidl_dtype){
			.code = dtype_rows[i].code, .bits = dtype_rows[i].bits, .lanes = lanes};
		return 0;
	}
	return TIDL_ERR_DTYPE;
}
