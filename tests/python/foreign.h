/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PYTHON_FOREIGN_H
#define TT_PYTHON_FOREIGN_H

#include <stdint.h>

#define TT_FOREIGN __attribute__((visibility("default")))

/*
 * Calls a deleter @count times on a thread that never saw Python, and waits for it: a caller with
 * the GIL would hang, should the deleter want it. 0, or an error number.
 */
TT_FOREIGN int tt_delete_on_thread(void *managed, void (*deleter)(void *), int count);

/* Calls a deleter when the process ends, after Python did, and writes to @fd whether the data are
 * still mapped. */
TT_FOREIGN int tt_delete_at_exit(void *managed, void (*deleter)(void *), int count, int fd);

/* @count floats at @data as a structure that nobody can touch once its deleter was called. */
TT_FOREIGN void *tt_producer_new(int is_versioned, void *data, int64_t count);

/* Lets the producer's deleter wait for another one on another thread, under a framework's lock. */
TT_FOREIGN void tt_producer_chain(void *page, void *managed, void (*deleter)(void *), int count);
TT_FOREIGN void tt_producer_free(void *page);

/* Calls of all producers' deleters so far, and those of them without the GIL. */
TT_FOREIGN int tt_deleted_count(void);
TT_FOREIGN int tt_without_gil_count(void);

#endif
