/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_OPTIONS_H
#define TDD_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "proto/base/attr.h"
#include "proto/base/fault.h"

/* A share of the machine's memory, or a number of bytes. */
struct tdd_share {
	uint64_t bytes;
	uint32_t percent; /* 0: `bytes` counts */
};

/* Everything that can be set from outside, by the one table in options.c. */
struct tdd_options {
	const char *socket; /* NULL: decide by mode */
	bool is_private;
	bool detach;
	const char *log_file; /* NULL: stderr */
	int log_level;
	uint64_t idle_exit_ms;	/* 0: never */
	uint64_t empty_exit_ms; /* 0: never */
	uint64_t pin_ms;
	uint64_t owner_grace_ms;
	struct tdd_share quota_total;
	struct tdd_share quota_uid;
	bool wants_version;
	bool wants_help;
};

/*
 * Defaults, then environment, then command line. Texts are borrowed from both. Returns 0 or
 * TIDL_ERR_INVALID_ARGUMENT.
 */
int tdd_options_parse(int argc, char **argv, struct tdd_options *ret_options,
		      struct tdp_fault *fault) TDP_MUST_CHECK;

/* --help, from the same table. */
void tdd_options_print_help(FILE *out);

/* In bytes, for a machine of @memory_bytes. */
uint64_t tdd_share_bytes(const struct tdd_share *share, uint64_t memory_bytes);

#endif
