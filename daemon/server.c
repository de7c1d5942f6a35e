/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server: accepts connections, does at the end of each turn of the loop what was left for it,
 * and knows when to stop.
 *
 *	RUNNING --stop or signal--> STOPPING --start lock--> STOPPED
 *	RUNNING --nobody there, start lock--> STOPPED
 *
 * It decides nothing about tensors.
 */
#include "daemon/server.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "daemon/clock.h"
#include "daemon/closer.h"
#include "daemon/hangup.h"
#include "daemon/limits.h"
#include "daemon/log.h"
#include "daemon/map.h"
#include "daemon/session.h"
#include "daemon/waiter.h"
#include "daemon/work.h"
#include "proto/wire/message.h"
#include "proto/wire/packet.h"

static void server_set_state(struct tdd_server *server, enum tdd_server_state state)
{
	assert(state > server->state);
	server->state = state;
}

/* ---- leaving ---- */

static void server_leave(struct tdd_server *server)
{
	server_set_state(server, TDD_SERVER_STOPPED);
	tdd_loop_stop(server->loop);
}

/* False: somebody who starts holds the start lock, finds us alive, and soon lets go. */
static bool server_try_leave(struct tdd_server *server)
{
	if (server->listener.fd >= 0 && !tdd_listener_try_leave(&server->listener))
		return false;
	server_leave(server);
	return true;
}

void tdd_server_stop(struct tdd_server *server)
{
	if (server->state != TDD_SERVER_RUNNING)
		return;
	server_set_state(server, TDD_SERVER_STOPPING);
	/* In a turn of its own: this one may be in the middle of a session. */
	tdd_timer_start(server->exit_timer, 0);
}

static void server_signalled(void *context)
{
	struct tdd_server *server = context;

	tdd_log(TDD_LOG_INFO, "stopping on a signal");
	tdd_server_stop(server);
}

static uint64_t server_patience_ms(const struct tdd_server *server)
{
	uint64_t idle_ms = server->config.idle_exit_ms;
	uint64_t empty_ms = server->config.empty_exit_ms;
	uint64_t patience_ms = idle_ms;

	if (tdd_registry_is_empty(&server->registry) && empty_ms != 0 &&
	    (idle_ms == 0 || empty_ms < idle_ms))
		patience_ms = empty_ms;
	if (patience_ms != 0 && patience_ms < TDD_FIRST_CLIENT_MS && !server->has_had_client)
		patience_ms = TDD_FIRST_CLIENT_MS;
	return patience_ms;
}

/* With no client the time to the end runs, from the end of the last client on. What is published or
 * pinned can only become less meanwhile, by its own end, and then the time may be over at once. */
static void server_follow_idleness(struct tdd_server *server)
{
	uint64_t patience_ms = server_patience_ms(server);
	uint64_t now_ms = tdd_clock_ms();
	uint64_t exit_at_ms;

	if (server->state != TDD_SERVER_RUNNING)
		return;
	if (server->session_count > 0 || patience_ms == 0) {
		tdd_timer_stop(server->exit_timer);
		server->is_idle = false;
		return;
	}
	if (!server->is_idle)
		server->idle_since_ms = now_ms;
	else if (server->idle_patience_ms == patience_ms)
		return;
	server->is_idle = true;
	server->idle_patience_ms = patience_ms;
	exit_at_ms = tdd_deadline_after(server->idle_since_ms, patience_ms);
	tdd_timer_start(server->exit_timer, exit_at_ms > now_ms ? exit_at_ms - now_ms : 0);
}

/* ---- what ends by itself ---- */

static void server_deadline_passed(void *context)
{
	struct tdd_server *server = context;

	server->end_at_ms = UINT64_MAX;
	tdd_work_begin(TDD_LINE_STEPS);
	tdd_timeline_expire(&server->registry.timeline, tdd_clock_ms());
	tdd_work_begin(TDD_WORK_UNLIMITED);
	server_follow_idleness(server);
}

