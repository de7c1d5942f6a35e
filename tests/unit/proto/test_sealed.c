/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that travel as a descriptor: what is taken for some, and what is not. */
#include "proto/mem/sealed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/base/fd.h"
#include "tests/support/leak.h"

enum { ALL = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL };

static int verify(int fd, size_t max_bytes)
{
	struct tdp_fault fault = {0};
	size_t size = 77;
	int result = tdp_sealed_verify(fd, max_bytes, &size, &fault);

	cr_assert_eq(fault.code, result);
	cr_assert_eq(size == 77, result < 0);
	return result;
}

TT_TEST(sealed, comes_back_as_it_went)
{
	enum { SIZE = 100001 };
	unsigned char *bytes = malloc(SIZE), *got = malloc(SIZE);
	struct tdp_fault fault = {0};
	tdp_auto_fd fd = -1;
	size_t size = 0;

	for (size_t i = 0; i < SIZE; i++)
		bytes[i] = (unsigned char)(i * 7);
	cr_assert_eq(tdp_sealed_create("tidl:manifest", bytes, SIZE, &fd, &fault), 0, "%s",
		     fault.text);
	cr_assert_eq(tdp_sealed_verify(fd, SIZE, &size, &fault), 0);
	cr_assert_eq(size, SIZE);
	cr_assert_eq(tdp_sealed_read(fd, got, SIZE, 0, &fault), 0);
	cr_assert_eq(memcmp(got, bytes, SIZE), 0);
	cr_assert_eq(tdp_sealed_read(fd, got, 5, 70000, &fault), 0);
	cr_assert_eq(memcmp(got, bytes + 70000, 5), 0);
	cr_assert_eq(tdp_sealed_read(fd, got, 5, SIZE - 4, &fault), TIDL_ERR_SEGMENT_BAD);
	cr_assert_eq(verify(fd, SIZE - 1), TIDL_ERR_SEGMENT_BAD);
	free(bytes);
	free(got);
}

TT_TEST(sealed, can_never_change)
{
	struct tdp_fault fault = {0};
	tdp_auto_fd fd = -1;

	cr_assert_eq(tdp_sealed_create("tidl:manifest", "abc", 3, &fd, &fault), 0);
	cr_expect_eq(pwrite(fd, "x", 1, 0), -1);
	cr_expect_eq(ftruncate(fd, 2), -1);
	cr_expect_eq(ftruncate(fd, 4), -1);
	cr_expect_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), -1);
	cr_expect_eq(mmap(NULL, 3, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
}

TT_TEST(sealed, takes_nothing_that_could_still_change)
{
	static const int seals[] = {0, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL,
				    F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL,
				    F_SEAL_SHRINK | F_SEAL_WRITE | F_SEAL_SEAL,
				    F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE};

	for (size_t i = 0; i < TDP_ARRAY_LENGTH(seals); i++) {
		int fd = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING);

		cr_assert_eq(write(fd, "abc", 3), 3);
		cr_assert_eq(fcntl(fd, F_ADD_SEALS, seals[i]), 0);
		cr_expect_eq(verify(fd, 100), TIDL_ERR_SEGMENT_BAD, "seals %x", seals[i]);
		cr_assert_eq(fcntl(fd, F_ADD_SEALS, ALL) == 0, !(seals[i] & F_SEAL_SEAL));
		close(fd);
	}
}

TT_TEST(sealed, takes_no_empty_one)
{
	int fd = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	cr_assert_eq(fcntl(fd, F_ADD_SEALS, ALL), 0);
	cr_expect_eq(verify(fd, 100), TIDL_ERR_SEGMENT_BAD);
	close(fd);
}

TT_TEST(sealed, takes_nothing_but_memory)
{
	int ends[2];
	int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	cr_expect_eq(verify(file, 1 << 30), TIDL_ERR_SEGMENT_BAD);
	cr_expect_eq(verify(ends[0], 100), TIDL_ERR_SEGMENT_BAD);
	cr_expect_eq(verify(-1, 100), TIDL_ERR_SEGMENT_BAD);
	close(ends[0]);
	close(ends[1]);
	close(file);
}
