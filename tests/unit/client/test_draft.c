/* SPDX-License-Identifier: Apache-2.0 */
/* Bundles that are being put together: whose tensors they are, and which keys go together. */
#include <stdio.h>
#include <string.h>

#include "client/lib/draft.h"
#include "proto/wire/limits.h"
#include "tests/support/leak.h"
#include "tests/unit/client/support/foreign.h"

static float data[4];

static void foreign_fill(struct tt_foreign *foreign)
{
	tt_foreign_init(foreign, data, 1, (int64_t[]){4}, NULL);
}

/* Adds tensors for those keys, and empty mappings for those that begin with `=`. */
static int draft_try(const char *const *keys)
{
	struct tt_foreign foreign[8];
	struct tdc_content content;
	struct tidl_draft *draft;
	struct tdp_fault fault;
	int added = 0;
	int r;

	cr_assert_eq(tidl_draft_new(&draft), 0);
	for (size_t i = 0; keys[i] != NULL; i++) {
		foreign_fill(&foreign[i]);
		if (keys[i][0] == '=') {
			cr_assert_eq(tidl_draft_add_mapping(draft, keys[i] + 1), 0);
			continue;
		}
		cr_assert_eq(tidl_draft_add(draft, keys[i], &foreign[i].managed), 0, "%s: %s",
			     keys[i], tidl_last_error());
		added++;
	}
	r = tdc_draft_finish(draft, &content, &fault);
	tidl_draft_free(draft);
	for (size_t i = 0; keys[i] != NULL; i++)
		added -= foreign[i].deleted;
	cr_assert_eq(added, 0);
	return r;
}

TT_TEST(draft, keys_that_go_together)
{
	cr_assert_eq(draft_try((const char *[]){NULL}), 0);
	cr_assert_eq(draft_try((const char *[]){"a", "b/c", "b/d", "ab", "=e", "=b/f", NULL}), 0);
	cr_assert_eq(draft_try((const char *[]){"a~1b", "a/b", "a~0", "a.b", NULL}), 0);
}

TT_TEST(draft, keys_that_clash)
{
	const int refused = TIDL_ERR_INVALID_ARGUMENT;

	cr_assert_eq(draft_try((const char *[]){"a", "b", "a", NULL}), refused);
	cr_assert_eq(draft_try((const char *[]){"a", "a/b", NULL}), refused);
	cr_assert_eq(draft_try((const char *[]){"a/b/c", "x", "a/b", NULL}), refused);
	cr_assert_eq(draft_try((const char *[]){"=a", "a/b", NULL}), refused);
	cr_assert_eq(draft_try((const char *[]){"a/b", "=a", NULL}), refused);
	cr_assert_eq(draft_try((const char *[]){"=a", "a", NULL}), refused);
	cr_assert_eq(draft_try((const char *[]){"=a", "=a", NULL}), refused);
}

TT_TEST(draft, keys_that_break_the_rules)
{
	static char too_long[TDP_KEY_MAX_BYTES + 2];
	const char *bad[] = {"",    "/",    "a/",   "/a",   "a//b", "~",
			     "a~2", "a/b~", "a\nb", "\x7f", "\xff", too_long};
	struct tt_foreign foreign;
	struct tidl_draft *draft;

	memset(too_long, 'k', sizeof(too_long) - 1);
	cr_assert_eq(tidl_draft_new(&draft), 0);
	for (size_t i = 0; i < TDP_ARRAY_LENGTH(bad); i++) {
		foreign_fill(&foreign);
		cr_assert_eq(tidl_draft_add(draft, bad[i], &foreign.managed),
			     TIDL_ERR_INVALID_ARGUMENT, "'%s'", bad[i]);
		cr_assert_eq(tidl_draft_add_mapping(draft, bad[i]), TIDL_ERR_INVALID_ARGUMENT);
		cr_assert_eq(foreign.deleted, 0, "it stays with the caller");
	}
	too_long[TDP_KEY_MAX_BYTES] = '\0';
	cr_assert_eq(tidl_draft_add(draft, too_long, &foreign.managed), 0);
	tidl_draft_free(draft);
	cr_assert_eq(foreign.deleted, 1);
}

