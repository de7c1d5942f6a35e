/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments of host memory: made by the broker, verified by the client. Holds no state; the
 * descriptors belong to the caller. Maps nothing.
 */
#include "proto/mem/memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/checked.h"
#include "proto/base/fd.h"
#include "proto/base/kernel.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* Linux 6.3; unknown to the oldest glibc we build with */
#endif

/* The kernel refuses longer ones with the same EINVAL as an unknown flag. */
enum { MEMFD_NAME_MAX_BYTES = 200 };

/* Nobody but the owner may open it again, and not for writing: a memfd is born open to all, and
 * /proc/PID/fd leads everybody there who gets to see the process. */
enum { MEMFD_MODE = 0400 };

uint64_t tdp_page_bytes(void)
{
	return (uint64_t)sysconf(_SC_PAGESIZE);
}

int tdp_memfd_plan(uint64_t data_bytes, struct tdp_memfd_geometry *ret_geometry,
		   struct tdp_fault *fault)
{
	uint64_t page_bytes = tdp_page_bytes();
	uint64_t data_size;
	uint64_t size;

	if (!tdp_round_up_u64(data_bytes, page_bytes, &data_size) ||
	    !tdp_add_u64(data_size, page_bytes, &size) || size > INT64_MAX)
		return tdp_fault_set(fault, TIDL_ERR_LIMIT,
				     "a segment of %llu bytes is larger than any file can be: use "
				     "a smaller tensor",
				     (unsigned long long)data_bytes);
	ret_geometry->size_bytes = size;
	ret_geometry->data_offset_bytes = 0;
	ret_geometry->data_size_bytes = data_size;
	ret_geometry->control_offset_bytes = data_size;
	return 0;
}

int tdp_memfd_open(const char *name)
{
	const unsigned int flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	int fd;

	if (tdp_kernel_has(TDP_KERNEL_NOEXEC_SEAL)) {
		fd = memfd_create(name, flags | MFD_NOEXEC_SEAL);
		if (fd >= 0 || errno != EINVAL)
			return fd;
		tdp_kernel_forget(TDP_KERNEL_NOEXEC_SEAL);
	}
	return memfd_create(name, flags);
}

static int memfd_prepare(int fd, uint64_t size_bytes, struct tdp_fault *fault)
{
	if (ftruncate(fd, (off_t)size_bytes) < 0) {
		if (errno == EFBIG || errno == EINVAL)
			return tdp_fault_set(fault, TIDL_ERR_LIMIT,
					     "a segment of %llu bytes is larger than the kernel or "
					     "`ulimit -f` allows: use a smaller tensor",
					     (unsigned long long)size_bytes);
		return tdp_fault_errno(fault, errno, "cannot size a segment of %llu bytes",
				       (unsigned long long)size_bytes);
	}
	if (fchmod(fd, MEMFD_MODE) < 0)
		return tdp_fault_errno(fault, errno, "cannot set the mode of a segment");
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0)
		return tdp_fault_errno(fault, errno, "cannot seal the size of a segment");
	return 0;
}

/* Opening through /proc is the only way to a second description with other rights. */
static int memfd_open_read_only(int fd, struct tdp_fault *fault)
{
	char path[32];
	int read_fd;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	read_fd = open(path, O_RDONLY | O_CLOEXEC);
	if (read_fd < 0)
		return tdp_fault_errno(fault, errno,
				       "cannot open a segment for reading (is /proc mounted?)");
	return read_fd;
}

int tdp_memfd_create(const char *name, uint64_t size_bytes, int *ret_write_fd, int *ret_read_fd,
		     struct tdp_fault *fault)
{
	char short_name[MEMFD_NAME_MAX_BYTES + 1];
	tdp_auto_fd write_fd = -1;
	int read_fd;
	int result;

	(void)snprintf(short_name, sizeof(short_name), "%s", name);
	write_fd = tdp_memfd_open(short_name);
	if (write_fd < 0)
		return tdp_fault_errno(fault, errno, "cannot create a segment");
	result = memfd_prepare(write_fd, size_bytes, fault);
	if (result < 0)
		return result;
	read_fd = memfd_open_read_only(write_fd, fault);
	if (read_fd < 0)
		return read_fd;
	*ret_write_fd = tdp_fd_steal(&write_fd);
	*ret_read_fd = read_fd;
	return 0;
}

int tdp_memfd_seals(int fd, uint32_t *ret_seals, struct tdp_fault *fault)
{
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0)
		return tdp_fault_set(fault, TIDL_ERR_SEGMENT_BAD,
				     "the received descriptor is not sealable memory: check that "
				     "both sides are tidl of the same version");
	*ret_seals = (uint32_t)seals;
	return 0;
}

int tdp_memfd_verify(int fd, uint64_t size_bytes, struct tdp_fault *fault)
{
	struct stat status;
	uint32_t seals = 0;
	int result = tdp_memfd_seals(fd, &seals, fault);

	if (result < 0)
		return result;
	if ((seals & F_SEAL_SHRINK) == 0)
		return tdp_fault_set(fault, TIDL_ERR_SEGMENT_BAD,
				     "the received memory could shrink while it is mapped: check "
				     "that both sides are tidl of the same version");
	if (fstat(fd, &status) < 0)
		return tdp_fault_errno(fault, errno, "cannot read the size of received memory");
	if (status.st_size < 0 || (uint64_t)status.st_size < size_bytes)
		return tdp_fault_set(fault, TIDL_ERR_SEGMENT_BAD,
				     "the received memory has %lld bytes instead of %llu: get it "
				     "again, and report this if it happens twice",
				     (long long)status.st_size, (unsigned long long)size_bytes);
	return 0;
}
