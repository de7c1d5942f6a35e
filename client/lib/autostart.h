/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_AUTOSTART_H
#define TDC_AUTOSTART_H

#include "client/lib/wait.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"
#include "proto/paths.h"

/*
 * Start a private broker, or find that somebody else just did; when this returns 0 it listens on
 * @ret_path. @daemon_path: where tidld lies; NULL: search. Blocks as long as
 * @patience lasts. TIDL_ERR_AUTOSTART with tidld's own words, _TIMEOUT or _INTERRUPTED.
 */
int tdc_autostart(const char *daemon_path, const struct tdc_patience *patience,
		  char ret_path[TDP_PATH_MAX], struct tdp_fault *fault) TDP_MUST_CHECK;

/* Collect the children that calls that were given up have left, as far as they have ended. Never
 * waits. */
void tdc_autostart_collect(void);

#endif
