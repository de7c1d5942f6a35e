/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CLIENT_STEPPING_H
#define TT_CLIENT_STEPPING_H

#include <stdint.h>
#include <sys/types.h>

#include "tests/unit/client/support/broker.h"

/* A process that writes a tensor, as another one than the test's. */
struct tt_stepper {
	const struct tt_broker *broker;
	const char *name;	 /* publishes it, unless `attaches` */
	int attaches;		 /* for writing */
	uint64_t step_count;	 /* then it exits with 0, its tensor still in hand */
	uint64_t turn_of, turns; /* steps only while step % turns == turn_of; 0: all the time */
	int ends_within;	 /* waits for ever in the middle of the update after the last one */
};

/* Exits with a small number that says what failed. */
pid_t tt_stepper_start(const struct tt_stepper *stepper);

/* It has ended by itself, and well. */
void tt_stepper_join(pid_t pid);

void tt_stepper_kill(pid_t pid);

/* Attach what appears by that name. */
struct tidl_tensor *tt_get_waiting(struct tidl_client *client, const char *name,
				   enum tidl_attach attach);

/* Its complete steps; asserts success. */
uint64_t tt_step(struct tidl_tensor *tensor);

#endif
