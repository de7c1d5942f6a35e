/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_OWNER_H
#define TDC_OWNER_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/attr.h"
#include "proto/base/fault.h"

/* A name or pattern as the user wrote it, taken apart. The wire knows numeric uids only. */
struct tdc_name {
	bool has_owner; /* false: the caller's own namespace */
	bool any_owner; /* patterns only: everybody's */
	uint32_t owner_uid;
	const char *path; /* borrowed from the text */
};

/*
 * `path`, `alice:path` or `1000:path`. May ask the user database, hence block.
 * TIDL_ERR_NAME_INVALID, or TIDL_ERR_NOT_FOUND for a user that does not exist.
 */
int tdc_name_parse(const char *text, struct tdc_name *ret_name,
		   struct tdp_fault *fault) TDP_MUST_CHECK;

/* The same for patterns, and with owner `*` for everybody. */
int tdc_pattern_parse(const char *text, struct tdc_name *ret_name,
		      struct tdp_fault *fault) TDP_MUST_CHECK;

/* The uid of a user; false when there is no such user or no answer. */
bool tdc_user_find(const char *user, uint32_t *ret_uid);

#endif
