/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_CLOSER_H
#define TDD_CLOSER_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Closes the descriptors of segments that are gone. The last close of one frees its memory, which
 * takes microseconds for a small one and seconds for a large one; and thousands may go at once,
 * with a bundle or a connection. So a few are closed at once, more in the turns that follow, and
 * large ones where they hold up nobody. One for the whole process, since what it keeps belongs to
 * nobody.
 */

/* Take both over; -1: none. @size_bytes is that of the segment. */
void tdd_closer_take(int write_fd, int read_fd, uint64_t size_bytes);

/* Another segment is about to be opened: make sure that there never are more descriptors than are
 * charged for. */
void tdd_closer_make_room(void);

/* A turn of the loop has ended. True when there is more to do in the next one. */
bool tdd_closer_turn(void);

/* Close all that is left, now. */
void tdd_closer_finish(void);

#endif
