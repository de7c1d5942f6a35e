/* SPDX-License-Identifier: Apache-2.0 */
/* The descriptors of the test's own process: how many there are, and how many there may be. */
#include "tests/support/descriptors.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>

int tt_descriptor_count(void)
{
	DIR *folder = opendir("/proc/self/fd");
	int count = 0;

	cr_assert_not_null(folder, "/proc is not mounted");
	while (readdir(folder) != NULL)
		count++;
	closedir(folder);
	return count - 3; /* `.`, `..` and the folder itself */
}

void tt_descriptor_limit(int room, struct rlimit *ret_before)
{
	struct rlimit low;
	int number = 0;

	/* The limit is on numbers, and the test may run with gaps between its descriptors. */
	while (room > 0 || fcntl(number, F_GETFD) >= 0) {
		if (fcntl(number, F_GETFD) < 0)
			room--;
		number++;
	}
	cr_assert_eq(getrlimit(RLIMIT_NOFILE, ret_before), 0);
	low = (struct rlimit){.rlim_cur = (rlim_t)number, .rlim_max = ret_before->rlim_max};
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
}

void tt_descriptor_limit_restore(const struct rlimit *before)
{
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, before), 0);
}
