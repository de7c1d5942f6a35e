/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDP_MEM_CONTROL_H
#define TDP_MEM_CONTROL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/attr.h"
#include "proto/base/fault.h"

/*
 * The control page of a segment, shared by everybody who has the segment. Whoever may write the
 * segment may write here too, so nothing in it is believed further than it has to be: whatever it
 * says, reading and waiting stay safe.
 *
 * The word counts half steps. Even: at rest, word / 2 steps are complete. Odd: an update is open.
 * Its low half is the futex that waiters sleep on. A page that nobody touched says step 0.
 */
struct tdp_control {
	_Atomic uint64_t word;
};

/* Map the control page alone. Writable pages are reserved first, so that a store never faults. */
int tdp_control_map(int fd, uint64_t offset_bytes, bool is_writable,
		    struct tdp_control **ret_control, struct tdp_fault *fault) TDP_MUST_CHECK;

/* NULL is allowed. Returns NULL. */
struct tdp_control *tdp_control_unmap(struct tdp_control *control);

static inline uint64_t tdp_control_load(const struct tdp_control *control)
{
	return atomic_load_explicit(&control->word, memory_order_acquire);
}

/* Complete steps of a word. */
static inline uint64_t tdp_word_steps(uint64_t word)
{
	return word >> 1;
}

static inline bool tdp_word_is_open(uint64_t word)
{
	return (word & 1) != 0;
}

/* Make an even word odd, before the first byte of the update is written. False when it is odd: then
 * nothing changes. @ret_word is what the word is now. */
bool tdp_control_begin(struct tdp_control *control, uint64_t *ret_word);

/* Close the update that left the word at @word (odd), after its last byte, and wake all waiters.
 * False when the word is another by now. */
bool tdp_control_end(struct tdp_control *control, uint64_t word);

/* A whole step at once, and wake all waiters. False when an update is open. */
bool tdp_control_commit(struct tdp_control *control, uint64_t *ret_word);

/*
 * Has the word kept its value since it was loaded, so that what was read meanwhile is of one piece?
 * Call it after the reads.
 */
bool tdp_control_is_unchanged(const struct tdp_control *control, uint64_t word);

/*
 * Sleep in the kernel until somebody wakes the page's waiters, the word's low half is another than
 * that of @word, or @timeout_ms has passed (always bounded). Works through a read-only map.
 * Returns 0 (look again), -ETIMEDOUT or -EINTR (a signal handler ran).
 */
int tdp_control_sleep(const struct tdp_control *control, uint64_t word,
		      int64_t timeout_ms) TDP_MUST_CHECK;

/* Wake all waiters of all processes. Works through a read-only map. */
void tdp_control_wake(const struct tdp_control *control);

/* The same without a map of one's own: for the broker, which keeps none. Best effort. */
void tdp_control_wake_by_fd(int fd, uint64_t offset_bytes);

/* The word as it is now, read without a map. 0 when there is none. */
uint64_t tdp_control_peek_by_fd(int fd, uint64_t offset_bytes);

#endif
