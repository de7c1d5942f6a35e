/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_REQUEST_H
#define TDD_REQUEST_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon/quota.h"
#include "proto/base/arena.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"
#include "proto/wire/message.h"

/*
 * A request from its packet on until it is answered or parked. Most are over at once; one that
 * takes longer goes on in later turns, and its session takes no other meanwhile.
 */
struct tdd_request {
	struct tdp_arena arena; /* of the message */
	struct tdp_message message;
	size_t position; /* how far the handler has come; 0: it begins */
	void *state;	 /* what else it has to remember, and what frees that */
	void (*free_state)(void *state);
	int fd; /* that came with it and was taken; -1: none */
	struct tdd_charge descriptor;
	uint64_t ends_awaited; /* it was refused, and is tried again after so many ends of others */
	struct tdd_charge bytes; /* while it waits */
};

/* NULL without memory. */
struct tdd_request *tdd_request_new(void) TDP_MUST_CHECK;

/* Forget all, for the next one. */
void tdd_request_clear(struct tdd_request *request);

/* Returns NULL; NULL is allowed. */
struct tdd_request *tdd_request_free(struct tdd_request *request);

/* Take over a descriptor that came with it, charged to @account. */
int tdd_request_take_fd(struct tdd_request *request, int fd, struct tdd_account *account,
			struct tdp_fault *fault) TDP_MUST_CHECK;

/* And hand it on: nothing is charged for it any more. */
int tdd_request_steal_fd(struct tdd_request *request);

/* It is about to wait: what it takes is charged to the session like an answer that is not read.
 * Returns 0 or TIDL_ERR_QUOTA. */
int tdd_request_charge(struct tdd_request *request, struct tdd_account *account) TDP_MUST_CHECK;

#endif
