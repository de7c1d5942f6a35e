/* SPDX-License-Identifier: Apache-2.0 */
#include "client/lib/owner.h"

#include "tests/support/leak.h"

struct owner_case {
	const char *text;
	int result;
	bool has_owner;
	uint32_t owner_uid;
	const char *path;
};

TT_TEST(owner, names)
{
	static const struct owner_case cases[] = {
		{"x", 0, false, 0, "x"},
		{"a/b", 0, false, 0, "a/b"},
		{"root:a/b", 0, true, 0, "a/b"},
		{"0:a", 0, true, 0, "a"},
		{"1000:x", 0, true, 1000, "x"},
		{"4294967294:x", 0, true, 4294967294, "x"},
		{"4294967295:x", TIDL_ERR_NAME_INVALID, false, 0, NULL},
		{"99999999999999999999:x", TIDL_ERR_NAME_INVALID, false, 0, NULL},
		{"nobody-has-this-name:x", TIDL_ERR_NOT_FOUND, false, 0, NULL},
		{":x", TIDL_ERR_NAME_INVALID, false, 0, NULL},
		{"root:", TIDL_ERR_NAME_INVALID, false, 0, NULL},
		{"root:a:b", TIDL_ERR_NAME_INVALID, false, 0, NULL},
		{"*:x", TIDL_ERR_NOT_FOUND, false, 0, NULL},
		{"", TIDL_ERR_NAME_INVALID, false, 0, NULL},
		{"a//b", TIDL_ERR_NAME_INVALID, false, 0, NULL},
		{"-1:x", TIDL_ERR_NOT_FOUND, false, 0, NULL},
	};

	for (size_t i = 0; i < TDP_ARRAY_LENGTH(cases); i++) {
		struct tdp_fault fault = {0};
		struct tdc_name name = {0};
		int r = tdc_name_parse(cases[i].text, &name, &fault);

		cr_assert_eq(r, cases[i].result, "%s: %d %s", cases[i].text, r, fault.text);
		if (r < 0) {
			cr_assert_str_not_empty(fault.text);
			continue;
		}
		cr_assert_eq(name.has_owner, cases[i].has_owner, "%s", cases[i].text);
		cr_assert_eq(name.owner_uid, cases[i].owner_uid, "%s", cases[i].text);
		cr_assert_str_eq(name.path, cases[i].path);
		cr_assert_not(name.any_owner);
	}
}

TT_TEST(owner, patterns)
{
	struct tdp_fault fault;
	struct tdc_name name;

	cr_assert_eq(tdc_pattern_parse("**", &name, &fault), 0);
	cr_assert(!name.any_owner && !name.has_owner);
	cr_assert_eq(tdc_pattern_parse("*:**", &name, &fault), 0);
	cr_assert(name.any_owner && !name.has_owner);
	cr_assert_str_eq(name.path, "**");
	cr_assert_eq(tdc_pattern_parse("root:a/*", &name, &fault), 0);
	cr_assert(!name.any_owner && name.has_owner && name.owner_uid == 0);
	cr_assert_eq(tdc_pattern_parse("a**", &name, &fault), TIDL_ERR_NAME_INVALID);
	cr_assert_eq(tdc_pattern_parse("nobody-has-this-name:*", &name, &fault),
		     TIDL_ERR_NOT_FOUND);
}

TT_TEST(owner, an_owner_of_any_length_is_refused_without_harm)
{
	char text[2000];
	struct tdp_fault fault;
	struct tdc_name name;

	memset(text, 'u', sizeof(text));
	text[sizeof(text) - 3] = ':';
	text[sizeof(text) - 2] = 'x';
	text[sizeof(text) - 1] = '\0';
	cr_assert_eq(tdc_name_parse(text, &name, &fault), TIDL_ERR_NAME_INVALID);
}
