/* SPDX-License-Identifier: Apache-2.0 */
/* The leak check that all other tests rely on: it has to see what it is there for. */
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/support/leak.h"

Test(support, sees_a_descriptor_that_stays_open)
{
	struct tt_leak leak;
	int fd;

	tt_leak_begin(&leak);
	fd = dup(STDOUT_FILENO);
	cr_assert_geq(fd, 0);
	cr_assert_eq(tt_leak_descriptors(&leak), 1);
	close(fd);
	cr_assert_eq(tt_leak_descriptors(&leak), 0);
}

Test(support, sees_a_descriptor_closed_too_often)
{
	int fd = dup(STDOUT_FILENO);
	struct tt_leak leak;

	tt_leak_begin(&leak);
	close(fd);
	cr_assert_eq(tt_leak_descriptors(&leak), -1);
}

static uintptr_t hidden_pointer;

/* Hidden from the scanner, not lost: the test can free it afterwards. */
__attribute__((noinline)) static void pointer_hide(void)
{
	hidden_pointer = ~(uintptr_t)malloc(100); /* NOLINT(clang-analyzer-unix.Malloc) */
}

/* Overwrites what the calls before left in registers and on the stack. */
__attribute__((noinline)) static void stack_clear(void)
{
	volatile unsigned char bytes[4096];

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = 0;
}

Test(support, sees_lost_memory)
{
	if (!tt_leak_can_see_memory())
		cr_skip_test("built without LeakSanitizer");
	cr_assert_not(tt_leak_memory());
	pointer_hide();
	stack_clear();
	cr_assert(tt_leak_memory());
	free((void *)~hidden_pointer);
	cr_assert_not(tt_leak_memory());
}

TT_TEST(support, a_clean_body_passes)
{
	void *piece = malloc(100);
	int fd = dup(STDOUT_FILENO);

	cr_assert_not_null(piece);
	cr_assert_geq(fd, 0);
	free(piece);
	close(fd);
}
