/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as pattern, zero, name. */
#include <string.h>

#include "proto/base/utf8.h"
#include "proto/names.h"
#include "proto/wire/limits.h"
#include "tests/fuzz/fuzz.h"

static void expect_clean(const char *text)
{
	char *copy = strdup(text);

	if (copy == NULL)
		return;
	tdp_utf8_clean(copy);
	TT_FUZZ_EXPECT(strlen(copy) == strlen(text));
	TT_FUZZ_EXPECT(tdp_text_is_clean(copy, strlen(copy)));
	if (tdp_text_is_clean(text, strlen(text)))
		TT_FUZZ_EXPECT(strcmp(copy, text) == 0);
	free(copy);
}

static void expect_match(const char *pattern, const char *name)
{
	char longer[TDP_NAME_MAX_BYTES + 8];
	bool is_match = tdp_pattern_match(pattern, name);

	TT_FUZZ_EXPECT(tdp_pattern_match("**", name));
	if (strchr(pattern, '*') == NULL)
		TT_FUZZ_EXPECT(is_match == (strcmp(pattern, name) == 0));
	/* One part more: matched by the same with `**` behind it. */
	if (is_match && strlen(pattern) + 3 < sizeof(longer)) {
		(void)snprintf(longer, sizeof(longer), "%s/**", pattern);
		TT_FUZZ_EXPECT(tdp_pattern_match(longer, name));
		(void)snprintf(longer, sizeof(longer), "**/%s", pattern);
		TT_FUZZ_EXPECT(tdp_pattern_match(longer, name));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = calloc(1, size + 2);
	struct tdp_fault fault;
	const char *pattern = text, *name;
	bool is_name;

	if (text == NULL)
		return 0;
	if (size > 0)
		memcpy(text, data, size);
	name = text + strlen(text) + 1;
	is_name = tdp_name_check(name, &fault) == 0;
	if (is_name)
		TT_FUZZ_EXPECT(tdp_text_is_clean(name, strlen(name)) &&
			       strlen(name) <= TDP_NAME_MAX_BYTES && strchr(name, ':') == NULL);
	if (is_name && strstr(name, "**") == NULL)
		TT_FUZZ_EXPECT(tdp_pattern_check(name, &fault) == 0);
	if (tdp_pattern_check(pattern, &fault) == 0 && is_name)
		expect_match(pattern, name);
	expect_clean(pattern);
	expect_clean(name);
	free(text);
	return 0;
}
