/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of bundles: which are some, and which clash. */
#include "proto/keys.h"

#include <stdio.h>
#include <string.h>

#include "proto/names.h"
#include "proto/wire/limits.h"
#include "tests/support/leak.h"

static int check(const char *key)
{
	struct tdp_fault fault = {0};
	int result = tdp_key_check(key, strlen(key), &fault);

	cr_assert_eq(fault.code, result);
	if (result != 0)
		cr_assert(tdp_text_is_clean(fault.text, strlen(fault.text)), "%s", fault.text);
	return result;
}

TT_TEST(keys, that_are_fine)
{
	static const char *const keys[] = {
		"a",
		"a/b",
		"layers/0/weight",
		".",
		"..",
		"a/../b",
		"a:b",
		"*",
		"a b",
		"~0",
		"~1",
		"a~1b/~0~0",
		"\xc3\xa4/\xf0\x9f\xa6\x84",
		"-",
		"0",
	};
	char longest[TDP_KEY_MAX_BYTES + 1];

	for (size_t i = 0; i < TDP_ARRAY_LENGTH(keys); i++)
		cr_expect_eq(check(keys[i]), 0, "%s", keys[i]);
	memset(longest, 'k', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	cr_expect_eq(check(longest), 0);
}

TT_TEST(keys, that_are_none)
{
	static const char *const keys[] = {
		"",   "/",    "/a",  "a/",   "a//b", "//",   "~",    "a~",	   "~2",
		"~a", "a~/b", "~~0", "\xff", "a\nb", "\x7f", "\xc3", "a/\xc2\x85",
	};
	char too_long[TDP_KEY_MAX_BYTES + 2];

	for (size_t i = 0; i < TDP_ARRAY_LENGTH(keys); i++)
		cr_expect_eq(check(keys[i]), TIDL_ERR_INVALID_ARGUMENT, "key %zu", i);
	memset(too_long, 'k', sizeof(too_long) - 1);
	too_long[sizeof(too_long) - 1] = '\0';
	cr_expect_eq(check(too_long), TIDL_ERR_INVALID_ARGUMENT);
}

TT_TEST(keys, lie_in_mappings)
{
	static const struct {
		const char *key, *what;
		bool is_within;
	} rows[] = {
		{"a", "a", true},	{"a/b", "a", true},   {"a/b/c", "a/b", true},
		{"ab", "a", false},	{"a", "a/b", false},  {"a/b", "b", false},
		{"a/bc", "a/b", false}, {"a~1b", "a", false},
	};

	for (size_t i = 0; i < TDP_ARRAY_LENGTH(rows); i++)
		cr_expect_eq(tdp_key_is_within(rows[i].key, strlen(rows[i].key), rows[i].what,
					       strlen(rows[i].what)),
			     rows[i].is_within, "%s in %s", rows[i].key, rows[i].what);
}

static int check_set(const char *const *keys, size_t count, uint64_t secret)
{
	tdp_auto_keyset set;
	struct tdp_fault fault = {0};
	int result = tdp_keyset_init(&set, count, secret, &fault);

	for (size_t i = 0; i < count && result == 0; i++)
		result = tdp_keyset_add(&set, keys[i], strlen(keys[i]), &fault);
	if (result == 0)
		result = tdp_keyset_check(&set, 0, set.count, &fault);
	for (size_t i = 0; i < count && result == 0; i++)
		cr_expect_eq(tdp_keyset_find(&set, keys[i], strlen(keys[i])), (int64_t)i);
	return result;
}

TT_TEST(keys, that_clash)
{
	static const struct {
		const char *keys[4];
		int code;
	} rows[] = {
		{{"a", "b", "c", "d"}, 0},
		{{"a/b", "a/c", "a/b2", "a0"}, 0},
		{{"a/b", "a/c", "a/b", "d"}, TIDL_ERR_INVALID_ARGUMENT},
		{{"a", "b", "a/b", "d"}, TIDL_ERR_INVALID_ARGUMENT},
		{{"a/b", "b", "c", "a"}, TIDL_ERR_INVALID_ARGUMENT},
		{{"a/b/c/d", "a/b/c/e", "a/b", "x"}, TIDL_ERR_INVALID_ARGUMENT},
		{{"x/y/a", "x/y/b/c", "x/y/b", "z"}, TIDL_ERR_INVALID_ARGUMENT},
		{{"x/y/b", "x/y/b0", "x/y/b1/c", "x/y/b/c"}, TIDL_ERR_INVALID_ARGUMENT},
	};

	for (size_t i = 0; i < TDP_ARRAY_LENGTH(rows); i++) {
		cr_expect_eq(check_set(rows[i].keys, 4, 0), rows[i].code, "row %zu", i);
		cr_expect_eq(check_set(rows[i].keys, 4, 12345678901234567u + i), rows[i].code,
			     "row %zu", i);
	}
	cr_expect_eq(check_set(NULL, 0, 0), 0);
}

TT_TEST(keys, a_set_of_many)
{
	enum { COUNT = 20000 };
	static char texts[COUNT][24];
	static const char *keys[COUNT];

	for (int i = 0; i < COUNT; i++) {
		(void)snprintf(texts[i], sizeof(texts[i]), "layers/%d/weight", i);
		keys[i] = texts[i];
	}
	cr_expect_eq(check_set(keys, COUNT, 0), 0);
	memcpy(texts[COUNT - 1], "layers/77", 10);
	cr_expect_eq(check_set(keys, COUNT, 0), TIDL_ERR_INVALID_ARGUMENT);
	memcpy(texts[COUNT - 1], "layers/77/weight", 17);
	cr_expect_eq(check_set(keys, COUNT, 0), TIDL_ERR_INVALID_ARGUMENT);
}

TT_TEST(keys, a_set_is_never_filled_beyond_its_size)
{
	tdp_auto_keyset set;
	struct tdp_fault fault = {0};

	cr_assert_eq(tdp_keyset_init(&set, 1, 0, &fault), 0);
	cr_assert_eq(tdp_keyset_add(&set, "a", 1, &fault), 0);
	cr_expect_eq(tdp_keyset_add(&set, "b", 1, &fault), TIDL_ERR_LIMIT);
	cr_expect_eq(tdp_keyset_find(&set, "b", 1), -1);
}

/* At a point where only the last byte of a text counts, keys fall together by the dozen: what
 * differs is told apart all the same. */
TT_TEST(keys, at_the_worst_point)
{
	static const char *const keys[] = {"a/x", "b/x", "c/x", "a/y", "ab/x", "x"};
	const uint64_t zero = ((uint64_t)1 << 61) - 1;

	cr_expect_eq(check_set(keys, TDP_ARRAY_LENGTH(keys), zero), 0);
}

TT_TEST(keys, walks)
{
	static const struct {
		int64_t index;
		size_t prefix_bytes;
	} steps[] = {{-1, 1}, {1, 4}, {-1, 6}, {0, 8}};
	tdp_auto_keyset set;
	struct tdp_keyset_walk walk;
	struct tdp_fault fault = {0};
	int64_t index;

	cr_assert_eq(tdp_keyset_init(&set, 2, 7, &fault), 0);
	cr_assert_eq(tdp_keyset_add(&set, "a/bc/d/e", 8, &fault), 0);
	cr_assert_eq(tdp_keyset_add(&set, "a/bc", 4, &fault), 0);
	tdp_keyset_walk_init(&walk, &set, "a/bc/d/e", 8);
	for (size_t i = 0; i < TDP_ARRAY_LENGTH(steps); i++) {
		cr_assert(tdp_keyset_walk_next(&walk, &index));
		cr_expect_eq(index, steps[i].index);
		cr_expect_eq(walk.prefix_bytes, steps[i].prefix_bytes);
	}
	cr_expect_not(tdp_keyset_walk_next(&walk, &index));
}
