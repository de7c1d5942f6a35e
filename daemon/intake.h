/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_INTAKE_H
#define TDD_INTAKE_H

struct tdd_session;

/* Something has arrived: take one packet, now or when it is this session's turn. */
void tdd_intake_ready(struct tdd_session *session);

/* Take the next packet, or go on with the last. */
void tdd_intake_go_on(struct tdd_session *session);

/* Descriptors came with a message that may not carry any: log, answer, close. */
void tdd_intake_refuse_descriptors(struct tdd_session *session);

#endif
