/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libuv behind our own names. libuv cannot pass a memfd (its handle passing knows pipes, TCP and
 * UDP only), so it just polls here and never reads or writes a socket. Handles are counted, and a
 * loop that is freed with one still open is a programming error.
 */
#include "daemon/loop.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <uv.h>

#include "proto/base/fd.h"

/* The rest is told in the next turn. */
enum { EDGES_PER_TURN = 64 };

struct tdd_loop {
	uv_loop_t uv;
	uv_prepare_t turn_end;
	tdd_loop_fn turn_end_fn;
	void *turn_end_context;
	unsigned open_count; /* handles given out and not closed yet */
};

struct tdd_watch {
	uv_poll_t uv;
	tdd_watch_fn fn;
	void *context;
};

struct tdd_edges {
	struct tdd_watch *watch;
	int epoll_fd;
	tdd_loop_fn fn;
};

struct tdd_timer {
	uv_timer_t uv;
	tdd_loop_fn fn;
	void *context;
};

struct tdd_signal {
	uv_signal_t uv;
	tdd_loop_fn fn;
	void *context;
};

static int uv_fault(struct tdp_fault *fault, int status, const char *what)
{
	return tdp_fault_errno(fault, -status, "cannot set up %s", what);
}

/* Every handle is the first member of its struct, so the handle's address is the struct's. */
static void handle_closed(uv_handle_t *handle)
{
	struct tdd_loop *loop = handle->loop->data;

	loop->open_count--;
	free(handle);
}

static void handle_close(uv_handle_t *handle)
{
	uv_close(handle, handle_closed);
}

static void loop_turn_end(uv_prepare_t *prepare)
{
	struct tdd_loop *loop = prepare->loop->data;

	if (loop->turn_end_fn)
		loop->turn_end_fn(loop->turn_end_context);
}

int tdd_loop_new(struct tdd_loop **ret_loop, struct tdp_fault *fault)
{
	struct tdd_loop *loop = calloc(1, sizeof(*loop));
	int r;

	if (!loop)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	r = uv_loop_init(&loop->uv);
	if (r < 0) {
		free(loop);
		return uv_fault(fault, r, "the event loop");
	}
	loop->uv.data = loop;
	uv_prepare_init(&loop->uv, &loop->turn_end);
	uv_prepare_start(&loop->turn_end, loop_turn_end);
	*ret_loop = loop;
	return 0;
}

struct tdd_loop *tdd_loop_free(struct tdd_loop *loop)
{
	int r;

	if (!loop)
		return NULL;
	uv_close((uv_handle_t *)&loop->turn_end, NULL);
	uv_run(&loop->uv, UV_RUN_DEFAULT);
	assert(loop->open_count == 0);
	r = uv_loop_close(&loop->uv);
	assert(r == 0);
	(void)r;
	free(loop);
	return NULL;
}

void tdd_loop_run(struct tdd_loop *loop)
{
	uv_run(&loop->uv, UV_RUN_DEFAULT);
}

void tdd_loop_stop(struct tdd_loop *loop)
{
	uv_stop(&loop->uv);
}

void tdd_loop_set_turn_end(struct tdd_loop *loop, tdd_loop_fn fn, void *context)
{
	loop->turn_end_fn = fn;
	loop->turn_end_context = context;
}

static void watch_ready(uv_poll_t *poll, int status, int uv_events)
{
	struct tdd_watch *watch = TDP_CONTAINER_OF(poll, struct tdd_watch, uv);
	int events = 0;

	/* On POLLERR libuv stops the handle and says EBADF; the next receive tells the reason. */
	if (status < 0 || uv_events & (UV_READABLE | UV_DISCONNECT))
		events |= TDD_WATCH_READABLE;
	if (uv_events & UV_WRITABLE)
		events |= TDD_WATCH_WRITABLE;
	watch->fn(watch->context, events);
}

int tdd_watch_new(struct tdd_loop *loop, int fd, tdd_watch_fn fn, void *context,
		  struct tdd_watch **ret_watch, struct tdp_fault *fault)
{
	struct tdd_watch *watch = calloc(1, sizeof(*watch));
	int r;

	if (!watch)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	r = uv_poll_init(&loop->uv, &watch->uv, fd);
	if (r < 0) {
		free(watch);
		return uv_fault(fault, r, "a descriptor's watch");
	}
	watch->fn = fn;
	watch->context = context;
	loop->open_count++;
	*ret_watch = watch;
	return 0;
}

int tdd_watch_set(struct tdd_watch *watch, int events)
{
	int uv_events = 0;
	int r;

	if (events & TDD_WATCH_READABLE)
		uv_events |= UV_READABLE;
	if (events & TDD_WATCH_WRITABLE)
		uv_events |= UV_WRITABLE;
	if (events & TDD_WATCH_HANGUP)
		uv_events |= UV_DISCONNECT;
	r = uv_events ? uv_poll_start(&watch->uv, uv_events, watch_ready)
		      : uv_poll_stop(&watch->uv);
	return r < 0 ? TIDL_ERR_SYSTEM : 0;
}

