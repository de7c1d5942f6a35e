/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Huge pages, where the machine's policy for shared memory has them: filling is three times and
 * attaching twelve times as fast then. Asks for them and tells what came of it; nothing depends on
 * it.
 */
#include "client/lib/huge.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "client/lib/client.h"

#define HUGE_FOLDER "/sys/kernel/mm/transparent_hugepage/"

/* Pages reserved in one system call, so that signals are heard in between. */
#define HUGE_STEP_BYTES (UINT64_C(32) << 20)

static pthread_once_t policy_once = PTHREAD_ONCE_INIT;
static uint64_t huge_page_bytes; /* 0: there are none */

static bool file_read(const char *path, char *text, size_t size)
{
	FILE *file = fopen(path, "re");
	bool is_read;

	if (file == NULL)
		return false;
	is_read = fgets(text, (int)size, file) != NULL;
	(void)fclose(file);
	return is_read;
}

/* The policy in force stands in brackets. */
static void policy_read(void)
{
	char text[128];

	if (!file_read(HUGE_FOLDER "shmem_enabled", text, sizeof(text)) ||
	    strstr(text, "[never]") != NULL || strstr(text, "[deny]") != NULL)
		return;
	if (file_read(HUGE_FOLDER "hpage_pmd_size", text, sizeof(text)))
		huge_page_bytes = strtoull(text, NULL, 10);
}

bool tdc_huge_is_allowed(uint64_t size_bytes)
{
	(void)pthread_once(&policy_once, policy_read);
	return huge_page_bytes != 0 && size_bytes >= huge_page_bytes;
}

static int reserve_fail(int error, uint64_t size_bytes, struct tdp_fault *fault)
{
	if (error == ENOMEM || error == EFAULT)
		return tdp_fault_set(fault, TIDL_ERR_NO_MEMORY,
				     "the system has no %llu bytes of shared memory left: free "
				     "some, or raise the memory limit of this process's cgroup",
				     (unsigned long long)size_bytes);
	return tdp_fault_errno(fault, error, "cannot reserve %llu bytes",
			       (unsigned long long)size_bytes);
}

int tdc_huge_reserve(struct tidl_client *client, void *base, uint64_t size_bytes,
		     struct tdp_fault *fault)
{
	uint64_t done = 0;

	(void)madvise(base, size_bytes, MADV_HUGEPAGE);
	while (done < size_bytes) {
		uint64_t left = size_bytes - done;
		uint64_t step = left < HUGE_STEP_BYTES ? left : HUGE_STEP_BYTES;

		if (madvise((char *)base + done, step, MADV_POPULATE_WRITE) == 0)
			done += step;
		else if (errno != EINTR && errno != EAGAIN)
			return reserve_fail(errno, size_bytes, fault);
		else if (tdc_interrupt_is_asked(&client->interrupt))
			return tdp_fault_code(fault, TIDL_ERR_INTERRUPTED);
	}
	return 0;
}

/* "7f00-7f10 rw-s ..." begins a map, "ShmemPmdMapped:  4096 kB" tells of it. */
static bool line_begins_at(const char *line, uintptr_t address)
{
	char *end;

	return strtoull(line, &end, 16) == address && *end == '-';
}

uint64_t tdc_huge_measure(const void *base)
{
	static const char key[] = "ShmemPmdMapped:";
	FILE *maps = fopen("/proc/self/smaps", "re");
	uint64_t huge_bytes = 0;
	bool is_here = false;
	size_t capacity = 0;
	char *line = NULL;

	if (maps == NULL)
		return 0;
	while (getline(&line, &capacity, maps) > 0) {
		if (!is_here) {
			is_here = line_begins_at(line, (uintptr_t)base);
		} else if (strncmp(line, key, sizeof(key) - 1) == 0) {
			huge_bytes = strtoull(line + sizeof(key) - 1, NULL, 10) * 1024;
			break;
		}
	}
	free(line);
	(void)fclose(maps);
	return huge_bytes;
}
