/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ended leases on their way to the broker, as RELEASE messages of many, and what is given up, as
 * CANCEL and UNWATCH. Runs inside deleters, hence
 * allocates nothing and never waits: what the socket does not take now goes with the next call. A
 * broken socket is not noticed here; whoever waits for an answer finds out.
 */
#include "client/lib/outbound.h"

#include <stdbool.h>
#include <stdlib.h>

#include "client/lib/client.h"
#include "proto/wire/message.h"
#include "proto/wire/packet.h"

/* Ids in one message: their 10 bytes each keep it far below the size of a packet. */
enum { RELEASE_BATCH = 64 };

struct release_batch {
	uint64_t lease_ids[RELEASE_BATCH];
	uint64_t segment_ids[RELEASE_BATCH];
	uint64_t inherited_ids[RELEASE_BATCH];
	size_t lease_count;
	size_t segment_count;
	size_t inherited_count;
};

static size_t batch_count(const struct release_batch *batch)
{
	return batch->lease_count + batch->segment_count + batch->inherited_count;
}

static bool is_held(const struct tdc_lease *lease)
{
	return lease->kind == TDC_LEASE_PUBLICATION || lease->kind == TDC_LEASE_ALLOCATION;
}

/* Fill a batch from the head of the queue without taking anything out. */
static void batch_collect(const struct tidl_client *client, struct release_batch *batch)
{
	batch->lease_count = 0;
	batch->segment_count = 0;
	batch->inherited_count = 0;
	for (const struct tdc_lease *lease = client->outbound.head; lease != NULL;
	     lease = lease->next) {
		if (batch_count(batch) == RELEASE_BATCH || !is_held(lease))
			break;
		if (lease->kind == TDC_LEASE_ALLOCATION)
			batch->segment_ids[batch->segment_count++] = lease->id;
		else if (lease->fork_count != client->fork_count)
			/* A child was forked since, which may have the map for longer. */
			batch->inherited_ids[batch->inherited_count++] = lease->id;
		else
			batch->lease_ids[batch->lease_count++] = lease->id;
	}
}

static int outbound_send(struct tidl_client *client, const struct tdp_message *message)
{
	struct tdp_fault fault;
	size_t size_bytes;
	int r = tdp_message_pack(message, client->packet, TDP_PACKET_MAX_BYTES, &size_bytes,
				 &fault);

	if (r < 0)
		return r;
	return tdp_packet_send(client->link.fd, client->packet, size_bytes, NULL, 0);
}

static int batch_send(struct tidl_client *client, const struct release_batch *batch)
{
	struct tdp_message message = {
		.kind = TDP_MESSAGE_RELEASE,
		.release = {.lease_count = batch->lease_count,
			    .lease_ids = batch->lease_ids,
			    .segment_count = batch->segment_count,
			    .segment_ids = batch->segment_ids,
			    .inherited_count = batch->inherited_count,
			    .inherited_lease_ids = batch->inherited_ids},
	};

	return outbound_send(client, &message);
}

/* Those that have a message each. */
static int single_send(struct tidl_client *client, const struct tdc_lease *lease)
{
	struct tdp_message message = {.kind = TDP_MESSAGE_CANCEL};

	if (lease->kind == TDC_LEASE_WATCH) {
		message.kind = TDP_MESSAGE_UNWATCH;
		message.unwatch.watch_id = lease->id;
	} else {
		message.cancel.request_id = lease->id;
	}
	return outbound_send(client, &message);
}

static void outbound_pop(struct tdc_outbound *outbound, size_t count)
{
	while (count-- > 0) {
		struct tdc_lease *lease = outbound->head;

		outbound->head = lease->next;
		free(lease);
	}
}

void tdc_outbound_push(struct tidl_client *client, struct tdc_lease *lease)
{
	/* A lease of an older connection ended with it, and in a forked child the id may be the
	 * parent's: it must never be released from here. */
	if (client->state != TDC_CLIENT_STATE_OPEN || lease->era != client->era) {
		free(lease);
		return;
	}
	lease->next = client->outbound.head;
	client->outbound.head = lease;
}

void tdc_outbound_flush(struct tidl_client *client)
{
	struct release_batch batch;

	while (client->state == TDC_CLIENT_STATE_OPEN && client->outbound.head != NULL) {
		batch_collect(client, &batch);
		if (batch_count(&batch) > 0) {
			if (batch_send(client, &batch) < 0)
				return;
			outbound_pop(&client->outbound, batch_count(&batch));
			continue;
		}
		if (single_send(client, client->outbound.head) < 0)
			return;
		outbound_pop(&client->outbound, 1);
	}
}

void tdc_outbound_drop(struct tidl_client *client)
{
	while (client->outbound.head != NULL)
		outbound_pop(&client->outbound, 1);
}