static void server_follow_timeline(struct tdd_server *server)
{
	uint64_t at_ms = tdd_timeline_next_ms(&server->registry.timeline);
	uint64_t now_ms;

	if (at_ms == server->end_at_ms)
		return;
	server->end_at_ms = at_ms;
	if (at_ms == UINT64_MAX) {
		tdd_timer_stop(server->end_timer);
		return;
	}
	now_ms = tdd_clock_ms();
	tdd_timer_start(server->end_timer, at_ms > now_ms ? at_ms - now_ms : 0);
}

/* ---- sessions ---- */

static void server_end_session(struct tdd_server *server, struct tdd_session *session)
{
	DL_DELETE(server->sessions, session);
	server->session_count--;
	tdd_turns_leave(&server->turns, session);
	tdd_session_free(session);
}

static void server_session_ended(struct tdd_session *session)
{
	struct tdd_server *server = session->server;

	server_end_session(server, session);
	server_follow_idleness(server);
}

static void server_send_news(struct tdd_server *server)
{
	struct tdd_holder *holder;

	while ((holder = tdd_events_take_news(&server->registry.events)))
		tdd_session_flush(tdd_session_of(holder));
}

/* The turn itself is all that is wanted. */
static void server_go_on(void *context)
{
	(void)context;
}

static void server_turn_end(void *context)
{
	struct tdd_server *server = context;
	bool has_more = tdd_waiters_turn(&server->registry);

	tdd_turns_serve(&server->turns, server_session_ended);
	/* The end of one tells others, of whom some may find that they cannot be told any more. */
	server_send_news(server);
	tdd_events_turn(&server->registry.events);
	tdd_flight_turn(&server->flight);
	has_more |= tdd_closer_turn();
	has_more |= !tdd_line_is_empty(&server->turns.line);
	/* A timer that is due makes the loop come back without waiting. */
	if (has_more)
		tdd_timer_start(server->turn_timer, 0);
	server_follow_timeline(server);
}

/* There is no session that could say it. */
static void turn_away(struct tdd_server *server, int socket_fd, const struct tdp_fault *reason)
{
	struct tdp_message message = {
		.kind = TDP_MESSAGE_FAILURE,
		.failure = {.code = reason->code, .message = reason->text},
	};
	struct tdp_fault fault;
	size_t size_bytes;

	/* Best effort: nobody is harmed if it does not get through. */
	if (tdp_message_pack(&message, server->packed, sizeof(server->packed), &size_bytes,
			     &fault) == 0)
		(void)(tdp_packet_send(socket_fd, server->packed, size_bytes, NULL, 0) == 0);
	tdd_hang_up(socket_fd);
}

int tdd_server_adopt(struct tdd_server *server, int socket_fd, struct tdp_fault *fault)
{
	struct tdd_session *session;
	int r = tdd_session_new(server, socket_fd, &session, fault);

	if (r < 0) {
		tdd_log(TDD_LOG_DEBUG, "a connection was turned away: %s", fault->text);
		turn_away(server, socket_fd, fault);
		return r;
	}
	DL_APPEND(server->sessions, session);
	server->session_count++;
	server->has_had_client = true;
	server_follow_idleness(server);
	return 0;
}

/* ---- queues ---- */

void tdd_server_retry_soon(struct tdd_server *server)
{
	if (tdd_timer_is_running(server->retry_timer))
		return;
	server->retry_ms = TDD_RETRY_MIN_MS;
	tdd_timer_start(server->retry_timer, server->retry_ms);
}

static void outbox_flush(struct tdd_outbox *outbox)
{
	tdd_session_flush(TDP_CONTAINER_OF(outbox, struct tdd_session, outbox));
}

/* That a peer has received something is told by an edge; this is for what waits for others, whose
 * descriptors are too many, or for memory. It runs only while something is blocked, and slower the
 * longer nothing moves. */
static void server_retry(void *context)
{
	struct tdd_server *server = context;
	uint64_t waited_ms = server->retry_ms;
	bool has_moved = tdd_flight_retry(&server->flight, outbox_flush);

	server->retry_ms = has_moved ? TDD_RETRY_MIN_MS : 2 * waited_ms;
	if (server->retry_ms > TDD_RETRY_MAX_MS)
		server->retry_ms = TDD_RETRY_MAX_MS;
	if (tdd_flight_is_blocked(&server->flight))
		tdd_timer_start(server->retry_timer, server->retry_ms);
}

