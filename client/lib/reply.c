/* SPDX-License-Identifier: Apache-2.0 */
/* A received packet, between the socket and the call that asked for it. */
#include "client/lib/reply.h"

#include <stdlib.h>

#include "client/lib/client.h"
#include "client/lib/outbound.h"

int tdc_reply_new(struct tdc_reply **ret_reply, struct tdp_fault *fault)
{
	struct tdc_reply *reply = malloc(sizeof(*reply));

	if (reply == NULL)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	tdp_arena_init(&reply->arena, TDP_UNPACK_MAX_BYTES);
	tdp_fdset_init(&reply->fds);
	reply->message.kind = TDP_MESSAGE_NONE;
	reply->era = 0;
	reply->is_missing_fds = false;
	reply->next = NULL;
	*ret_reply = reply;
	return 0;
}

struct tdc_reply *tdc_reply_free(struct tdc_reply *reply)
{
	if (reply == NULL)
		return NULL;
	tdp_fdset_deinit(&reply->fds);
	tdp_arena_deinit(&reply->arena);
	free(reply);
	return NULL;
}

void tdc_reply_reset(struct tdc_reply *reply)
{
	tdp_fdset_deinit(&reply->fds);
	tdp_arena_deinit(&reply->arena);
	tdp_arena_init(&reply->arena, TDP_UNPACK_MAX_BYTES);
	reply->message.kind = TDP_MESSAGE_NONE;
	reply->is_missing_fds = false;
}

void tdc_reply_give_back(struct tidl_client *client, const struct tdc_reply *reply)
{
	struct tdc_lease *lease = NULL;
	struct tdp_fault unused;

	if (reply->message.kind == TDP_MESSAGE_GRANTED) {
		if (tdc_lease_new(TDC_LEASE_PUBLICATION, &lease, &unused) == 0)
			lease->id = reply->message.granted.lease_id;
	} else if (reply->message.kind == TDP_MESSAGE_ALLOCATED) {
		if (tdc_lease_new(TDC_LEASE_ALLOCATION, &lease, &unused) == 0)
			lease->id = reply->message.allocated.segment.id;
	} else if (reply->message.kind == TDP_MESSAGE_WATCHING) {
		if (tdc_lease_new(TDC_LEASE_WATCH, &lease, &unused) == 0)
			lease->id = reply->message.watching.watch_id;
	}
	/* Without memory even for that, the connection's end gives it back. */
	if (lease == NULL)
		return;
	lease->era = reply->era;
	tdc_outbound_push(client, lease);
	tdc_outbound_flush(client);
}
