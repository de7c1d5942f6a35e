/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_LOG_H
#define TDD_LOG_H

#include <stdint.h>

#include "daemon/limits.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

/*
 * The log. A healthy broker says that it starts and that it stops, nothing else; a client that
 * breaks the protocol gets one record, and a uid only so many in a minute. Records that would block
 * (a full pipe at stderr) are dropped. The sink is the one global variable of the broker.
 */
enum tdd_log_level { TDD_LOG_ERROR, TDD_LOG_WARNING, TDD_LOG_INFO, TDD_LOG_DEBUG };

/* -1: no such level. */
int tdd_log_level_parse(const char *text);

void tdd_log_set_level(enum tdd_log_level level);

/* Append to a file from now on, instead of stderr. */
int tdd_log_open(const char *path, struct tdp_fault *fault) TDP_MUST_CHECK;
void tdd_log_close(void);

__attribute__((format(printf, 2, 3))) void tdd_log(enum tdd_log_level level, const char *format,
						   ...);

/* A client of this uid and pid misbehaved. */
__attribute__((format(printf, 3, 4))) void tdd_log_peer(uint32_t uid, int64_t pid,
							const char *format, ...);

/* Room for every byte escaped, quotes, an ellipsis and the final zero. */
enum { TDD_LOG_QUOTE_SIZE = 4 * TDD_LOG_QUOTE_BYTES + 6 };

/* Text from outside, in quotes, cut, and with everything unprintable escaped. Returns @buffer. */
const char *tdd_log_quote(const char *text, char buffer[TDD_LOG_QUOTE_SIZE]);

#endif
