/* SPDX-License-Identifier: Apache-2.0 */
/* Whose malloc this process has. Asked once, and again as long as there is no definite answer. */
#include "client/lib/inplace/allocator.h"

#include <dlfcn.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/fork.h"
#include "client/lib/inplace/move.h"

/* Never touched, and more than other threads allocate in a moment. */
#define PROBE_BYTES ((size_t)64 << 20)

enum { PROBE_COUNT = 4 };

typedef struct mallinfo2 (*statistics_fn)(void);

/* glibc's own statistics; NULL where another allocator gives them. */
static statistics_fn glibc_statistics(void)
{
	void *statistics = dlsym(RTLD_DEFAULT, "mallinfo2");
	void *libc = dlsym(RTLD_DEFAULT, "gnu_get_libc_version");
	Dl_info statistics_info;
	Dl_info libc_info;
	statistics_fn function = NULL;

	if (statistics == NULL || libc == NULL || dladdr(statistics, &statistics_info) == 0 ||
	    dladdr(libc, &libc_info) == 0 || statistics_info.dli_fbase != libc_info.dli_fbase)
		return NULL;
	memcpy(&function, &statistics, sizeof(function));
	return function;
}

static size_t statistics_used(statistics_fn statistics)
{
	struct mallinfo2 now = statistics();

	return now.uordblks + now.hblkhd;
}

/* Where malloc's symbol lies tells nothing: in programs at a fixed address it is a stub of theirs.
 * So see whether a block of malloc counts in glibc's statistics. */
static enum tidl_copy_reason malloc_probe(statistics_fn statistics)
{
	size_t before = statistics_used(statistics);
	void *probe = malloc(PROBE_BYTES);
	size_t after = statistics_used(statistics);

	free(probe);
	if (probe == NULL)
		return TIDL_COPY_REASON_UNSURE;
	return after > before && after - before > PROBE_BYTES / 2 ? TIDL_COPY_REASON_NONE
								  : TIDL_COPY_REASON_ALLOCATOR;
}

static enum tidl_copy_reason malloc_learn(void)
{
	statistics_fn statistics = glibc_statistics();
	enum tidl_copy_reason reason = TIDL_COPY_REASON_ALLOCATOR;

	/* Other threads allocate and free meanwhile. */
	for (int i = 0;
	     i < PROBE_COUNT && statistics != NULL && reason == TIDL_COPY_REASON_ALLOCATOR; i++)
		reason = malloc_probe(statistics);
	return reason;
}

enum tidl_copy_reason tdc_malloc_refusal(void)
{
	static enum tidl_copy_reason known = TIDL_COPY_REASON_UNSURE;
	enum tidl_copy_reason reason;

	/* One thread at a time: each would see the others' probes come and go. */
	tdc_fork_init();
	tdc_moves_lock();
	if (known == TIDL_COPY_REASON_UNSURE)
		known = malloc_learn();
	reason = known;
	tdc_moves_unlock();
	return reason;
}
