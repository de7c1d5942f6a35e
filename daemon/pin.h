/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_PIN_H
#define TDD_PIN_H

#include <stdint.h>

#include "daemon/deadline.h"
#include "daemon/process.h"
#include "daemon/quota.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

struct tdd_publication;

/*
 * That a publication is kept for a while, for a tensor that is on its way to somebody. It belongs
 * to no session: it outlives the one that asked for it and is paid for by its uid. One for each uid
 * and publication, however often it is asked for.
 */
struct tdd_pin {
	struct tdd_publication *publication;
	struct tdd_process *process; /* who asked for it last */
	uint64_t serial;	     /* broker-wide, in order of birth, as of holds */
	uint64_t since_ms;
	struct tdd_deadline deadline;
	struct tdd_charge charge;
	struct tdd_pin *prev, *next; /* publication::pins */
};

/* Pin a publication, until @until_ms at least. */
int tdd_pin_put(struct tdd_publication *publication, struct tdd_account *uid_account,
		struct tdd_process *process, uint64_t until_ms,
		struct tdp_fault *fault) TDP_MUST_CHECK;

/* End it; frees the publication when nobody else needs it. Returns NULL. */
struct tdd_pin *tdd_pin_free(struct tdd_pin *pin);

#endif