struct tdd_watch *tdd_watch_free(struct tdd_watch *watch)
{
	if (watch)
		handle_close((uv_handle_t *)&watch->uv);
	return NULL;
}

static void edges_ready(void *context, int events)
{
	struct tdd_edges *edges = context;
	struct epoll_event ready[EDGES_PER_TURN];
	int count = epoll_wait(edges->epoll_fd, ready, EDGES_PER_TURN, 0);

	(void)events;
	for (int i = 0; i < count; i++)
		edges->fn(ready[i].data.ptr);
}

int tdd_edges_new(struct tdd_loop *loop, tdd_loop_fn fn, struct tdd_edges **ret_edges,
		  struct tdp_fault *fault)
{
	struct tdd_edges *edges = calloc(1, sizeof(*edges));
	int r;

	if (!edges)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	edges->fn = fn;
	edges->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (edges->epoll_fd < 0)
		r = tdp_fault_errno(fault, errno, "cannot make an epoll set");
	else
		r = tdd_watch_new(loop, edges->epoll_fd, edges_ready, edges, &edges->watch, fault);
	if (r == 0 && tdd_watch_set(edges->watch, TDD_WATCH_READABLE) < 0)
		r = tdp_fault_code(fault, TIDL_ERR_SYSTEM);
	if (r < 0) {
		tdd_edges_free(edges);
		return r;
	}
	*ret_edges = edges;
	return 0;
}

int tdd_edges_add(struct tdd_edges *edges, int socket_fd, void *context)
{
	struct epoll_event event = {.events = EPOLLOUT | EPOLLET, .data.ptr = context};

	return epoll_ctl(edges->epoll_fd, EPOLL_CTL_ADD, socket_fd, &event) < 0 ? TIDL_ERR_SYSTEM
										: 0;
}

void tdd_edges_remove(struct tdd_edges *edges, int socket_fd)
{
	(void)epoll_ctl(edges->epoll_fd, EPOLL_CTL_DEL, socket_fd, NULL);
}

struct tdd_edges *tdd_edges_free(struct tdd_edges *edges)
{
	if (!edges)
		return NULL;
	tdd_watch_free(edges->watch);
	tdp_fd_close(edges->epoll_fd);
	free(edges);
	return NULL;
}

static void timer_fired(uv_timer_t *uv)
{
	struct tdd_timer *timer = TDP_CONTAINER_OF(uv, struct tdd_timer, uv);

	timer->fn(timer->context);
}

int tdd_timer_new(struct tdd_loop *loop, tdd_loop_fn fn, void *context,
		  struct tdd_timer **ret_timer, struct tdp_fault *fault)
{
	struct tdd_timer *timer = calloc(1, sizeof(*timer));

	if (!timer)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	uv_timer_init(&loop->uv, &timer->uv);
	timer->fn = fn;
	timer->context = context;
	loop->open_count++;
	*ret_timer = timer;
	return 0;
}

void tdd_timer_start(struct tdd_timer *timer, uint64_t delay_ms)
{
	/* Fails for closing handles only, which nobody has a pointer to. */
	uv_timer_start(&timer->uv, timer_fired, delay_ms, 0);
}

void tdd_timer_stop(struct tdd_timer *timer)
{
	uv_timer_stop(&timer->uv);
}

int tdd_timer_is_running(const struct tdd_timer *timer)
{
	return uv_is_active((const uv_handle_t *)&timer->uv);
}

struct tdd_timer *tdd_timer_free(struct tdd_timer *timer)
{
	if (timer)
		handle_close((uv_handle_t *)&timer->uv);
	return NULL;
}

static void signal_arrived(uv_signal_t *uv, int number)
{
	struct tdd_signal *signal = TDP_CONTAINER_OF(uv, struct tdd_signal, uv);

	(void)number;
	signal->fn(signal->context);
}

int tdd_signal_new(struct tdd_loop *loop, int number, tdd_loop_fn fn, void *context,
		   struct tdd_signal **ret_signal, struct tdp_fault *fault)
{
	struct tdd_signal *signal = calloc(1, sizeof(*signal));
	int r;

	if (!signal)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	r = uv_signal_init(&loop->uv, &signal->uv);
	if (r < 0) {
		free(signal);
		return uv_fault(fault, r, "signals");
	}
	loop->open_count++;
	signal->fn = fn;
	signal->context = context;
	r = uv_signal_start(&signal->uv, signal_arrived, number);
	if (r < 0) {
		tdd_signal_free(signal);
		return uv_fault(fault, r, "a signal");
	}
	*ret_signal = signal;
	return 0;
}

struct tdd_signal *tdd_signal_free(struct tdd_signal *signal)
{
	if (signal)
		handle_close((uv_handle_t *)&signal->uv);
	return NULL;
}
