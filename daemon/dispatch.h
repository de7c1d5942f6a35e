/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_DISPATCH_H
#define TDD_DISPATCH_H

#include <stddef.h>

#include "daemon/session.h"

/*
 * One received packet: unpack, check against the table of messages, hand to its handler, answer a
 * refusal. Descriptors are in server::received_fds, one at most; the caller gets rid of those that
 * stay there. What is not finished stays in session::request.
 */
void tdd_dispatch_packet(struct tdd_session *session, const void *bytes, size_t size_bytes);

/* Call the handler of session::request again. */
void tdd_dispatch_go_on(struct tdd_session *session);

#endif