static void server_drained(void *context)
{
	tdd_session_flush(context);
}

/* ---- accepting ---- */

static void server_pause_accepting(struct tdd_server *server, int error)
{
	if (error == -EAGAIN || error == -ECONNABORTED || error == -EINTR)
		return;
	/* Out of descriptors or memory: the connection stays in the queue, and a level-triggered
	 * watch would spin. */
	tdd_log(TDD_LOG_WARNING, "cannot accept connections now (errno %d)", -error);
	if (tdd_watch_set(server->listener_watch, 0) == 0)
		tdd_timer_start(server->accept_pause, TDD_ACCEPT_PAUSE_MS);
}

static void server_accept_again(void *context)
{
	struct tdd_server *server = context;

	if (server->listener_watch && tdd_watch_set(server->listener_watch, TDD_WATCH_READABLE) < 0)
		tdd_timer_start(server->accept_pause, TDD_ACCEPT_PAUSE_MS);
}

static void server_accept(void *context, int events)
{
	struct tdd_server *server = context;

	(void)events;
	for (int i = 0; i < TDD_ACCEPTS_PER_TURN; i++) {
		struct tdp_fault fault;
		int fd = tdd_listener_accept(&server->listener);

		if (fd < 0) {
			server_pause_accepting(server, fd);
			return;
		}
		(void)tdd_server_adopt(server, fd, &fault);
	}
}

/* ---- the end of idleness, and of everything ---- */

static void server_end_idleness(struct tdd_server *server)
{
	/* Whoever has just come is served rather than turned off. */
	if (server->listener_watch)
		server_accept(server, TDD_WATCH_READABLE);
	if (server->session_count > 0)
		return;
	if (server_try_leave(server)) {
		tdd_log(TDD_LOG_INFO, "stopping, since nobody is connected");
		return;
	}
	/* Once more, from now on. */
	server->is_idle = false;
	server_follow_idleness(server);
}

static void server_exit_timer_fired(void *context)
{
	struct tdd_server *server = context;

	if (server->state == TDD_SERVER_RUNNING) {
		server_end_idleness(server);
		return;
	}
	if (server_try_leave(server))
		return;
	if (++server->exit_tries >= TDD_EXIT_LOCK_TRIES)
		server_leave(server);
	else
		tdd_timer_start(server->exit_timer, TDD_EXIT_LOCK_RETRY_MS);
}

int tdd_server_listen(struct tdd_server *server, const struct tdd_listener *listener,
		      struct tdp_fault *fault)
{
	int r = tdd_watch_new(server->loop, listener->fd, server_accept, server,
			      &server->listener_watch, fault);

	if (r < 0)
		return r;
	if (tdd_watch_set(server->listener_watch, TDD_WATCH_READABLE) < 0) {
		server->listener_watch = tdd_watch_free(server->listener_watch);
		return tdp_fault_code(fault, TIDL_ERR_SYSTEM);
	}
	server->listener = *listener;
	server_follow_idleness(server);
	return 0;
}

