/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_LOOP_H
#define TDD_LOOP_H

#include <stdint.h>

#include "proto/base/attr.h"
#include "proto/base/fault.h"

/*
 * The event loop: the only place that knows libuv. Watches, timers and signals are made here, and
 * given back here; memory of one is freed in a later turn, but its callback never runs again.
 */
struct tdd_loop;
struct tdd_watch;
struct tdd_edges;
struct tdd_timer;
struct tdd_signal;

enum {
	TDD_WATCH_READABLE = 1,
	TDD_WATCH_WRITABLE = 2,
	TDD_WATCH_HANGUP = 4, /* the peer has closed; reported as readable */
};

typedef void (*tdd_watch_fn)(void *context, int events);
typedef void (*tdd_loop_fn)(void *context);

int tdd_loop_new(struct tdd_loop **ret_loop, struct tdp_fault *fault) TDP_MUST_CHECK;

/* Everything made in it must have been given back; waits for nothing but their last callbacks. */
struct tdd_loop *tdd_loop_free(struct tdd_loop *loop);

/* Until tdd_loop_stop(). */
void tdd_loop_run(struct tdd_loop *loop);
void tdd_loop_stop(struct tdd_loop *loop);

/* Called once in each turn, after all callbacks and before the loop waits again. */
void tdd_loop_set_turn_end(struct tdd_loop *loop, tdd_loop_fn fn, void *context);

/* Watch a descriptor, level-triggered; it stays the caller's and must outlive the watch. A failing
 * descriptor is reported as readable. Nothing is watched until tdd_watch_set(). */
int tdd_watch_new(struct tdd_loop *loop, int fd, tdd_watch_fn fn, void *context,
		  struct tdd_watch **ret_watch, struct tdp_fault *fault) TDP_MUST_CHECK;
int tdd_watch_set(struct tdd_watch *watch, int events) TDP_MUST_CHECK;
struct tdd_watch *tdd_watch_free(struct tdd_watch *watch);

/*
 * Told whenever a peer has received a packet. A watch cannot: it is level-triggered, and a socket
 * with room stays writable. There is one set for any number of sockets, each with what it is told
 * with; the first time comes soon after it was added and means nothing.
 */
int tdd_edges_new(struct tdd_loop *loop, tdd_loop_fn fn, struct tdd_edges **ret_edges,
		  struct tdp_fault *fault) TDP_MUST_CHECK;
int tdd_edges_add(struct tdd_edges *edges, int socket_fd, void *context) TDP_MUST_CHECK;
void tdd_edges_remove(struct tdd_edges *edges, int socket_fd);
struct tdd_edges *tdd_edges_free(struct tdd_edges *edges);

/* A timer that fires once for each start. */
int tdd_timer_new(struct tdd_loop *loop, tdd_loop_fn fn, void *context,
		  struct tdd_timer **ret_timer, struct tdp_fault *fault) TDP_MUST_CHECK;
void tdd_timer_start(struct tdd_timer *timer, uint64_t delay_ms);
void tdd_timer_stop(struct tdd_timer *timer);
int tdd_timer_is_running(const struct tdd_timer *timer);
struct tdd_timer *tdd_timer_free(struct tdd_timer *timer);

int tdd_signal_new(struct tdd_loop *loop, int number, tdd_loop_fn fn, void *context,
		   struct tdd_signal **ret_signal, struct tdp_fault *fault) TDP_MUST_CHECK;
struct tdd_signal *tdd_signal_free(struct tdd_signal *signal);

#endif
