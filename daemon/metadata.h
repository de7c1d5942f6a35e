/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_METADATA_H
#define TDD_METADATA_H

#include "proto/base/attr.h"
#include "proto/base/fault.h"

/* NULL, or a JSON object within the limits of size and depth; TIDL_ERR_METADATA otherwise. */
int tdd_metadata_check(const char *metadata, struct tdp_fault *fault) TDP_MUST_CHECK;

#endif
