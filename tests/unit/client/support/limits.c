/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/client/support/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/filter.h>
#include <linux/seccomp.h>

#include <criterion/criterion.h>

static size_t addresses_used(void)
{
	FILE *status = fopen("/proc/self/status", "re");
	char line[256];
	size_t used_kib = 0;

	cr_assert_not_null(status);
	while (used_kib == 0 && fgets(line, sizeof(line), status) != NULL) {
		if (strncmp(line, "VmSize:", 7) == 0)
			used_kib = strtoul(line + 7, NULL, 10);
	}
	(void)fclose(status);
	return used_kib << 10;
}

static void limit_set(__rlimit_resource_t resource, rlim_t value)
{
	struct rlimit limit;

	cr_assert_eq(getrlimit(resource, &limit), 0);
	limit.rlim_cur = value < limit.rlim_max ? value : limit.rlim_max;
	cr_assert_eq(setrlimit(resource, &limit), 0);
}

void tt_limit_addresses(size_t room_bytes)
{
	limit_set(RLIMIT_AS,
		  room_bytes == SIZE_MAX ? RLIM_INFINITY : addresses_used() + room_bytes);
}

void tt_limit_descriptors(int is_limited)
{
	int lowest = fcntl(0, F_DUPFD_CLOEXEC, 0);

	if (is_limited && lowest >= 0)
		(void)close(lowest);
	limit_set(RLIMIT_NOFILE, is_limited ? (rlim_t)lowest : RLIM_INFINITY);
	if (!is_limited && lowest >= 0)
		(void)close(lowest);
}

/* Pages whose rights differ from their neighbours' are maps of their own. */
void tt_limit_maps(size_t room_count)
{
	static unsigned char *pages;
	const size_t page_bytes = 4096;
	const size_t count = 200000;
	size_t i = 1;

	if (room_count == SIZE_MAX) {
		cr_assert_eq(munmap(pages, count * page_bytes), 0);
		return;
	}
	pages = mmap(NULL, count * page_bytes, PROT_NONE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	cr_assert_neq(pages, MAP_FAILED);
	while (i < count && mprotect(pages + i * page_bytes, page_bytes, PROT_READ) == 0)
		i += 2;
	if (i >= count)
		cr_skip_test("more maps are allowed here than this makes");
	i -= room_count;
	cr_assert(room_count == 0 || munmap(pages + i * page_bytes, room_count * page_bytes) == 0);
}

void tt_forbid_userfaultfd(void)
{
	struct sock_filter steps[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof(steps) / sizeof(steps[0]), .filter = steps};

	cr_assert_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	cr_assert_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
	errno = 0;
	cr_assert(syscall(SYS_userfaultfd, O_CLOEXEC) < 0 && errno == EPERM);
}
