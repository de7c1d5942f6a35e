/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts of other processes on their way to a terminal or a log. Knows characters only: the rules
 * for names are in names.c.
 */
#include "proto/base/utf8.h"

#include <stdint.h>
#include <string.h>

/* Lead bytes and the range of the second byte, as in table 3-7 of the Unicode standard: that range
 * is what rules out overlong forms, surrogates and numbers beyond U+10FFFF. */
static const struct utf8_row {
	uint8_t first_low, first_high;
	uint8_t second_low, second_high;
	uint8_t length;
} utf8_rows[] = {
	{0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3}, {0xe1, 0xec, 0x80, 0xbf, 3},
	{0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4},
	{0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
};

static const struct utf8_row *utf8_row_find(uint8_t first)
{
	for (size_t i = 0; i < sizeof(utf8_rows) / sizeof(utf8_rows[0]); i++) {
		if (first >= utf8_rows[i].first_low && first <= utf8_rows[i].first_high)
			return &utf8_rows[i];
	}
	return NULL;
}

size_t tdp_utf8_length(const char *text, size_t size_bytes)
{
	const uint8_t *bytes = (const uint8_t *)text;
	const struct utf8_row *row;

	if (size_bytes == 0)
		return 0;
	if (bytes[0] < 0x80)
		return 1;
	row = utf8_row_find(bytes[0]);
	if (row == NULL || size_bytes < row->length)
		return 0;
	if (bytes[1] < row->second_low || bytes[1] > row->second_high)
		return 0;
	for (size_t i = 2; i < row->length; i++) {
		if ((bytes[i] & 0xc0) != 0x80)
			return 0;
	}
	return row->length;
}

size_t tdp_utf8_printable(const char *text, size_t size_bytes)
{
	const uint8_t *bytes = (const uint8_t *)text;
	size_t length = tdp_utf8_length(text, size_bytes);

	if (length == 1 && (bytes[0] < 0x20 || bytes[0] == 0x7f))
		return 0;
	if (length == 2 && bytes[0] == 0xc2 && bytes[1] < 0xa0)
		return 0;
	return length;
}

void tdp_utf8_clean(char *text)
{
	size_t left = strlen(text);

	while (left > 0) {
		size_t length = tdp_utf8_printable(text, left);

		if (length == 0) {
			*text = '?';
			length = 1;
		}
		text += length;
		left -= length;
	}
}
