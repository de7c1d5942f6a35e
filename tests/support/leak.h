/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SUPPORT_LEAK_H
#define TT_SUPPORT_LEAK_H

#include <stdbool.h>

#include <criterion/criterion.h>

#include "tests/support/descriptors.h"

/*
 * The frame of every C test: a Criterion test whose body must give back all memory and all
 * descriptors. The check is made in the test itself, because neither a sanitizer's report at the
 * worker's exit nor an assertion in `.fini` changes Criterion's verdict.
 *
 *	TT_TEST(fdset, closes_what_is_left, .timeout = 10)
 *	{
 *		...
 *	}
 */
#define TT_TEST(suite, name, ...)                                                                  \
	static void suite##_##name##_body(void);                                                   \
	Test(suite, name, ##__VA_ARGS__)                                                           \
	{                                                                                          \
		struct tt_leak leak;                                                               \
                                                                                                   \
		tt_leak_begin(&leak);                                                              \
		suite##_##name##_body();                                                           \
		cr_assert(tt_leak_descriptors(&leak) == 0, "the test left %d descriptors open",    \
			  tt_leak_descriptors(&leak));                                             \
		cr_assert(!tt_leak_memory(), "the test lost memory: see the report above");        \
	}                                                                                          \
	__attribute__((noinline)) static void suite##_##name##_body(void)

struct tt_leak {
	int descriptor_count;
};

void tt_leak_begin(struct tt_leak *leak);

/* Descriptors opened and not closed since the beginning; negative when too many were closed. */
int tt_leak_descriptors(const struct tt_leak *leak);

/* Is there memory that nothing points to? Always false without LeakSanitizer. */
bool tt_leak_memory(void);
bool tt_leak_can_see_memory(void);

#endif
