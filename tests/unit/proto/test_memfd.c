/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/fd.h"
#include "proto/base/kernel.h"
#include "proto/mem/memfd.h"
#include "tests/support/leak.h"

#ifndef F_SEAL_EXEC
#define F_SEAL_EXEC 0x0020
#endif

enum { NOBODY = 65534 };

TT_TEST(memfd, plan_is_data_in_pages_and_a_control_page)
{
	const uint64_t page = tdp_page_bytes();
	struct tdp_memfd_geometry geometry;
	struct tdp_fault fault;

	cr_assert_eq(tdp_memfd_plan(1, &geometry, &fault), 0);
	cr_assert_eq(geometry.data_offset_bytes, 0);
	cr_assert_eq(geometry.data_size_bytes, page);
	cr_assert_eq(geometry.control_offset_bytes, page);
	cr_assert_eq(geometry.size_bytes, 2 * page);
	cr_assert_eq(tdp_memfd_plan(3 * page, &geometry, &fault), 0);
	cr_assert_eq(geometry.size_bytes, 4 * page);
	cr_assert_eq(tdp_memfd_plan(3 * page + 1, &geometry, &fault), 0);
	cr_assert_eq(geometry.size_bytes, 5 * page);
}

TT_TEST(memfd, plan_refuses_what_no_file_can_hold)
{
	static const uint64_t sizes[] = {UINT64_MAX, UINT64_MAX - 4095, 1ull << 63,
					 INT64_MAX - 4096};
	struct tdp_memfd_geometry geometry = {.size_bytes = 7};
	struct tdp_fault fault;

	for (size_t i = 0; i < TDP_ARRAY_LENGTH(sizes); i++)
		cr_assert_eq(tdp_memfd_plan(sizes[i], &geometry, &fault), TIDL_ERR_LIMIT);
	cr_assert_eq(geometry.size_bytes, 7);
}

