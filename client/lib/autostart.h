/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_AUTOSTART_H
#define TDC_AUTOSTART_H

#include <stdint.h>

#include "proto/base/attr.h"
#include "proto/base/fault.h"
#include "proto/paths.h"

/*
 * Start a private broker, or find that somebody else just did; when this returns 0 it listens on
 * @ret_path. @daemon_path: where tidld lies; NULL: search. Blocks up to @deadline.
 * TIDL_ERR_AUTOSTART with tidld's own words, or _TIMEOUT.
 */
int tdc_autostart(const char *daemon_path, int64_t deadline, char ret_path[TDP_PATH_MAX],
		  struct tdp_fault *fault) TDP_MUST_CHECK;

#endif
