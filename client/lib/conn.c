/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From nothing to a greeted connection: search, start a broker if need be, connect, exchange
 * HELLO and WELCOME. Holds no lock and knows no client; the link it makes is the caller's.
 */
#include "client/lib/conn.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/address.h"
#include "client/lib/autostart.h"
#include "client/lib/deadline.h"
#include "client/lib/identity.h"
#include "client/lib/reply.h"
#include "proto/base/fd.h"
#include "proto/wire/packet.h"

/* Times that a broker is searched for while each one found ends as it is greeted. One that exits
 * for idleness cannot be told from a live one before, and whoever came first may have let the next
 * one go idle, too. */
enum { LINK_ATTEMPTS = 16 };

/* The only request before there are others. */
enum { HELLO_REQUEST_ID = 1 };

void tdc_link_close(struct tdc_link *link)
{
	link->fd = tdp_fd_close(link->fd);
}

static int greet_fail(const struct tdc_link *link, int error, struct tdp_fault *fault)
{
	if (error == -ECONNRESET || error == -EPIPE || error == -ENOTCONN)
		return tdp_fault_set(fault, TIDL_ERR_BROKER_GONE,
				     "the broker at %s went away while greeting: try again",
				     link->address);
	return tdp_fault_set(fault, TIDL_ERR_WRONG_SOCKET,
			     "what listens on %s does not speak tidl's protocol: check the "
			     "address",
			     link->address);
}

static int greet_send(const struct tdc_link *link, const char *client_name, unsigned char *packet,
		      struct tdp_fault *fault)
{
	struct tdp_message message = {
		.kind = TDP_MESSAGE_HELLO,
		.request_id = HELLO_REQUEST_ID,
	};
	struct tdc_identity identity;
	size_t size_bytes;
	int r;

	tdc_identity_fill(client_name, &identity, &message.hello);
	r = tdp_message_pack(&message, packet, TDP_PACKET_MAX_BYTES, &size_bytes, fault);
	if (r < 0)
		return r;
	r = tdp_packet_send(link->fd, packet, size_bytes, NULL, 0);
	/* The socket is new and empty: even EAGAIN is a failure. A broker that refuses may close
	 * before it reads this; its reason is received then. */
	return r == 0 || r == -EPIPE || r == -ECONNRESET ? 0 : greet_fail(link, r, fault);
}

static int greet_wait(const struct tdc_link *link, const struct tdc_patience *patience,
		      struct tdp_fault *fault)
{
	int r = tdc_wait_readable(link->fd, patience);

	if (r == TIDL_ERR_SYSTEM)
		return tdp_fault_errno(fault, errno, "poll() failed");
	if (r != TIDL_ERR_TIMEOUT)
		return r < 0 ? tdp_fault_code(fault, r) : 0;
	return tdp_fault_set(fault, TIDL_ERR_TIMEOUT,
			     "the broker at %s did not answer in time: check whether it is "
			     "stopped or overloaded",
			     link->address);
}

static int greet_accept(const struct tdp_message *message, struct tdc_link *link,
			struct tdp_fault *fault)
{
	const struct tdp_welcome *welcome = &message->welcome;

	if (message->kind == TDP_MESSAGE_FAILURE)
		return tdp_fault_set(fault, message->failure.code, "%s", message->failure.message);
	if (message->kind != TDP_MESSAGE_WELCOME || message->fd_count != 0)
		return greet_fail(link, -EPROTO, fault);
	if (welcome->version < TDP_PROTOCOL_MIN || welcome->version > TDP_PROTOCOL_MAX)
		return tdp_fault_set(fault, TIDL_ERR_VERSION,
				     "the broker at %s speaks protocol version %u, this client "
				     "%d to %d: update the older one",
				     link->address, welcome->version, TDP_PROTOCOL_MIN,
				     TDP_PROTOCOL_MAX);
	(void)snprintf(link->version_text, sizeof(link->version_text), "%s",
		       welcome->server_version);
	memcpy(link->broker_id, welcome->broker_id, sizeof(link->broker_id));
	link->epoch = welcome->epoch;
	link->uid = welcome->uid;
	link->protocol = welcome->version;
	link->is_private = welcome->is_private;
	return 0;
}

static int greet_receive(struct tdc_link *link, struct tdc_reply *reply, unsigned char *packet,
			 struct tdp_fault *fault)
{
	struct tdp_fault unused;
	size_t size_bytes;
	int r = tdp_packet_receive(link->fd, packet, &reply->fds, &size_bytes);

	/* The error of a peer that did not read everything comes before its last packet. */
	if (r == -ECONNRESET)
		r = tdp_packet_receive(link->fd, packet, &reply->fds, &size_bytes);
	if (r < 0)
		return greet_fail(link, r, fault);
	if (tdp_message_unpack(&reply->arena, packet, size_bytes, &reply->message, &unused) < 0 ||
	    reply->fds.count != 0)
		return greet_fail(link, -EPROTO, fault);
	return greet_accept(&reply->message, link, fault);
}

static int link_greet(struct tdc_link *link, const struct tdc_link_request *request,
		      struct tdp_fault *fault)
{
	/* Not on the stack: a framework's threads may have small ones. */
	unsigned char *packet = malloc(TDP_PACKET_MAX_BYTES);
	tdc_auto_reply *reply = NULL;
	int r = packet ? tdc_reply_new(&reply, fault) : tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);

	if (r == 0)
		r = greet_send(link, request->client_name, packet, fault);
	if (r == 0)
		r = greet_wait(link, &request->patience, fault);
	if (r == 0)
		r = greet_receive(link, reply, packet, fault);
	free(packet);
	return r;
}

/* Search, or start one where that is allowed. */
static int link_connect(const struct tdc_link_request *request, struct tdc_link *link,
			struct tdp_fault *fault)
{
	struct tdc_address_list list;
	int r = tdc_address_list_init(request->address, &list, fault);

	if (r == 0)
		r = tdc_address_search(&list, &request->patience, &link->fd, link->address, fault);
	if (r != TIDL_ERR_NO_BROKER || list.is_given || !request->may_autostart)
		return r;
	r = tdc_autostart(request->daemon_path, &request->patience, link->address, fault);
	if (r < 0)
		return r;
	r = tdc_address_connect(link->address, &request->patience, &link->fd, fault);
	if (r == TIDL_ERR_NO_BROKER)
		return tdp_fault_set(fault, TIDL_ERR_BROKER_GONE,
				     "the private broker at %s ended as soon as it had started: "
				     "try again",
				     link->address);
	return r;
}

static int link_open_once(const struct tdc_link_request *request, struct tdc_link *ret_link,
			  struct tdp_fault *fault)
{
	struct tdc_link link = {.fd = -1};
	int r = link_connect(request, &link, fault);

	if (r == 0)
		r = link_greet(&link, request, fault);
	if (r < 0) {
		tdc_link_close(&link);
		return r;
	}
	*ret_link = link;
	return 0;
}

int tdc_link_open(const struct tdc_link_request *request, struct tdc_link *ret_link,
		  struct tdp_fault *fault)
{
	int r = TIDL_ERR_BROKER_GONE;

	tdc_autostart_collect();
	for (int i = 0; i < LINK_ATTEMPTS && r == TIDL_ERR_BROKER_GONE; i++)
		r = link_open_once(request, ret_link, fault);
	return r;
}
