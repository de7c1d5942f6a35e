/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/names.h"
#include "tests/support/leak.h"

static void expect_valid(const char *name)
{
	struct tdp_fault fault;

	cr_assert_eq(tdp_name_check(name, &fault), 0, "%s", name);
	cr_assert_eq(tdp_pattern_check(name, &fault), 0, "%s", name);
}

static void expect_invalid(const char *name)
{
	struct tdp_fault fault = {0};

	cr_assert_eq(tdp_name_check(name, &fault), TIDL_ERR_NAME_INVALID, "%s", name);
	cr_assert_eq(fault.code, TIDL_ERR_NAME_INVALID);
	cr_assert_not_null(strchr(fault.text, ':'));
	cr_assert_eq(tdp_pattern_check(name, &fault), TIDL_ERR_NAME_INVALID, "%s", name);
}

TT_TEST(names, takes_paths_of_printable_utf8)
{
	expect_valid("x");
	expect_valid("sim/state");
	expect_valid("a b/c d");
	expect_valid("-");
	expect_valid(".hidden/..x/x..");
	expect_valid("...");
	expect_valid("gew\xc3\xbcrz/\xe6\x9d\xb1\xe4\xba\xac/\xf0\x9f\xa6\x84");
	expect_valid("with*star");
}

TT_TEST(names, refuses_everything_else)
{
	expect_invalid("");
	expect_invalid(NULL);
	expect_invalid("/");
	expect_invalid("/x");
	expect_invalid("x/");
	expect_invalid("x//y");
	expect_invalid(".");
	expect_invalid("..");
	expect_invalid("x/.");
	expect_invalid("x/../y");
	expect_invalid("alice:x");
	expect_invalid("x:");
	expect_invalid("x\ny");
	expect_invalid("x\x7f");
	expect_invalid("x\x1b[31m");
	expect_invalid("\xc2\x85");
	expect_invalid("\xff");
	expect_invalid("caf\xe9");
	expect_invalid("x\xc3");
	expect_invalid("\xed\xa0\x80");
	expect_invalid("\xc0\xaf");
}

TT_TEST(names, ends_at_255_bytes)
{
	char name[300];

	memset(name, 'n', sizeof(name));
	name[255] = '\0';
	expect_valid(name);
	name[255] = 'n';
	name[256] = '\0';
	expect_invalid(name);
	/* One byte less is one character too many when the last one is cut off. */
	memcpy(name + 254, "\xc3\xa9", 3);
	expect_invalid(name);
}

TT_TEST(names, patterns_have_stars)
{
	struct tdp_fault fault;

	cr_assert_eq(tdp_pattern_check("*", &fault), 0);
	cr_assert_eq(tdp_pattern_check("**", &fault), 0);
	cr_assert_eq(tdp_pattern_check("a*b*/**/c", &fault), 0);
	cr_assert_eq(tdp_pattern_check("a**", &fault), TIDL_ERR_NAME_INVALID);
	cr_assert_eq(tdp_pattern_check("x/**y/z", &fault), TIDL_ERR_NAME_INVALID);
	cr_assert_eq(tdp_pattern_check("***", &fault), TIDL_ERR_NAME_INVALID);
	/* Names may look like patterns. */
	cr_assert_eq(tdp_name_check("a**/**", &fault), 0);
}

TT_TEST(names, patterns_match)
{
	static const struct {
		const char *pattern, *name;
		bool is_match;
	} cases[] = {
		{"x", "x", true},
		{"x", "y", false},
		{"x", "x/y", false},
		{"x/y", "x", false},
		{"*", "x", true},
		{"*", "x/y", false},
		{"*/*", "x/y", true},
		{"a*c", "abbc", true},
		{"a*c", "ac", true},
		{"a*c", "ab/c", false},
		{"a*b*c", "axbxbxc", true},
		{"a*b*c", "axcxb", false},
		{"**", "x", true},
		{"**", "x/y/z", true},
		{"**/z", "z", true},
		{"**/z", "x/y/z", true},
		{"**/z", "x/z/y", false},
		{"x/**", "x", true},
		{"x/**", "x/y/z", true},
		{"x/**", "xx/y", false},
		{"x/**/z", "x/z", true},
		{"x/**/z", "x/y/y/z", true},
		{"x/**/z", "x/y/z/y", false},
		{"**/a/**/b", "a/b", true},
		{"**/a/**/b", "a/a/x/b/b", true},
		{"**/a/**/b", "b/a", false},
		{"**/**", "x", true},
		{"*/**", "x", true},
		{"**/*/*", "x", false},
		{"*", "x*y", true},
		{"\xc3\xa9*", "\xc3\xa9t\xc3\xa9", true},
	};

	for (size_t i = 0; i < TDP_ARRAY_LENGTH(cases); i++)
		cr_assert_eq(tdp_pattern_match(cases[i].pattern, cases[i].name), cases[i].is_match,
			     "%s on %s", cases[i].pattern, cases[i].name);
}

