/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_OUTBOUND_H
#define TDC_OUTBOUND_H

#include "client/lib/lease.h"

struct tidl_client;

/* Ended leases that the broker has not been told of. Guarded by the client's lock. */
struct tdc_outbound {
	struct tdc_lease *head;
};

/* Queue an ended lease; it belongs to the queue now. Client locked. */
void tdc_outbound_push(struct tidl_client *client, struct tdc_lease *lease);

/* Send what is queued as far as the socket takes it. Never blocks. Client locked. */
void tdc_outbound_flush(struct tidl_client *client);

/* Forget what is queued: its connection is over. Client locked. */
void tdc_outbound_drop(struct tidl_client *client);

#endif
