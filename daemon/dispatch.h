/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_DISPATCH_H
#define TDD_DISPATCH_H

#include <stddef.h>

#include "daemon/session.h"

/*
 * One received packet: unpack, check against the table of messages, hand to its handler, answer a
 * refusal. No packet may carry descriptors yet, so the caller has dealt with those before.
 */
void tdd_dispatch_packet(struct tdd_session *session, const void *bytes, size_t size_bytes);

#endif