/* The definition: try everything. */
static bool reference_match(const char *pattern, const char *name, bool is_part_start)
{
	if (is_part_start && strncmp(pattern, "**", 2) == 0) {
		const char *rest = pattern + 2;

		/* No part; or one part, and then again any number. */
		if (*rest == '\0')
			return true;
		rest++;
		for (const char *at = name;; at++) {
			if (reference_match(rest, at, true))
				return true;
			at += strcspn(at, "/");
			if (*at == '\0')
				return false;
		}
	}
	if (*pattern == '*') {
		for (const char *at = name;; at++) {
			if (reference_match(pattern + 1, at, false))
				return true;
			if (*at == '\0' || *at == '/')
				return false;
		}
	}
	if (*pattern == '\0' || *name == '\0') {
		/* `x` is matched by `x`, followed by any number of parts that may be none. */
		while (*name == '\0' && strncmp(pattern, "/**", 3) == 0)
			pattern += 3;
		return *pattern == *name;
	}
	return *pattern == *name && reference_match(pattern + 1, name + 1, *pattern == '/');
}

static void random_text(char *text, const char *alphabet, size_t max_length)
{
	struct tdp_fault fault;

	do {
		size_t length = 1 + (size_t)random() % max_length;

		for (size_t i = 0; i < length; i++)
			text[i] = alphabet[(size_t)random() % strlen(alphabet)];
		text[length] = '\0';
	} while (tdp_pattern_check(text, &fault) != 0);
}

TT_TEST(names, match_agrees_with_brute_force)
{
	unsigned int matches = 0;

	srandom(20261201);
	for (int i = 0; i < 100000; i++) {
		char pattern[16], name[16];
		bool is_match;

		random_text(pattern, "ab/**/", 9);
		random_text(name, "aab/", 9);
		is_match = reference_match(pattern, name, true);
		matches += is_match;
		cr_assert_eq(tdp_pattern_match(pattern, name), is_match, "%s on %s", pattern, name);
	}
	cr_assert_gt(matches, 1000);
}

/* @count times @piece, then @end. */
static void text_repeat(char *text, size_t size, int count, const char *piece, const char *end)
{
	size_t length = 0;

	for (int i = 0; i < count; i++)
		length += (size_t)snprintf(text + length, size - length, "%s", piece);
	(void)snprintf(text + length, size - length, "%s", end);
}

/* Exponential backtracking would not come back from these. */
TT_TEST(names, match_takes_at_most_length_times_length_steps)
{
	char pattern[256], name[256];

	text_repeat(pattern, sizeof(pattern), 127, "*a", "");
	text_repeat(name, sizeof(name), 126, "aa", "ab");
	cr_assert_not(tdp_pattern_match(pattern, name));

	text_repeat(pattern, sizeof(pattern), 50, "**/a/", "b");
	text_repeat(name, sizeof(name), 127, "a/", "c");
	cr_assert_not(tdp_pattern_match(pattern, name));
}

TT_TEST(names, clean_texts)
{
	cr_assert(tdp_text_is_clean("", 0));
	cr_assert(tdp_text_is_clean("a: b", 4));
	cr_assert_not(tdp_text_is_clean("a\0b", 3));
	cr_assert_not(tdp_text_is_clean("a\tb", 3));
	cr_assert_not(tdp_text_is_clean("\xc3\xa9", 1));
}
