/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Telling event loops. A loop watches one descriptor, an epoll set with the socket and an eventfd
 * in it: any thread may receive what a loop waits for, so the socket alone would not do.
 * Descriptors of such sets are readable, for poll() and other sets, as long as something in them
 * is. Owned by the client. Receives nothing itself.
 */
#include "client/lib/attention.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <utlist.h>

#include "client/lib/client.h"
#include "client/lib/stdio_guard.h"
#include "proto/base/fd.h"

static int attention_add(const struct tdc_attention *attention, int fd, int operation,
			 uint32_t events)
{
	struct epoll_event event = {.events = events, .data.fd = fd};

	return epoll_ctl(attention->epoll_fd, operation, fd, &event);
}

static uint32_t socket_events(const struct tdc_attention *attention)
{
	return attention->is_awaiting_room ? EPOLLIN | EPOLLOUT : EPOLLIN;
}

int tdc_attention_fd(struct tidl_client *client, struct tdp_fault *fault)
{
	struct tdc_attention *attention = &client->attention;
	struct tdc_attention fresh = *attention;

	if (attention->epoll_fd >= 0)
		return attention->epoll_fd;
	fresh.epoll_fd = tdc_above_stdio(epoll_create1(EPOLL_CLOEXEC));
	if (fresh.epoll_fd < 0)
		return tdp_fault_errno(fault, errno, "an event loop needs a descriptor to watch");
	fresh.event_fd = tdc_above_stdio(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (fresh.event_fd < 0 ||
	    attention_add(&fresh, fresh.event_fd, EPOLL_CTL_ADD, EPOLLIN) < 0 ||
	    attention_add(&fresh, client->link.fd, EPOLL_CTL_ADD, socket_events(&fresh)) < 0) {
		int r = tdp_fault_errno(fault, errno, "an event loop needs two descriptors");

		(void)tdp_fd_close(fresh.event_fd);
		(void)tdp_fd_close(fresh.epoll_fd);
		return r;
	}
	*attention = fresh;
	return fresh.epoll_fd;
}

void tdc_attention_wake(struct tidl_client *client)
{
	if (client->attention.event_fd >= 0)
		(void)eventfd_write(client->attention.event_fd, 1);
}

void tdc_attention_tell(struct tidl_client *client, struct tdc_ready *ready)
{
	if (ready->key != 0 && !ready->is_queued) {
		DL_APPEND(client->attention.queue, ready);
		ready->is_queued = true;
	}
	tdc_attention_wake(client);
}

void tdc_attention_forget(struct tidl_client *client, struct tdc_ready *ready)
{
	if (!ready->is_queued)
		return;
	DL_DELETE(client->attention.queue, ready);
	ready->is_queued = false;
}

uint64_t tdc_attention_take(struct tidl_client *client)
{
	struct tdc_ready *ready = client->attention.queue;

	if (ready == NULL)
		return 0;
	tdc_attention_forget(client, ready);
	return ready->key;
}

void tdc_attention_settle(struct tidl_client *client)
{
	eventfd_t unused;

	if (client->attention.event_fd >= 0)
		(void)eventfd_read(client->attention.event_fd, &unused);
}

void tdc_attention_await_room(struct tidl_client *client, bool is_awaiting)
{
	struct tdc_attention *attention = &client->attention;

	if (attention->is_awaiting_room == is_awaiting)
		return;
	attention->is_awaiting_room = is_awaiting;
	if (attention->epoll_fd >= 0)
		(void)attention_add(attention, client->link.fd, EPOLL_CTL_MOD,
				    socket_events(attention));
}

void tdc_attention_close(struct tidl_client *client)
{
	struct tdc_attention *attention = &client->attention;

	attention->event_fd = tdp_fd_close(attention->event_fd);
	attention->epoll_fd = tdp_fd_close(attention->epoll_fd);
	attention->is_awaiting_room = false;
}
