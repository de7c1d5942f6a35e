/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data types as Python writes them: PEP 3118 formats of the buffer protocol and the type strings
 * of __array_interface__. Types that neither knows (bfloat16, the float8 family) have none.
 */
#include "client/python/src/_core/core.h"

#include <string.h>

struct dtype_row {
	uint8_t code;
	uint8_t bits;
	const char *format;
	const char *typestr;
};

static const struct dtype_row dtype_rows[] = {
	{kDLBool, 8, "?", "|b1"},      {kDLInt, 8, "b", "|i1"},		{kDLInt, 16, "h", "<i2"},
	{kDLInt, 32, "i", "<i4"},      {kDLInt, 64, "q", "<i8"},	{kDLUInt, 8, "B", "|u1"},
	{kDLUInt, 16, "H", "<u2"},     {kDLUInt, 32, "I", "<u4"},	{kDLUInt, 64, "Q", "<u8"},
	{kDLFloat, 16, "e", "<f2"},    {kDLFloat, 32, "f", "<f4"},	{kDLFloat, 64, "d", "<f8"},
	{kDLComplex, 64, "Zf", "<c8"}, {kDLComplex, 128, "Zd", "<c16"},
};

#define DTYPE_ROWS_COUNT (sizeof(dtype_rows) / sizeof(dtype_rows[0]))

static const struct dtype_row *row_of(struct tidl_dtype dtype)
{
	for (size_t i = 0; i < DTYPE_ROWS_COUNT; i++) {
		const struct dtype_row *row = &dtype_rows[i];
		if (row->code == dtype.code && row->bits == dtype.bits && dtype.lanes == 1)
			return row;
	}
	return NULL;
}

const char *tpy_dtype_format(struct tidl_dtype dtype)
{
	const struct dtype_row *row = row_of(dtype);
	return row ? row->format : NULL;
}

const char *tpy_dtype_typestr(struct tidl_dtype dtype)
{
	const struct dtype_row *row = row_of(dtype);
	return row ? row->typestr : NULL;
}

/* The kind of a PEP 3118 character; its width comes with the buffer as `itemsize`. */
static int code_of_format(const char *format)
{
	if (format[0] == 'Z')
		return format[1] && strchr("fd", format[1]) && !format[2] ? kDLComplex : -1;
	if (!format[0] || format[1])
		return -1;
	if (format[0] == '?')
		return kDLBool;
	if (strchr("bhilqn", format[0]))
		return kDLInt;
	if (strchr("BHILQN", format[0]))
		return kDLUInt;
	if (strchr("efd", format[0]))
		return kDLFloat;
	return -1;
}

/* Returns 0, or -1 (no exception) for what has no DLPack type: other byte order, records, text. */
int tpy_dtype_from_format(const char *format, Py_ssize_t itemsize, struct tidl_dtype *ret_dtype)
{
	if (*format == '@' || *format == '=' || *format == '<')
		format++;
	int code = code_of_format(format);
	if (code < 0 || itemsize < 1 || itemsize > 16)
		return -1;
	struct tidl_dtype dtype = {(uint8_t)code, (uint8_t)(itemsize * 8), 1};
	if (!row_of(dtype))
		return -1;
	*ret_dtype = dtype;
	return 0;
}

int64_t tpy_dtype_element_bits(struct tidl_dtype dtype)
{
	return (int64_t)dtype.bits * dtype.lanes;
}

PyObject *tpy_dtype_to_python(struct tidl_dtype dtype)
{
	char text[64];
	return tpy_result_text(tidl_dtype_name(dtype, text, sizeof(text)));
}
