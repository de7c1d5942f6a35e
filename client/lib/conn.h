/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_CONN_H
#define TDC_CONN_H

#include <stdbool.h>
#include <stdint.h>

#include "client/lib/wait.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"
#include "proto/paths.h"
#include "proto/wire/limits.h"

/* A connected and greeted socket, and what the broker said of itself. */
struct tdc_link {
	int fd;
	char address[TDP_PATH_MAX];
	char version_text[TDP_VERSION_TEXT_MAX_BYTES + 1];
	uint8_t broker_id[TDP_BROKER_ID_BYTES];
	uint64_t epoch;
	uint32_t uid; /* mine, as the broker's kernel sees it */
	uint32_t protocol;
	bool is_private;
};

/* How to find a broker. */
struct tdc_link_request {
	const char *address;	 /* NULL: search */
	const char *client_name; /* NULL: the program's */
	const char *daemon_path; /* NULL: search */
	bool may_autostart;
	struct tdc_patience patience;
};

/*
 * Find a broker or start one, connect, check who it is and greet it. Blocks as long as its
 * patience lasts.
 * A broker that was just exiting is searched for again.
 */
int tdc_link_open(const struct tdc_link_request *request, struct tdc_link *ret_link,
		  struct tdp_fault *fault) TDP_MUST_CHECK;

void tdc_link_close(struct tdc_link *link);

#endif
