/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_PROCESS_H
#define TDD_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/attr.h"
#include "proto/wire/limits.h"
#include "proto/wire/message.h"

/*
 * A process that is or was connected, for people to read: publications remember theirs after it has
 * gone. Shared by a session, its publications and its segments; reference counted.
 */
struct tdd_process {
	uint32_t ref_count;
	uint32_t uid;
	uint32_t gid;
	int64_t pid; /* 0: outside the broker's pid namespace */
	bool is_connected;
	char *name; /* self-reported; "" until said, never NULL to readers */
	char *command;
	char *cgroup;
};

/* One reference; NULL without memory. */
struct tdd_process *tdd_process_new(uint32_t uid, uint32_t gid, int64_t pid) TDP_MUST_CHECK;
struct tdd_process *tdd_process_ref(struct tdd_process *process);
struct tdd_process *tdd_process_unref(struct tdd_process *process);

/* What it says of itself. Returns 0 or TIDL_ERR_NO_MEMORY. */
int tdd_process_describe(struct tdd_process *process, const char *name, const char *command,
			 const char *cgroup, struct tdp_fault *fault) TDP_MUST_CHECK;

/* For the wire; the texts stay the process's. */
struct tdp_process tdd_process_view(const struct tdd_process *process);

#endif
