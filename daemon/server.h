/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_SERVER_H
#define TDD_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/listener.h"
#include "daemon/loop.h"
#include "daemon/outbox.h"
#include "daemon/quota.h"
#include "daemon/registry.h"
#include "daemon/turns.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"
#include "proto/wire/fdset.h"
#include "proto/wire/limits.h"

struct tdd_session;

/* What a server is told once. */
struct tdd_server_config {
	bool is_private;
	uint64_t idle_exit_ms;	/* 0: never */
	uint64_t empty_exit_ms; /* 0: never */
	uint64_t pin_ms;
	uint64_t owner_grace_ms;
	uint64_t quota_total_bytes;
	uint64_t quota_uid_bytes;
	uint64_t descriptor_limit; /* RLIMIT_NOFILE */
	uint32_t admin_gid;	   /* group `tidl`; TDD_GID_NONE: no such group */
	uint32_t overflow_uid;
};

enum tdd_server_state {
	TDD_SERVER_RUNNING,
	TDD_SERVER_STOPPING, /* waits for the start lock, still serving */
	TDD_SERVER_STOPPED,
	TDD_SERVER_STATE_COUNT
};

/* Owns everything at run time: the loop, the listener, the sessions, all that is published. */
struct tdd_server {
	struct tdd_server_config config;
	enum tdd_server_state state;
	uint32_t uid; /* the broker's own */
	uint8_t id[TDP_BROKER_ID_BYTES];
	uint64_t epoch;

	struct tdd_loop *loop;
	struct tdd_listener listener; /* fd -1: none */
	struct tdd_watch *listener_watch;
	struct tdd_timer *accept_pause;
	struct tdd_timer *exit_timer;  /* idle, or the next try to take the start lock */
	struct tdd_timer *turn_timer;  /* due while something is left for the next turn */
	struct tdd_timer *retry_timer; /* runs only while an outbox waits for its drain */
	struct tdd_edges *edges;       /* sessions whose clients have yet to receive something */
	struct tdd_timer *end_timer;   /* to the next deadline of the registry */
	uint64_t end_at_ms;	       /* for which it runs; UINT64_MAX: it does not */
	struct tdd_signal *signals[3];
	unsigned exit_tries;
	uint64_t retry_ms;

	struct tdd_quota quota;
	struct tdd_registry registry;
	struct tdd_flight flight;
	struct tdd_session *sessions; /* list */
	uint32_t session_count;
	struct tdd_turns turns;
	bool has_had_client; /* ever */
	bool is_idle;	     /* the time to the end runs */
	uint64_t idle_since_ms;
	uint64_t idle_patience_ms;

	/* One packet is handled at a time. */
	unsigned char received[TDP_PACKET_MAX_BYTES];
	struct tdp_fdset received_fds; /* a handler takes out what it keeps */
	unsigned char packed[TDP_PACKET_MAX_BYTES];
};

int tdd_server_new(const struct tdd_server_config *config, struct tdd_server **ret_server,
		   struct tdp_fault *fault) TDP_MUST_CHECK;

/* Ends all sessions, after flushing what their sockets take, and frees all memory. */
struct tdd_server *tdd_server_free(struct tdd_server *server);

/* Accept connections from now on; takes the listener over, on success only. */
int tdd_server_listen(struct tdd_server *server, const struct tdd_listener *listener,
		      struct tdp_fault *fault) TDP_MUST_CHECK;

/* Stop on SIGTERM, SIGINT and SIGHUP. */
int tdd_server_watch_signals(struct tdd_server *server, struct tdp_fault *fault) TDP_MUST_CHECK;

/* Serve a connected socket, which is taken over; on failure it has been told why and is closed. */
int tdd_server_adopt(struct tdd_server *server, int socket_fd, struct tdp_fault *fault);

/* Until tdd_server_stop(). */
void tdd_server_run(struct tdd_server *server);

/* Graceful: leave the socket under the start lock, then let tdd_server_run() return. */
void tdd_server_stop(struct tdd_server *server);

/* An outbox waits for descriptors to arrive: look again soon. */
void tdd_server_retry_soon(struct tdd_server *server);

#endif
