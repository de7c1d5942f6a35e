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

static struct {
	int fd;		       /* -1: none */
	bool needs_population; /* pages that are not there cannot be stopped (before Linux 6.4) */
} watcher = {.fd = -1};

static int watcher_open(void)
{
	uint64_t features = UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM;
	int fd = -EINVAL;

	if (!tdp_kernel_has(TDP_KERNEL_USERFAULTFD))
		return -ENOSYS;
	if (tdp_kernel_has(TDP_KERNEL_WP_UNPOPULATED))
		fd = uffd_open(features | UFFD_FEATURE_WP_UNPOPULATED);
	watcher.needs_population = fd == -EINVAL;
	if (fd != -EINVAL)
		return fd;
	tdp_kernel_forget(TDP_KERNEL_WP_UNPOPULATED);
	return uffd_open(features);
}

int tdc_guard_prepare(void)
{
	int fd = watcher.fd;

	if (fd < 0)
		fd = watcher_open();
	if (fd < 0)
		return -fd;
	watcher.fd = fd;
	return 0;
}

void tdc_guard_drop(void)
{
	watcher.fd = tdp_fd_close(watcher.fd);
}

static int guard_refuse(int error, struct tdp_fault *fault)
{
	(void)tdp_fault_errno(fault, error,
			      "the system does not let this process watch its memory "
			      "(userfaultfd), so writes of other threads could be lost: say that "
			      "nobody writes meanwhile, or allow a copy");
	/* What passes is no refusal of the system's. */
	if (error == EMFILE || error == ENFILE || error == ENOMEM)
		return fault->code;
	fault->code = TIDL_ERR_COPY_NEEDED;
	fault->detail = TIDL_COPY_REASON_GUARD;
	return TIDL_ERR_COPY_NEEDED;
}

int tdc_guard_open(struct tdc_guard *guard, void *begin, size_t size_bytes, struct tdp_fault *fault)
{
	struct uffdio_register request = {
		.range = {.start = (uintptr_t)begin, .len = size_bytes},
		.mode = UFFDIO_REGISTER_MODE_WP,
	};
	int error = tdc_guard_prepare();

	*guard = TDC_GUARD_NONE;
	if (error == 0 && ioctl(watcher.fd, UFFDIO_REGISTER, &request) < 0)
		error = errno;
	if (error != 0)
		return guard_refuse(error, fault);
	*guard = (struct tdc_guard){.fd = watcher.fd, .begin = begin, .size_bytes = size_bytes};
	return 0;
}

/* Who came too late for a release waits in vain, unless it is woken when the range is no longer
 * watched. Closing the descriptor does both. */
void tdc_guard_close(struct tdc_guard *guard)
{
	struct uffdio_range range = {.start = (uintptr_t)guard->begin, .len = guard->size_bytes};

	if (guard->fd >= 0 && (ioctl(guard->fd, UFFDIO_UNREGISTER, &range) < 0 ||
			       ioctl(guard->fd, UFFDIO_WAKE, &range) < 0))
		tdc_guard_drop();
	*guard = TDC_GUARD_NONE;
}

int tdc_guard_stop(const struct tdc_guard *guard, void *begin, size_t size_bytes)
{
	struct uffdio_writeprotect request = {
		.range = {.start = (uintptr_t)begin, .len = size_bytes},
		.mode = UFFDIO_WRITEPROTECT_MODE_WP,
	};

	if (guard->fd < 0)
		return 0;
	if (watcher.needs_population && madvise(begin, size_bytes, MADV_POPULATE_READ) < 0)
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
