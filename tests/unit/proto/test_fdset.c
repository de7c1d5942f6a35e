/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <unistd.h>

#include "proto/wire/fdset.h"
#include "tests/support/leak.h"

static void set_fill(struct tdp_fdset *set, uint32_t count)
{
	tdp_fdset_init(set);
	while (set->count < count)
		set->fds[set->count++] = dup(STDOUT_FILENO);
}

TT_TEST(fdset, gives_each_descriptor_once)
{
	struct tdp_fdset set;
	int fd;

	set_fill(&set, 3);
	fd = tdp_fdset_steal(&set, 1);
	cr_assert_neq(fcntl(fd, F_GETFD), -1);
	cr_assert_eq(tdp_fdset_steal(&set, 1), -1);
	cr_assert_eq(tdp_fdset_steal(&set, 3), -1);
	cr_assert_eq(tdp_fdset_steal(&set, UINT32_MAX), -1);
	tdp_fdset_deinit(&set);
	cr_assert_neq(fcntl(fd, F_GETFD), -1, "stolen, hence not the set's to close");
	close(fd);
}

TT_TEST(fdset, closes_what_is_left_at_the_end_of_scope)
{
	int before = tt_descriptor_count();

	{
		tdp_auto_fdset set;

		set_fill(&set, 20);
		cr_assert_eq(tt_descriptor_count(), before + 20);
	}
	cr_assert_eq(tt_descriptor_count(), before);
}

TT_TEST(fdset, empty_and_closed_sets_are_left_alone)
{
	struct tdp_fdset set;

	tdp_fdset_init(&set);
	cr_assert_eq(tdp_fdset_steal(&set, 0), -1);
	tdp_fdset_deinit(&set);
	set_fill(&set, 1);
	tdp_fdset_deinit(&set);
	tdp_fdset_deinit(&set);
	cr_assert_eq(set.count, 0);
}
