/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_DETACH_H
#define TDD_DETACH_H

#include <stdbool.h>

#include "proto/base/attr.h"
#include "proto/base/fault.h"

/*
 * Going into the background, so that the starter learns by the end of its child whether there is a
 * broker, and holds nothing of it afterwards. Before the event loop exists, since that does not
 * survive a fork.
 */

/*
 * First of all: whoever starts tidld may have blocked what is sent to his process group, until
 * tidld had left it. What came is dropped, and from here on nothing is blocked.
 */
void tdd_detach_signals(void);

/*
 * Fork. Returns in the child only; the parent waits for tdd_detach_ready(), says "ready" at stdout
 * and exits with 0, or exits with 1 when the child ends without (and has said why at stderr).
 */
int tdd_detach_fork(int *ret_report_fd, struct tdp_fault *fault) TDP_MUST_CHECK;

/* In the child: let go of terminal, folder and stdio, and let the parent exit. */
int tdd_detach_ready(int report_fd, struct tdp_fault *fault) TDP_MUST_CHECK;

#endif
