/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control page: steps, and waiting for them. Knows no tensor and no connection; the map belongs
 * to the caller.
 *
 * The order is that of a sequence lock: odd, then the data, then even, on the writer's side; even,
 * then the data, then the same again, on the reader's. The futex is not private: its key is the
 * file and the offset, so it works between processes and between maps of any protection.
 */
#include "proto/mem/control.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "proto/mem/memfd.h"

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "a lock could not be shared through the page");
_Static_assert(sizeof(struct tdp_control) == 8, "the word is all there is");

/* Between the stores of an update and the word, and between the loads of a reader and the word.
 * ThreadSanitizer does not know fences; it watches the word itself. */
static inline void control_fence(void)
{
#ifndef __SANITIZE_THREAD__
	atomic_thread_fence(memory_order_seq_cst);
#endif
}

static const uint32_t *control_futex(const struct tdp_control *control)
{
	const uint32_t *halves = (const uint32_t *)(const void *)control;

	return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? &halves[0] : &halves[1];
}

int tdp_control_map(int fd, uint64_t offset_bytes, bool is_writable,
		    struct tdp_control **ret_control, struct tdp_fault *fault)
{
	const int protection = is_writable ? PROT_READ | PROT_WRITE : PROT_READ;
	const size_t page_bytes = tdp_page_bytes();
	void *page;

	/* Interrupted: one page is there or not, nothing is undone. */
	while (is_writable &&
	       fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)offset_bytes, (off_t)page_bytes) < 0) {
		if (errno == EINTR)
			continue;
		if (errno == EPERM) /* sealed against new writers: so is the map below */
			break;
		return tdp_fault_errno(fault, errno, "cannot reserve the page of a tensor's steps");
	}
	page = mmap(NULL, page_bytes, protection, MAP_SHARED, fd, (off_t)offset_bytes);
	if (page == MAP_FAILED)
		return tdp_fault_errno(fault, errno, "cannot map the page of a tensor's steps");
	*ret_control = page;
	return 0;
}

struct tdp_control *tdp_control_unmap(struct tdp_control *control)
{
	if (control != NULL)
		(void)munmap(control, tdp_page_bytes());
	return NULL;
}

bool tdp_control_begin(struct tdp_control *control, uint64_t *ret_word)
{
	uint64_t word = atomic_load_explicit(&control->word, memory_order_relaxed);

	do {
		if (tdp_word_is_open(word)) {
			*ret_word = word;
			return false;
		}
	} while (!atomic_compare_exchange_weak_explicit(
		&control->word, &word, word + 1, memory_order_acq_rel, memory_order_relaxed));
	/* No store of the update may become visible before the word is odd. */
	control_fence();
	*ret_word = word + 1;
	return true;
}

bool tdp_control_end(struct tdp_control *control, uint64_t word)
{
	bool is_mine = atomic_compare_exchange_strong_explicit(
		&control->word, &word, word + 1, memory_order_acq_rel, memory_order_relaxed);

	if (is_mine)
		tdp_control_wake(control);
	return is_mine;
}

bool tdp_control_commit(struct tdp_control *control, uint64_t *ret_word)
{
	uint64_t word = atomic_load_explicit(&control->word, memory_order_relaxed);

	do {
		if (tdp_word_is_open(word)) {
			*ret_word = word;
			return false;
		}
	} while (!atomic_compare_exchange_weak_explicit(
		&control->word, &word, word + 2, memory_order_acq_rel, memory_order_relaxed));
	tdp_control_wake(control);
	*ret_word = word + 2;
	return true;
}

bool tdp_control_is_unchanged(const struct tdp_control *control, uint64_t word)
{
	/* No load of the reader may happen after this one. */
	control_fence();
	return atomic_load_explicit(&control->word, memory_order_acquire) == word;
}

int tdp_control_sleep(const struct tdp_control *control, uint64_t word, int64_t timeout_ms)
{
	const struct timespec timeout = {.tv_sec = timeout_ms / 1000,
					 .tv_nsec = timeout_ms % 1000 * 1000000};

	/* The kernel compares and falls asleep in one step: a word that changed meanwhile is
	 * EAGAIN. With a time-out a signal handler ends the call even under SA_RESTART. */
	if (syscall(SYS_futex, control_futex(control), FUTEX_WAIT, (uint32_t)word, &timeout, NULL,
		    0) == 0)
		return 0;
	return errno == EINTR || errno == ETIMEDOUT ? -errno : 0;
}

void tdp_control_wake(const struct tdp_control *control)
{
	(void)syscall(SYS_futex, control_futex(control), FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void tdp_control_wake_by_fd(int fd, uint64_t offset_bytes)
{
	struct tdp_control *control;
	struct tdp_fault unused;

	/* Nothing is read through it: the kernel looks up whose page it is, so that not even
	 * missing memory could hurt. */
	if (tdp_control_map(fd, offset_bytes, false, &control, &unused) < 0)
		return;
	tdp_control_wake(control);
	(void)tdp_control_unmap(control);
}

uint64_t tdp_control_peek_by_fd(int fd, uint64_t offset_bytes)
{
	uint64_t word;

	if (pread(fd, &word, sizeof(word), (off_t)offset_bytes) != (ssize_t)sizeof(word))
		return 0;
	return word;
}
