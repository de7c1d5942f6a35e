/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CLIENT_LIMITS_H
#define TT_CLIENT_LIMITS_H

#include <stddef.h>

/* No more than @room_bytes of addresses beyond what the process has now; SIZE_MAX: as many as there
 * are. */
void tt_limit_addresses(size_t room_bytes);

/* No new descriptor, until it is called with 0. */
void tt_limit_descriptors(int is_limited);

/* No more than @room_count maps beyond what the process has now; SIZE_MAX: as many as the system
 * allows again. */
void tt_limit_maps(size_t room_count);

/* From here on this process, for ever, gets EPERM from userfaultfd(). */
void tt_forbid_userfaultfd(void);

#endif
