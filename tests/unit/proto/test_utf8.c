/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>

#include "proto/base/utf8.h"
#include "tests/support/leak.h"

/* The definition, the slow way: decode by the bit patterns, then look at the number. */
static bool reference_is_scalar(const unsigned char *bytes, size_t size)
{
	static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
	uint32_t number;

	if (size == 1)
		return bytes[0] < 0x80;
	if (size == 2 && (bytes[0] & 0xe0) == 0xc0)
		number = bytes[0] & 0x1f;
	else if (size == 3 && (bytes[0] & 0xf0) == 0xe0)
		number = bytes[0] & 0x0f;
	else if (size == 4 && (bytes[0] & 0xf8) == 0xf0)
		number = bytes[0] & 0x07;
	else
		return false;
	for (size_t i = 1; i < size; i++) {
		if ((bytes[i] & 0xc0) != 0x80)
			return false;
		number = number << 6 | (bytes[i] & 0x3f);
	}
	return number >= smallest[size] && number <= 0x10ffff &&
	       !(number >= 0xd800 && number <= 0xdfff);
}

static size_t reference_length(const unsigned char *bytes, size_t size)
{
	for (size_t length = 1; length <= 4 && length <= size; length++) {
		if (reference_is_scalar(bytes, length))
			return length;
	}
	return 0;
}

/* The first beginning on which the two differ, or 1 << 24. */
static uint32_t find_difference(void)
{
	static const unsigned char tails[] = {0x41, 0x7f, 0x80, 0xbf, 0xc0};
	const uint32_t count = sizeof(tails);

	for (uint32_t i = 0; i < 65536 * count * count; i++) {
		const unsigned char bytes[4] = {(unsigned char)(i / (count * count) >> 8),
						(unsigned char)(i / (count * count)),
						tails[i / count % count], tails[i % count]};

		for (size_t size = 0; size <= 4; size++) {
			if (tdp_utf8_length((const char *)bytes, size) !=
			    reference_length(bytes, size))
				return (uint32_t)bytes[0] << 16 | bytes[1] << 8 | bytes[2];
		}
	}
	return 1u << 24;
}

TT_TEST(utf8, agrees_with_the_definition_on_all_beginnings)
{
	uint32_t different = find_difference();

	cr_assert_eq(different, 1u << 24, "they differ on %06x", different);
}

TT_TEST(utf8, control_characters_are_not_printable)
{
	for (int i = 0; i < 128; i++) {
		char byte = (char)i;

		cr_assert_eq(tdp_utf8_printable(&byte, 1), i >= 0x20 && i != 0x7f, "%d", i);
	}
	cr_assert_eq(tdp_utf8_printable("\xc2\x80", 2), 0);
	cr_assert_eq(tdp_utf8_printable("\xc2\x9f", 2), 0);
	cr_assert_eq(tdp_utf8_printable("\xc2\xa0", 2), 2);
	cr_assert_eq(tdp_utf8_printable("\xe2\x82\xac", 3), 3);
	cr_assert_eq(tdp_utf8_printable("\xf0\x9f\xa6\x84", 4), 4);
}

TT_TEST(utf8, clean_replaces_byte_by_byte)
{
	char text[] = "a\n\xc3\xa9\xc3(\xed\xa0\x80z\xf0\x9f\xa6";

	tdp_utf8_clean(text);
	cr_assert_str_eq(text, "a?\xc3\xa9?(???z???");
}
