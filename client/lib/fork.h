/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_FORK_H
#define TDC_FORK_H

#include <stdbool.h>
#include <stdint.h>

struct tidl_client;

/* From here on a fork() waits for what is at the moves' lock, too (inplace/move.h). */
void tdc_fork_init(void);

/* Every client of this process, so that fork() finds them all. Linked from creation to the last
 * reference. */
void tdc_fork_link(struct tidl_client *client);
void tdc_fork_unlink(struct tidl_client *client);

/* Does any client but @mine have [@begin, @end) mapped? */
bool tdc_fork_find_elsewhere(const struct tidl_client *mine, uintptr_t begin, uintptr_t end);

#endif
