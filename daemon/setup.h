/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_SETUP_H
#define TDD_SETUP_H

#include "daemon/options.h"
#include "daemon/server.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

/*
 * From options to a server that listens: descriptors, log, socket, background, server, in this
 * order. Returns 0, TIDL_ERR_EXISTS when a broker listens there already, or another refusal.
 */
int tdd_setup(const struct tdd_options *options, struct tdd_server **ret_server,
	      struct tdp_fault *fault) TDP_MUST_CHECK;

#endif