TT_TEST(draft, tensors_are_checked_as_they_come)
{
	struct tt_foreign foreign;
	struct tidl_draft *draft;

	cr_assert_eq(tidl_draft_new(&draft), 0);
	foreign_fill(&foreign);
	foreign.managed.dl_tensor.device.device_type = kDLCUDA;
	cr_assert_eq(tidl_draft_add(draft, "a/b", &foreign.managed), TIDL_ERR_DEVICE);
	cr_assert_eq(strncmp(tidl_last_error(), "'a/b': the tensor lies on", 25), 0, "%s",
		     tidl_last_error());
	foreign_fill(&foreign);
	foreign.legacy.dl_tensor.dtype.bits = 33;
	cr_assert_eq(tidl_draft_add_legacy(draft, "c", &foreign.legacy), TIDL_ERR_DTYPE);
	cr_assert_eq(tidl_draft_add(draft, "d", NULL), TIDL_ERR_INVALID_ARGUMENT);
	cr_assert_eq(tidl_draft_add(draft, NULL, &foreign.managed), TIDL_ERR_INVALID_ARGUMENT);
	cr_assert_eq(tidl_draft_add(NULL, "d", &foreign.managed), TIDL_ERR_INVALID_ARGUMENT);
	tidl_draft_free(draft);
	tidl_draft_free(NULL);
	cr_assert_eq(foreign.deleted, 0);
}

TT_TEST(draft, order_and_positions)
{
	struct tt_foreign foreign[2];
	struct tdc_content content;
	struct tidl_draft *draft;
	struct tdp_fault fault;

	foreign_fill(&foreign[0]);
	foreign_fill(&foreign[1]);
	cr_assert_eq(tidl_draft_new(&draft), 0);
	cr_assert_eq(tidl_draft_add_mapping(draft, "first"), 0);
	cr_assert_eq(tidl_draft_add(draft, "z", &foreign[0].managed), 0);
	cr_assert_eq(tidl_draft_add_mapping(draft, "middle"), 0);
	cr_assert_eq(tidl_draft_add(draft, "a", &foreign[1].managed), 0);
	cr_assert_eq(tidl_draft_add_mapping(draft, "last"), 0);
	cr_assert_eq(tdc_draft_finish(draft, &content, &fault), 0);
	cr_assert(content.is_bundle);
	cr_assert_eq(content.member_count, 2);
	cr_assert_str_eq(content.members[0].key, "z");
	cr_assert_str_eq(content.members[1].key, "a");
	cr_assert_eq(content.mapping_count, 3);
	for (uint32_t i = 0; i < 3; i++)
		cr_assert_eq(content.mappings[i].position, i);
	tidl_draft_free(draft);
}

TT_TEST(draft, there_is_an_end, .timeout = 60)
{
	struct tt_foreign foreign;
	struct tidl_draft *draft;
	char key[16];

	foreign_fill(&foreign);
	cr_assert_eq(tidl_draft_new(&draft), 0);
	for (int i = 0; i < TDP_TENSORS_PER_PUBLICATION; i++) {
		(void)snprintf(key, sizeof(key), "%d", i);
		cr_assert_eq(i % 2 ? tidl_draft_add_mapping(draft, key)
				   : tidl_draft_add(draft, key, &foreign.managed),
			     0);
	}
	cr_assert_eq(tidl_draft_add(draft, "one more", &foreign.managed), TIDL_ERR_LIMIT);
	cr_assert_eq(tidl_draft_add_mapping(draft, "one more"), TIDL_ERR_LIMIT);
	tidl_draft_free(draft);
	cr_assert_eq(foreign.deleted, TDP_TENSORS_PER_PUBLICATION / 2);
}
