/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_LEASE_H
#define TDC_LEASE_H

#include <stdint.h>

#include "proto/base/attr.h"
#include "proto/base/fault.h"

struct tidl_client;

/* What the broker counts for this connection and has to be told when it ends. */
enum tdc_lease_kind {
	TDC_LEASE_PUBLICATION, /* a lease on a publication; id: lease id */
	TDC_LEASE_ALLOCATION,  /* a hold on an allocated segment; id: segment id */
	TDC_LEASE_WATCH,       /* events that the broker sends; id: watch id */
	TDC_LEASE_REQUEST,     /* a request that the broker holds back; id: request id */
};

struct tdc_lease {
	enum tdc_lease_kind kind;
	uint64_t id;	     /* 0: not granted yet */
	uint64_t era;	     /* connection that it belongs to: leases die with theirs */
	uint64_t fork_count; /* of the process when it was granted; of a publication */
	struct tdc_lease *next;
};

/*
 * Made before the request is sent, so that what was granted can always be given back. The reply
 * fills in `id` and `era`.
 */
int tdc_lease_new(enum tdc_lease_kind kind, struct tdc_lease **ret_lease,
		  struct tdp_fault *fault) TDP_MUST_CHECK;

/* Free without giving back: the broker has ended it. NULL is allowed. Returns NULL. */
struct tdc_lease *tdc_lease_forget(struct tdc_lease *lease);

/*
 * Give back and free: sends at once if that does not block, else queues. Allocates nothing, waits
 * for nothing but short critical sections. NULL is allowed. Any thread.
 */
void tdc_lease_end(struct tidl_client *client, struct tdc_lease *lease);

#endif
