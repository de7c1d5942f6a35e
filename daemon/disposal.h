/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_DISPOSAL_H
#define TDD_DISPOSAL_H

#include <stdint.h>

#include "proto/wire/fdset.h"

/*
 * Where descriptors go that a client should not have sent. Closing one can hang for ever (a FUSE
 * file whose server does not answer), so it is done by a thread for each lot, never by the loop.
 */

/* Whose they are when they are nobody's fault; no peer has this uid. */
#define TDD_DISPOSAL_NOBODY UINT32_MAX

/* Take all descriptors out of the set and close them elsewhere. */
void tdd_disposal_take(uint32_t uid, struct tdp_fdset *fds);

/* How many of this uid's are not closed yet. */
uint32_t tdd_disposal_pending(uint32_t uid);

#endif
