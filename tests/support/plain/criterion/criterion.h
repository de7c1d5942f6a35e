/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PLAIN_CRITERION_H
#define TT_PLAIN_CRITERION_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/*
 * As much of Criterion's interface as the tests use, for builds with ThreadSanitizer. Criterion's
 * worker processes share an arena at an address between 32 and 96 TiB, all of which is shadow
 * there, so no test of it ever starts. Here each test runs in a forked child, one at a time, and
 * the results are written in Criterion's format.
 */

struct tt_plain_options {
	double timeout; /* seconds, 0: the default */
	void (*init)(void);
	void (*fini)(void);
};

struct tt_plain_test {
	const char *suite;
	const char *name;
	void (*body)(void); /* NULL: the suite itself, with the options of all its tests */
	struct tt_plain_options options;
	struct tt_plain_test *next;
};

void tt_plain_register(struct tt_plain_test *test);

/* Say where and why the test failed; end its process, failed or skipped. */
void tt_plain_note(const char *file, int line, const char *condition, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
void tt_plain_end(void) __attribute__((noreturn));
void tt_plain_skip(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

#define TT_PLAIN_REGISTER(suite_, name_, body_, ...)                                               \
	__attribute__((constructor)) static void suite_##_##name_##_register(void)                 \
	{                                                                                          \
		static struct tt_plain_test test = {.suite = #suite_,                              \
						    .name = #name_,                                \
						    .body = (body_),                               \
						    .options = {__VA_ARGS__}};                     \
                                                                                                   \
		tt_plain_register(&test);                                                          \
	}
#define TestSuite(suite_, ...) TT_PLAIN_REGISTER(suite_, plain_suite, NULL, __VA_ARGS__)
#define Test(suite_, name_, ...)                                                                   \
	static void suite_##_##name_##_test(void);                                                 \
	TT_PLAIN_REGISTER(suite_, name_, suite_##_##name_##_test, __VA_ARGS__)                     \
	static void suite_##_##name_##_test(void)

/* The blank keeps the format from being empty where no message is given. */
#define cr_expect(condition, ...)                                                                  \
	do {                                                                                       \
		if (!(condition))                                                                  \
			tt_plain_note(__FILE__, __LINE__, #condition, " " __VA_ARGS__);            \
	} while (0)
#define cr_assert(condition, ...)                                                                  \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			tt_plain_note(__FILE__, __LINE__, #condition, " " __VA_ARGS__);            \
			tt_plain_end();                                                            \
		}                                                                                  \
	} while (0)

#define cr_assert_not(condition, ...)	cr_assert(!(condition), ##__VA_ARGS__)
#define cr_assert_eq(a, b, ...)		cr_assert((a) == (b), ##__VA_ARGS__)
#define cr_assert_neq(a, b, ...)	cr_assert((a) != (b), ##__VA_ARGS__)
#define cr_assert_lt(a, b, ...)		cr_assert((a) < (b), ##__VA_ARGS__)
#define cr_assert_leq(a, b, ...)	cr_assert((a) <= (b), ##__VA_ARGS__)
#define cr_assert_gt(a, b, ...)		cr_assert((a) > (b), ##__VA_ARGS__)
#define cr_assert_geq(a, b, ...)	cr_assert((a) >= (b), ##__VA_ARGS__)
#define cr_assert_null(a, ...)		cr_assert((a) == NULL, ##__VA_ARGS__)
#define cr_assert_not_null(a, ...)	cr_assert((a) != NULL, ##__VA_ARGS__)
#define cr_assert_str_eq(a, b, ...)	cr_assert(strcmp((a), (b)) == 0, ##__VA_ARGS__)
#define cr_assert_str_neq(a, b, ...)	cr_assert(strcmp((a), (b)) != 0, ##__VA_ARGS__)
#define cr_assert_str_not_empty(a, ...) cr_assert((a)[0] != '\0', ##__VA_ARGS__)
#define cr_assert_float_eq(a, b, epsilon, ...)                                                     \
	cr_assert(fabs((a) - (b)) <= (epsilon), ##__VA_ARGS__)

#define cr_expect_not(condition, ...)	cr_expect(!(condition), ##__VA_ARGS__)
#define cr_expect_eq(a, b, ...)		cr_expect((a) == (b), ##__VA_ARGS__)
#define cr_expect_neq(a, b, ...)	cr_expect((a) != (b), ##__VA_ARGS__)
#define cr_expect_lt(a, b, ...)		cr_expect((a) < (b), ##__VA_ARGS__)
#define cr_expect_leq(a, b, ...)	cr_expect((a) <= (b), ##__VA_ARGS__)
#define cr_expect_gt(a, b, ...)		cr_expect((a) > (b), ##__VA_ARGS__)
#define cr_expect_geq(a, b, ...)	cr_expect((a) >= (b), ##__VA_ARGS__)
#define cr_expect_null(a, ...)		cr_expect((a) == NULL, ##__VA_ARGS__)
#define cr_expect_not_null(a, ...)	cr_expect((a) != NULL, ##__VA_ARGS__)
#define cr_expect_str_eq(a, b, ...)	cr_expect(strcmp((a), (b)) == 0, ##__VA_ARGS__)
#define cr_expect_str_neq(a, b, ...)	cr_expect(strcmp((a), (b)) != 0, ##__VA_ARGS__)
#define cr_expect_str_not_empty(a, ...) cr_expect((a)[0] != '\0', ##__VA_ARGS__)
#define cr_expect_float_eq(a, b, epsilon, ...)                                                     \
	cr_expect(fabs((a) - (b)) <= (epsilon), ##__VA_ARGS__)

#define cr_skip_test(...) tt_plain_skip(" " __VA_ARGS__)

#endif