int tdd_server_watch_signals(struct tdd_server *server, struct tdp_fault *fault)
{
	static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};

	for (size_t i = 0; i < TDP_ARRAY_LENGTH(numbers); i++) {
		int r = tdd_signal_new(server->loop, numbers[i], server_signalled, server,
				       &server->signals[i], fault);

		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- life ---- */

static int server_init_loop(struct tdd_server *server, struct tdp_fault *fault)
{
	int r = tdd_loop_new(&server->loop, fault);

	if (r < 0)
		return r;
	tdd_loop_set_turn_end(server->loop, server_turn_end, server);
	r = tdd_timer_new(server->loop, server_accept_again, server, &server->accept_pause, fault);
	if (r == 0)
		r = tdd_timer_new(server->loop, server_exit_timer_fired, server,
				  &server->exit_timer, fault);
	if (r == 0)
		r = tdd_timer_new(server->loop, server_retry, server, &server->retry_timer, fault);
	if (r == 0)
		r = tdd_edges_new(server->loop, server_drained, &server->edges, fault);
	if (r == 0)
		r = tdd_timer_new(server->loop, server_go_on, server, &server->turn_timer, fault);
	if (r == 0)
		r = tdd_timer_new(server->loop, server_deadline_passed, server, &server->end_timer,
				  fault);
	return r;
}

static void server_init_quota(struct tdd_server *server)
{
	const struct tdd_server_config *config = &server->config;
	uint64_t descriptors = config->descriptor_limit - TDD_DESCRIPTORS_RESERVED;
	struct tdd_quota *quota = &server->quota;

	tdd_quota_init(quota, config->quota_total_bytes, config->quota_uid_bytes, descriptors);
	quota->kept_descriptors[TDD_ACCOUNT_BROKER][TDD_CLAIM_MEMORY] =
		(uint64_t)TDD_SESSIONS_KEPT * TDD_DESCRIPTORS_PER_SESSION;
	quota->kept_descriptors[TDD_ACCOUNT_BROKER][TDD_CLAIM_SESSION] =
		(uint64_t)TDD_ADMIN_SESSIONS_KEPT * TDD_DESCRIPTORS_PER_SESSION;
	if (config->is_private)
		return;
	/* One uid cannot take all, unless there is only one. */
	quota->limits[TDD_ACCOUNT_UID][TDD_QUOTA_FLIGHT] =
		config->descriptor_limit / TDD_FLIGHT_SHARE / 2;
	quota->limits[TDD_ACCOUNT_UID][TDD_QUOTA_DESCRIPTORS] = descriptors / 2;
	quota->kept_descriptors[TDD_ACCOUNT_UID][TDD_CLAIM_MEMORY] =
		(uint64_t)TDD_SESSIONS_KEPT_PER_UID * TDD_DESCRIPTORS_PER_SESSION;
}

int tdd_server_new(const struct tdd_server_config *config, struct tdd_server **ret_server,
		   struct tdp_fault *fault)
{
	struct tdd_server *server = calloc(1, sizeof(*server));
	int r;

	if (!server)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	server->config = *config;
	server->uid = geteuid();
	server->epoch = 1;
	server->listener.fd = -1;
	server->end_at_ms = UINT64_MAX;
	tdd_turns_init(&server->turns, config->is_private);
	tdd_registry_init(&server->registry);
	server->registry.owner_grace_ms = config->owner_grace_ms;
	server_init_quota(server);
	tdd_flight_init(&server->flight, config->descriptor_limit / TDD_FLIGHT_SHARE);
	if (getrandom(server->id, sizeof(server->id), 0) != (ssize_t)sizeof(server->id) ||
	    tdd_map_seed() < 0)
		r = tdp_fault_set(fault, TIDL_ERR_SYSTEM, "the system gives no random numbers");
	else
		r = server_init_loop(server, fault);
	if (r < 0) {
		tdd_server_free(server);
		return r;
	}
	*ret_server = server;
	return 0;
}

void tdd_server_run(struct tdd_server *server)
{
	tdd_loop_run(server->loop);
}

struct tdd_server *tdd_server_free(struct tdd_server *server)
{
	if (!server)
		return NULL;
	while (server->sessions)
		server_end_session(server, server->sessions);
	tdd_turns_deinit(&server->turns);
	tdd_registry_deinit(&server->registry);
	tdd_quota_deinit(&server->quota);
	tdd_watch_free(server->listener_watch);
	tdd_listener_deinit(&server->listener);
	tdd_timer_free(server->accept_pause);
	tdd_timer_free(server->exit_timer);
	tdd_timer_free(server->retry_timer);
	tdd_edges_free(server->edges);
	tdd_timer_free(server->turn_timer);
	tdd_timer_free(server->end_timer);
	for (size_t i = 0; i < TDP_ARRAY_LENGTH(server->signals); i++)
		tdd_signal_free(server->signals[i]);
	tdd_loop_free(server->loop);
	free(server);
	return NULL;
}
