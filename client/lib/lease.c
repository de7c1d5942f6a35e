/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases and allocation holds: what keeps a segment alive at the broker on this process's behalf.
 * Owned by the tensor they came with, then by the outbound queue. Knows no memory.
 */
#include "client/lib/lease.h"

#include <stdlib.h>

#include "client/lib/client.h"
#include "client/lib/outbound.h"

int tdc_lease_new(enum tdc_lease_kind kind, struct tdc_lease **ret_lease, struct tdp_fault *fault)
{
	struct tdc_lease *lease = calloc(1, sizeof(*lease));

	if (lease == NULL)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	lease->kind = kind;
	*ret_lease = lease;
	return 0;
}

struct tdc_lease *tdc_lease_forget(struct tdc_lease *lease)
{
	free(lease);
	return NULL;
}

void tdc_lease_end(struct tidl_client *client, struct tdc_lease *lease)
{
	if (lease == NULL)
		return;
	if (lease->id == 0) {
		free(lease);
		return;
	}
	tdc_client_lock(client);
	tdc_outbound_push(client, lease);
	tdc_outbound_flush(client);
	tdc_client_unlock(client);
}
