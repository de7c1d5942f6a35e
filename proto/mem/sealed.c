/* SPDX-License-Identifier: Apache-2.0 */
/* Sealed bytes in a memfd. Holds no state; the descriptors belong to the caller. */
#include "proto/mem/sealed.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/fd.h"
#include "proto/base/kernel.h"
#include "proto/mem/memfd.h"

enum {
	SEALED_ALL = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL,
	SEALED_MODE = 0400,
};

static int sealed_fill(int fd, const unsigned char *bytes, size_t size_bytes,
		       struct tdp_fault *fault)
{
	while (size_bytes > 0) {
		ssize_t written = write(fd, bytes, size_bytes);

		if (written < 0 && errno == EINTR)
			continue;
		if (written < 0)
			return tdp_fault_errno(fault, errno, "cannot write %zu bytes of a manifest",
					       size_bytes);
		bytes += written;
		size_bytes -= (size_t)written;
	}
	if (fchmod(fd, SEALED_MODE) < 0 || fcntl(fd, F_ADD_SEALS, SEALED_ALL) < 0)
		return tdp_fault_errno(fault, errno, "cannot seal a manifest");
	return 0;
}

int tdp_sealed_create(const char *name, const void *bytes, size_t size_bytes, int *ret_fd,
		      struct tdp_fault *fault)
{
	tdp_auto_fd fd = tdp_memfd_open(name);
	int result;

	if (fd < 0)
		return tdp_fault_errno(fault, errno, "cannot create a manifest");
	result = sealed_fill(fd, bytes, size_bytes, fault);
	if (result < 0)
		return result;
	*ret_fd = tdp_fd_steal(&fd);
	return 0;
}

int tdp_sealed_verify(int fd, size_t max_bytes, size_t *ret_size_bytes, struct tdp_fault *fault)
{
	struct stat status;
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0 || (seals & SEALED_ALL) != SEALED_ALL)
		return tdp_fault_set(fault, TIDL_ERR_SEGMENT_BAD,
				     "a manifest is not sealed memory: send a memfd with the seals "
				     "SHRINK, GROW, WRITE and SEAL");
	if (fstat(fd, &status) < 0)
		return tdp_fault_errno(fault, errno, "cannot read the size of a manifest");
	if (status.st_size <= 0 || (uint64_t)status.st_size > max_bytes)
		return tdp_fault_set(
			fault, TIDL_ERR_SEGMENT_BAD,
			"a manifest has %lld bytes and may have 1 to %zu: make smaller "
			"bundles",
			(long long)status.st_size, max_bytes);
	*ret_size_bytes = (size_t)status.st_size;
	return 0;
}

int tdp_sealed_read(int fd, void *buffer, size_t size_bytes, size_t offset_bytes,
		    struct tdp_fault *fault)
{
	unsigned char *at = buffer;

	while (size_bytes > 0) {
		ssize_t got = pread(fd, at, size_bytes, (off_t)offset_bytes);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return tdp_fault_errno(fault, errno, "cannot read a manifest");
		if (got == 0)
			return tdp_fault_set(fault, TIDL_ERR_SEGMENT_BAD,
					     "a manifest is shorter than it was: report this");
		at += got;
		offset_bytes += (size_t)got;
		size_bytes -= (size_t)got;
	}
	return 0;
}