static void expect_properties(int write_fd, int read_fd, uint32_t expected_seals)
{
	struct stat write_status, read_status;
	struct tdp_fault fault;
	uint32_t seals;

	cr_assert_eq(fcntl(write_fd, F_GETFD), FD_CLOEXEC);
	cr_assert_eq(fcntl(read_fd, F_GETFD), FD_CLOEXEC);
	cr_assert_eq(fcntl(write_fd, F_GETFL) & O_ACCMODE, O_RDWR);
	cr_assert_eq(fcntl(read_fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	cr_assert_eq(fstat(write_fd, &write_status), 0);
	cr_assert_eq(fstat(read_fd, &read_status), 0);
	cr_assert_eq(write_status.st_ino, read_status.st_ino);
	cr_assert_eq(write_status.st_mode & 07777, 0400);
	cr_assert_eq(write_status.st_size, 8192);
	cr_assert_eq(write_status.st_blocks, 0, "no pages yet");
	cr_assert_eq(tdp_memfd_seals(read_fd, &seals, &fault), 0);
	cr_assert_eq(seals, expected_seals, "%x", seals);
}

TT_TEST(memfd, create_gives_two_descriptions_of_one_sealed_file)
{
	tdp_auto_fd write_fd = -1;
	tdp_auto_fd read_fd = -1;
	struct tdp_fault fault;

	cr_assert_eq(tdp_memfd_create("tidl:x", 8192, &write_fd, &read_fd, &fault), 0);
	expect_properties(write_fd, read_fd,
			  F_SEAL_SHRINK | F_SEAL_GROW |
				  (tdp_kernel_has(TDP_KERNEL_NOEXEC_SEAL) ? F_SEAL_EXEC : 0));
	cr_assert_eq(ftruncate(write_fd, 4096), -1);
	cr_assert_eq(ftruncate(write_fd, 16384), -1);
	cr_assert_eq(pwrite(read_fd, "x", 1, 0), -1);
	cr_assert_eq(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, read_fd, 0), MAP_FAILED);
	cr_assert_eq(pwrite(write_fd, "x", 1, 0), 1);
}

TT_TEST(memfd, create_works_without_the_newer_seal)
{
	tdp_auto_fd write_fd = -1;
	tdp_auto_fd read_fd = -1;
	struct tdp_fault fault;

	tdp_kernel_forget(TDP_KERNEL_NOEXEC_SEAL);
	cr_assert_eq(tdp_memfd_create("tidl:x", 8192, &write_fd, &read_fd, &fault), 0);
	expect_properties(write_fd, read_fd, F_SEAL_SHRINK | F_SEAL_GROW);
}

TT_TEST(memfd, create_takes_long_names)
{
	char name[400];
	tdp_auto_fd write_fd = -1;
	tdp_auto_fd read_fd = -1;
	struct tdp_fault fault;

	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	cr_assert_eq(tdp_memfd_create(name, 8192, &write_fd, &read_fd, &fault), 0);
}

TT_TEST(memfd, create_fails_by_code_at_the_limit_of_descriptors)
{
	int write_fd = -1, read_fd = -1;
	struct rlimit limit;
	struct tdp_fault fault;
	int before = tt_descriptor_count();

	/* Room for one more, and for none. */
	for (int room = 1; room >= 0; room--) {
		tt_descriptor_limit(room, &limit);
		cr_assert_eq(tdp_memfd_create("x", 8192, &write_fd, &read_fd, &fault),
			     TIDL_ERR_DESCRIPTORS);
		tt_descriptor_limit_restore(&limit);
		cr_assert_eq(write_fd, -1);
		cr_assert_eq(tt_descriptor_count(), before);
	}
}

TT_TEST(memfd, create_fails_by_code_for_sizes_that_the_kernel_refuses)
{
	int write_fd = -1, read_fd = -1;
	struct tdp_fault fault;

	cr_assert_eq(tdp_memfd_create("x", 1ull << 63, &write_fd, &read_fd, &fault),
		     TIDL_ERR_LIMIT);
	cr_assert_eq(write_fd, -1);
}

/* In another uid's process: 0 when no way leads to write access. */
static int intruder(int read_fd)
{
	char path[32];
	int fd;

	if (setgid(NOBODY) != 0 || setuid(NOBODY) != 0)
		return 1;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", read_fd);
	fd = open(path, O_RDWR);
	if (fd >= 0 || errno != EACCES)
		return 2;
	if (open(path, O_WRONLY) >= 0)
		return 3;
	/* Not even for reading: only a descriptor that was handed over counts. */
	if (open(path, O_RDONLY) >= 0)
		return 4;
	if (fchmod(read_fd, 0666) == 0)
		return 5;
	if (mmap(NULL, 4096, PROT_READ, MAP_SHARED, read_fd, 0) == MAP_FAILED)
		return 6;
	return 0;
}

TT_TEST(memfd, another_uid_cannot_make_it_writable)
{
	tdp_auto_fd write_fd = -1;
	tdp_auto_fd read_fd = -1;
	struct tdp_fault fault;
	int status;
	pid_t child;

	if (geteuid() != 0)
		cr_skip_test("only root can become another uid");
	cr_assert_eq(tdp_memfd_create("x", 8192, &write_fd, &read_fd, &fault), 0);
	child = fork();
	if (child == 0)
		_exit(intruder(read_fd));
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert(WIFEXITED(status));
	cr_assert_eq(WEXITSTATUS(status), 0, "step %d", WEXITSTATUS(status));
}

TT_TEST(memfd, verify_takes_sealed_memory_of_the_announced_size)
{
	tdp_auto_fd write_fd = -1;
	tdp_auto_fd read_fd = -1;
	struct tdp_fault fault;

	cr_assert_eq(tdp_memfd_create("x", 8192, &write_fd, &read_fd, &fault), 0);
	cr_assert_eq(tdp_memfd_verify(read_fd, 8192, &fault), 0);
	cr_assert_eq(tdp_memfd_verify(write_fd, 1, &fault), 0);
	cr_assert_eq(tdp_memfd_verify(read_fd, 8193, &fault), TIDL_ERR_SEGMENT_BAD);
	cr_assert_eq(tdp_memfd_verify(read_fd, UINT64_MAX, &fault), TIDL_ERR_SEGMENT_BAD);
}

TT_TEST(memfd, verify_refuses_everything_else)
{
	tdp_auto_fd unsealed = memfd_create("x", MFD_ALLOW_SEALING);
	tdp_auto_fd unsealable = memfd_create("x", 0);
	tdp_auto_fd growing = memfd_create("x", MFD_ALLOW_SEALING);
	tdp_auto_fd device = open("/dev/zero", O_RDWR);
	struct tdp_fault fault;
	int pipes[2];

	cr_assert_eq(pipe(pipes), 0);
	cr_assert_eq(ftruncate(unsealed, 8192), 0);
	cr_assert_eq(ftruncate(unsealable, 8192), 0);
	cr_assert_eq(ftruncate(growing, 8192), 0);
	cr_assert_eq(fcntl(growing, F_ADD_SEALS, F_SEAL_GROW), 0);
	cr_assert_eq(tdp_memfd_verify(unsealed, 4096, &fault), TIDL_ERR_SEGMENT_BAD);
	cr_assert_eq(tdp_memfd_verify(unsealable, 4096, &fault), TIDL_ERR_SEGMENT_BAD);
	cr_assert_eq(tdp_memfd_verify(growing, 4096, &fault), TIDL_ERR_SEGMENT_BAD);
	cr_assert_eq(tdp_memfd_verify(device, 0, &fault), TIDL_ERR_SEGMENT_BAD);
	cr_assert_eq(tdp_memfd_verify(pipes[0], 0, &fault), TIDL_ERR_SEGMENT_BAD);
	cr_assert_eq(tdp_memfd_verify(-1, 0, &fault), TIDL_ERR_SEGMENT_BAD);
	close(pipes[0]);
	close(pipes[1]);
}
