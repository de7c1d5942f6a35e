/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDP_NAMES_H
#define TDP_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/attr.h"
#include "proto/base/fault.h"

/*
 * A name on the wire, without owner: 1 to 255 bytes of UTF-8, parts separated by `/`, no part
 * empty,
 * `.` or `..`, no control characters, no `:`. Returns 0 or TIDL_ERR_NAME_INVALID with the reason.
 */
int tdp_name_check(const char *name, struct tdp_fault *fault) TDP_MUST_CHECK;

/* The same for a pattern: parts may hold `*` (within a part) and be `**` (any number of parts). */
int tdp_pattern_check(const char *pattern, struct tdp_fault *fault) TDP_MUST_CHECK;

/* Does a checked name match a checked pattern? At most length(pattern) x length(name) steps. */
bool tdp_pattern_match(const char *pattern, const char *name);

/* The same, and adds to *@steps how many it were, so that somebody can pay for them. */
bool tdp_pattern_match_counted(const char *pattern, const char *name, uint64_t *steps);

/* Is this valid UTF-8 without control characters (for texts that are shown on terminals)? */
bool tdp_text_is_clean(const char *text, size_t size_bytes);

#endif
