/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors that are closed a few at a time: all of them, in order, and none twice. */
#include "daemon/closer.h"

#include <fcntl.h>
#include <unistd.h>

#include "daemon/limits.h"
#include "tests/support/leak.h"

enum { COUNT = 3 * TDD_CLOSES_PER_TURN };

static int fds[COUNT][2];

static void take_all(uint64_t size_bytes)
{
	/* All of them first, since numbers are used again. */
	for (int i = 0; i < COUNT; i++)
		cr_assert_eq(pipe(fds[i]), 0);
	for (int i = 0; i < COUNT; i++)
		tdd_closer_take(fds[i][0], fds[i][1], size_bytes);
}

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

TT_TEST(closer, a_few_at_once_and_the_rest_in_the_turns_that_follow)
{
	take_all(4096);
	cr_expect_not(is_open(fds[TDD_CLOSES_PER_TURN - 1][0]));
	cr_expect(is_open(fds[TDD_CLOSES_PER_TURN][1]));
	cr_expect(tdd_closer_turn());
	cr_expect_not(is_open(fds[2 * TDD_CLOSES_PER_TURN - 1][1]));
	cr_expect(is_open(fds[2 * TDD_CLOSES_PER_TURN][0]));
	cr_expect_not(tdd_closer_turn());
	cr_expect_not(is_open(fds[COUNT - 1][1]));
	tdd_closer_finish();
}

TT_TEST(closer, makes_room_for_more_than_is_opened)
{
	take_all(4096);
	tdd_closer_make_room();
	cr_expect_not(is_open(fds[TDD_CLOSES_PER_TURN + 1][1]));
	cr_expect(is_open(fds[TDD_CLOSES_PER_TURN + 2][0]));
	tdd_closer_finish();
	cr_expect_not(is_open(fds[COUNT - 1][0]));
	tdd_closer_make_room();
}

TT_TEST(closer, takes_halves_and_nothing)
{
	int ends[2];

	cr_assert_eq(pipe(ends), 0);
	tdd_closer_take(-1, -1, 4096);
	tdd_closer_take(-1, ends[0], 4096);
	tdd_closer_take(ends[1], -1, 4096);
	cr_expect_not(is_open(ends[0]));
	cr_expect_not(is_open(ends[1]));
	tdd_closer_finish();
}

/* End of file once a thread has closed the other end. */
TT_TEST(closer, large_ones_elsewhere)
{
	int ends[2];
	char byte;

	cr_assert_eq(pipe(ends), 0);
	tdd_closer_take(ends[1], -1, TDD_LARGE_CLOSE_BYTES);
	cr_expect_eq(read(ends[0], &byte, 1), 0);
	close(ends[0]);
	tdd_closer_finish();
}
