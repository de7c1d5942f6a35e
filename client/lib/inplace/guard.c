/* SPDX-License-Identifier: Apache-2.0 */
/*
 * userfaultfd in write-protect mode, user faults only, so that it works for ordinary users with
 * vm.unprivileged_userfaultfd=0. Nobody reads the descriptor: what waits is woken, not answered.
 */
#include "client/lib/inplace/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/userfaultfd.h>

#include "include/tidl/publish.h"
#include "proto/base/fd.h"
#include "proto/base/kernel.h"

/* Newer than the headers of the oldest system that this is built on. */
#ifndef UFFD_FEATURE_WP_UNPOPULATED
#define UFFD_FEATURE_WP_UNPOPULATED (1 << 13)
#endif

/* A descriptor that was refused its features is of no further use, so each try opens one. */
static int uffd_open(uint64_t features)
{
	struct uffdio_api api = {.api = UFFD_API, .features = features};
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	int error;

	if (fd < 0)
		return -errno;
	if (ioctl(fd, UFFDIO_API, &api) == 0)
		return fd;
	error = errno;
	(void)tdp_fd_close(fd);
	return -error;
}

static int guard_refuse(int error, struct tdp_fault *fault)
{
	(void)tdp_fault_errno(fault, error,
			      "the system does not let this process watch its memory "
			      "(userfaultfd), so writes of other threads could be lost: say that "
			      "nobody writes meanwhile, or allow a copy");
	fault->code = TIDL_ERR_COPY_NEEDED;
	fault->detail = TIDL_COPY_REASON_GUARD;
	return TIDL_ERR_COPY_NEEDED;
}

static int guard_open_fd(struct tdc_guard *guard, bool is_shared)
{
	uint64_t features = UFFD_FEATURE_PAGEFAULT_FLAG_WP;
	int fd = -EINVAL;

	if (!tdp_kernel_has(TDP_KERNEL_USERFAULTFD))
		return -ENOSYS;
	if (is_shared)
		return uffd_open(features | UFFD_FEATURE_WP_HUGETLBFS_SHMEM);
	if (tdp_kernel_has(TDP_KERNEL_WP_UNPOPULATED))
		fd = uffd_open(features | UFFD_FEATURE_WP_UNPOPULATED);
	if (fd == -EINVAL) {
		tdp_kernel_forget(TDP_KERNEL_WP_UNPOPULATED);
		guard->needs_population = true;
		fd = uffd_open(features);
	}
	return fd;
}

int tdc_guard_open(struct tdc_guard *guard, void *begin, size_t size_bytes, bool is_shared,
		   struct tdp_fault *fault)
{
	struct uffdio_register request = {
		.range = {.start = (uintptr_t)begin, .len = size_bytes},
		.mode = UFFDIO_REGISTER_MODE_WP,
	};
	int error;

	*guard = TDC_GUARD_NONE;
	guard->fd = guard_open_fd(guard, is_shared);
	if (guard->fd < 0) {
		error = -guard->fd;
		guard->fd = -1;
		return guard_refuse(error, fault);
	}
	if (ioctl(guard->fd, UFFDIO_REGISTER, &request) == 0)
		return 0;
	error = errno;
	tdc_guard_close(guard);
	return guard_refuse(error, fault);
}

void tdc_guard_close(struct tdc_guard *guard)
{
	guard->fd = tdp_fd_close(guard->fd);
}

int tdc_guard_stop(const struct tdc_guard *guard, void *begin, size_t size_bytes)
{
	struct uffdio_writeprotect request = {
		.range = {.start = (uintptr_t)begin, .len = size_bytes},
		.mode = UFFDIO_WRITEPROTECT_MODE_WP,
	};

	if (guard->fd < 0)
		return 0;
	if (guard->needs_population && madvise(begin, size_bytes, MADV_POPULATE_READ) < 0)
		return errno;
	return ioctl(guard->fd, UFFDIO_WRITEPROTECT, &request) == 0 ? 0 : errno;
}

void tdc_guard_release(const struct tdc_guard *guard, void *begin, size_t size_bytes, bool is_kept)
{
	struct uffdio_writeprotect request = {
		.range = {.start = (uintptr_t)begin, .len = size_bytes},
	};

	if (guard->fd < 0)
		return;
	/* This wakes, too. */
	if (is_kept && ioctl(guard->fd, UFFDIO_WRITEPROTECT, &request) == 0)
		return;
	(void)ioctl(guard->fd, UFFDIO_WAKE, &request.range);
}
