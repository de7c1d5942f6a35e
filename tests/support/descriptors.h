/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SUPPORT_DESCRIPTORS_H
#define TT_SUPPORT_DESCRIPTORS_H

#include <sys/resource.h>

/* Open descriptors of this process. */
int tt_descriptor_count(void);

/* Lower the limit so that exactly @room more descriptors can be opened; then put it back. */
void tt_descriptor_limit(int room, struct rlimit *ret_before);
void tt_descriptor_limit_restore(const struct rlimit *before);

#endif
