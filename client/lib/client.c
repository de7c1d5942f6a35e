/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client object: its connection, whatever state that is in, and what hangs on it. Owned by the
 * user and by every tensor. Does not send, wait or map; those who do work on it under its lock.
 */
#include "client/lib/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "client/lib/call.h"
#include "client/lib/deadline.h"
#include "client/lib/fork.h"
#include "client/lib/inplace/uses.h"
#include "client/lib/waiters.h"
#include "client/lib/watch.h"
#include "proto/base/fd.h"
#include "proto/wire/message.h"
#include "proto/wire/packet.h"

/* A child that reconnects has no options of its own any more; this is the default of the first. */
enum { RECONNECT_TIMEOUT_MS = 5000 };

const char *tdc_client_state_name(enum tdc_client_state state)
{
	switch (state) {
	case TDC_CLIENT_STATE_OPEN:
		return "open";
	case TDC_CLIENT_STATE_FORKED:
		return "forked";
	case TDC_CLIENT_STATE_BROKEN:
		return "broken";
	case TDC_CLIENT_STATE_CLOSED:
		return "closed";
	}
	return "unknown";
}

/* The only writer of `state`. CLOSED is final: a broker that goes away later changes nothing. */
static void client_set_state(struct tidl_client *client, enum tdc_client_state state)
{
	if (client->state != TDC_CLIENT_STATE_CLOSED)
		client->state = state;
}

/* Take over a fresh link. Client locked or not shared yet. */
static void client_install(struct tidl_client *client, struct tdc_link *link)
{
	client->link = *link;
	link->fd = -1;
	client->broker.address = client->link.address;
	client->broker.version = client->link.version_text;
	memcpy(client->broker.id, client->link.broker_id, sizeof(client->broker.id));
	client->broker.epoch = client->link.epoch;
	client->broker.uid = client->link.uid;
	client->broker.protocol = client->link.protocol;
	client->broker.is_private = client->link.is_private;
	client_set_state(client, TDC_CLIENT_STATE_OPEN);
}

int tdc_client_new(struct tdc_link *link, const char *client_name, struct tidl_client **ret_client,
		   struct tdp_fault *fault)
{
	struct tidl_client *client = calloc(1, sizeof(*client));

	if (client == NULL)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	client->packet = malloc(TDP_PACKET_MAX_BYTES);
	if (client->packet == NULL) {
		free(client);
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	}
	atomic_init(&client->refs, 1);
	(void)pthread_mutex_init(&client->lock, NULL);
	(void)snprintf(client->client_name, sizeof(client->client_name), "%s",
		       client_name ? client_name : "");
	client->attention = TDC_ATTENTION_NONE;
	client->answer_timeout_ms = TDC_ANSWER_TIMEOUT_MS;
	client->era = 1;
	client->next_request_id = 1;
	client_install(client, link);
	tdc_fork_link(client);
	*ret_client = client;
	return 0;
}

struct tidl_client *tdc_client_ref(struct tidl_client *client)
{
	atomic_fetch_add_explicit(&client->refs, 1, memory_order_relaxed);
	return client;
}

struct tidl_client *tdc_client_unref(struct tidl_client *client)
{
	if (client == NULL ||
	    atomic_fetch_sub_explicit(&client->refs, 1, memory_order_acq_rel) != 1)
		return NULL;
	tdc_fork_unlink(client);
	tdc_link_close(&client->link);
	tdc_segtable_deinit(&client->segments);
	tdc_pool_forget(&client->pool);
	(void)pthread_mutex_destroy(&client->lock);
	free(client->packet);
	free(client);
	return NULL;
}

void tdc_client_lock(struct tidl_client *client)
{
	pthread_mutex_lock(&client->lock);
}

void tdc_client_unlock(struct tidl_client *client)
{
	pthread_mutex_unlock(&client->lock);
}

/* So that the broker does not take this for a death. Best effort; it would only wait a little. */
static void client_say_goodbye(struct tidl_client *client)
{
	const struct tdp_message message = {.kind = TDP_MESSAGE_GOODBYE};
	struct tdp_fault unused;
	size_t size_bytes;

	if (client->state == TDC_CLIENT_STATE_OPEN &&
	    tdp_message_pack(&message, client->packet, TDP_PACKET_MAX_BYTES, &size_bytes,
			     &unused) == 0 &&
	    tdp_packet_send(client->link.fd, client->packet, size_bytes, NULL, 0) < 0)
		return;
}

