/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_TURNS_H
#define TDD_TURNS_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/line.h"

struct tdd_request;
struct tdd_session;

/*
 * Who may work in which turn of the loop. Whoever asks for little is served as soon as it asks.
 * Whoever has used up what a turn grants to one connection, or to all of one uid, waits in line,
 * and so does the rest of a request that takes long, and of the end of a connection that had much;
 * of the line each turn serves no more than TDD_LINE_STEPS.
 */
struct tdd_turns {
	struct tdd_line line;
	uint64_t turn;
	uint64_t uid_steps;	   /* what a turn grants to one uid */
	struct tdd_ends ends;	   /* of all sessions */
	bool is_serving;	   /* those in line, now */
	struct tdd_request *spare; /* for the next packet; NULL: the last one is kept */
};

void tdd_turns_init(struct tdd_turns *turns, bool is_private);
/* Nobody is in line. */
void tdd_turns_deinit(struct tdd_turns *turns);

/* So much was done for this session. */
void tdd_turns_charge(struct tdd_turns *turns, struct tdd_session *session, uint64_t steps);

/* Must it stand in line for what it wants? */
bool tdd_turns_must_wait(const struct tdd_turns *turns, struct tdd_session *session);

/* Stand in line. */
void tdd_turns_wait(struct tdd_turns *turns, struct tdd_session *session);

/* It is closing: end it when it is its turn. */
void tdd_turns_end(struct tdd_turns *turns, struct tdd_session *session);

/* It has ended, and is about to be freed. */
void tdd_turns_leave(struct tdd_turns *turns, struct tdd_session *session);

/* Was this session refused for want of what others that are ending have not given back yet? Asked
 * again for the same request it is true until all have that were ending then. @is_broker: it is
 * what all uids have together. */
bool tdd_turns_expect_quota(const struct tdd_turns *turns, const struct tdd_session *session,
			    bool is_broker);

/* May a request begin that needs memory until it is done? Not before it is its turn, so that of all
 * in line few have begun. If not it returns TDD_WORK_LEFT. */
static inline bool tdd_turns_may_begin(const struct tdd_turns *turns)
{
	return turns->is_serving;
}

/* A turn has ended: serve those in line. @end is called for those that have ended. */
void tdd_turns_serve(struct tdd_turns *turns, void (*end)(struct tdd_session *session));

#endif
