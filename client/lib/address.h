/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_ADDRESS_H
#define TDC_ADDRESS_H

#include "client/lib/wait.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"
#include "proto/paths.h"
#include <stdbool.h>
#include <stddef.h>

enum { TDC_ADDRESS_MAX_COUNT = 3 };

/* Where to look for a broker, in this order. */
struct tdc_address_list {
	size_t count;
	bool is_given; /* by argument or environment: no other place, and no autostart */
	char paths[TDC_ADDRESS_MAX_COUNT][TDP_PATH_MAX];
};

/* @given, else $TIDL_SOCKET, else the user's runtime folder and the system's. */
int tdc_address_list_init(const char *given, struct tdc_address_list *ret_list,
			  struct tdp_fault *fault) TDP_MUST_CHECK;

/*
 * Connect to one place and check that the broker there is trusted: of our own uid, root's or user
 * `tidl`'s. TIDL_ERR_NO_BROKER when nobody listens there, which alone lets the search go on.
 */
int tdc_address_connect(const char *path, const struct tdc_patience *patience, int *ret_fd,
			struct tdp_fault *fault) TDP_MUST_CHECK;

/* The first place where somebody listens. TIDL_ERR_NO_BROKER when there is none. */
int tdc_address_search(const struct tdc_address_list *list, const struct tdc_patience *patience,
		       int *ret_fd, char ret_path[TDP_PATH_MAX],
		       struct tdp_fault *fault) TDP_MUST_CHECK;

#endif