void tdc_client_end(struct tidl_client *client)
{
	struct tdp_fault closed;

	(void)tdp_fault_code(&closed, TIDL_ERR_CLOSED);
	tdc_client_lock(client);
	tdc_outbound_drop(client);
	client_say_goodbye(client);
	client_set_state(client, TDC_CLIENT_STATE_CLOSED);
	client->orphan_count = 0;
	/* The leader polls the socket, so that may not be closed under it. */
	if (client->link.fd >= 0)
		(void)shutdown(client->link.fd, SHUT_RDWR);
	tdc_waiters_end_all(client, &closed);
	tdc_watches_end_all(client);
	tdc_client_unlock(client);
}

void tdc_client_close(struct tidl_client *client)
{
	unsigned char *packet = NULL;
	int fd = -1;

	tdc_client_end(client);
	tdc_client_lock(client);
	/* A tensor's call may still poll the socket; it was woken, and the last reference closes.
	 */
	if (client->leader == NULL) {
		fd = tdp_fd_steal(&client->link.fd);
		packet = client->packet;
		client->packet = NULL;
	}
	tdc_attention_close(client);
	tdc_pool_forget(&client->pool);
	tdc_client_unlock(client);
	(void)tdp_fd_close(fd);
	free(packet);
}

int tdc_client_refuse(const struct tidl_client *client, struct tdp_fault *fault)
{
	switch (client->state) {
	case TDC_CLIENT_STATE_BROKEN:
		*fault = client->broken;
		return fault->code;
	case TDC_CLIENT_STATE_FORKED:
		return tdp_fault_set(fault, TIDL_ERR_BROKER_GONE,
				     "this process was forked and has no connection of its own "
				     "yet: make any other call first");
	case TDC_CLIENT_STATE_OPEN:
	case TDC_CLIENT_STATE_CLOSED:
		break;
	}
	return tdp_fault_code(fault, TIDL_ERR_CLOSED);
}

/* In a forked child: to where the parent was connected, with no lock held while that blocks. When
 * several threads come here at once each connects, and the first to return wins. */
static int client_reconnect(struct tidl_client *client, struct tdp_fault *fault)
{
	struct tdc_link_request request = {
		.client_name = client->client_name[0] != '\0' ? client->client_name : NULL,
		.patience = {.deadline = tdc_deadline_after(RECONNECT_TIMEOUT_MS),
			     .interrupt = client->interrupt},
	};
	struct tdc_link link = {.fd = -1};
	char address[TDP_PATH_MAX];
	int r;

	tdc_client_lock(client);
	memcpy(address, client->link.address, sizeof(address));
	tdc_client_unlock(client);
	request.address = address;
	r = tdc_link_open(&request, &link, fault);
	if (r < 0)
		return r;
	tdc_client_lock(client);
	if (client->state == TDC_CLIENT_STATE_FORKED)
		client_install(client, &link);
	tdc_client_unlock(client);
	tdc_link_close(&link);
	return 0;
}

int tdc_client_lock_open(struct tidl_client *client, struct tdp_fault *fault)
{
	for (;;) {
		int r;

		tdc_client_lock(client);
		if (client->state == TDC_CLIENT_STATE_OPEN)
			return 0;
		if (client->state != TDC_CLIENT_STATE_FORKED) {
			r = tdc_client_refuse(client, fault);
			tdc_client_unlock(client);
			return r;
		}
		tdc_client_unlock(client);
		r = client_reconnect(client, fault);
		if (r < 0)
			return r;
	}
}

void tdc_client_break(struct tidl_client *client, const struct tdp_fault *reason)
{
	client->broken = *reason;
	client_set_state(client, TDC_CLIENT_STATE_BROKEN);
	tdc_outbound_drop(client);
	client->orphan_count = 0;
	tdc_waiters_end_all(client, reason);
	tdc_watches_end_all(client);
}

void tdc_client_become_child(struct tidl_client *client)
{
	/* The parent's death must be seen by the broker, so its socket may not live on here. */
	client->link.fd = tdp_fd_close(client->link.fd);
	tdc_attention_close(client);
	client->era++;
	client->orphan_count = 0;
	client_set_state(client, TDC_CLIENT_STATE_FORKED);
	tdc_outbound_drop(client);
	tdc_waiters_forget_all(client);
	tdc_watches_forget_all(client);
	tdc_pool_forget(&client->pool);
	tdc_moved_become_child(client);
}
