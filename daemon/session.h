/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_SESSION_H
#define TDD_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/holder.h"
#include "daemon/line.h"
#include "daemon/loop.h"
#include "daemon/outbox.h"
#include "daemon/quota.h"
#include "daemon/request.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"
#include "proto/wire/message.h"

struct tdd_server;

enum tdd_session_state {
	TDD_SESSION_CONNECTED, /* its first message must be HELLO */
	TDD_SESSION_READY,
	TDD_SESSION_CLOSING, /* ends in this turn of the loop or a later one; receives and sends
				nothing */
	TDD_SESSION_STATE_COUNT
};

/* One connected client. */
struct tdd_session {
	struct tdd_server *server;
	enum tdd_session_state state;
	int refusal; /* TIDL_ERR_*: what its first message is answered with; 0: served */
	int socket_fd;
	int pidfd; /* -1: not watched */
	int watched_events;
	bool is_deaf;  /* what arrives stays in the socket for now */
	bool has_edge; /* in server::edges */
	struct tdd_watch *socket_watch;
	struct tdd_watch *pidfd_watch;
	struct tdd_place place;	     /* turns::line: has more to do than one turn allows */
	struct tdd_request *request; /* under way; NULL: none */
	struct tdd_outbox outbox;
	struct tdd_holder holder;
	struct tdd_charge count;
	struct tdd_charge descriptors;
	struct tdd_session *prev, *next; /* server::sessions */
};

/* Takes the socket over, on success only. */
int tdd_session_new(struct tdd_server *server, int socket_fd, struct tdd_session **ret_session,
		    struct tdp_fault *fault) TDP_MUST_CHECK;

/* Give back a part of what the client had, as much as there is time for (daemon/work.h). True when
 * nothing is left: free it. */
bool tdd_session_end_some(struct tdd_session *session);

/* Drops all that the client had, flushes what its socket takes, and closes. Returns NULL. */
struct tdd_session *tdd_session_free(struct tdd_session *session);

const char *tdd_session_state_name(enum tdd_session_state state);

/* HELLO was accepted. */
void tdd_session_set_ready(struct tdd_session *session);

/* Answer a request. Descriptors stay the caller's. A client that cannot be answered is closed. */
void tdd_session_reply(struct tdd_session *session, const struct tdp_message *message,
		       const int *fds, uint32_t fd_count);
/* The same, but tells when the message is too large for a packet (TIDL_ERR_LIMIT). */
int tdd_session_try_reply(struct tdd_session *session, const struct tdp_message *message,
			  const int *fds, uint32_t fd_count) TDP_MUST_CHECK;
/* The same with the @fd_count descriptors of the first part of a lease. */
void tdd_session_reply_leased(struct tdd_session *session, const struct tdp_message *message,
			      uint64_t lease_id, uint32_t fd_count);
void tdd_session_reply_done(struct tdd_session *session, uint64_t request_id);
void tdd_session_reply_failure(struct tdd_session *session, uint64_t request_id,
			       const struct tdp_fault *fault);

/* The client broke the protocol or cannot be served: log, answer, close. @request_id may be 0. */
void tdd_session_end(struct tdd_session *session, uint64_t request_id,
		     const struct tdp_fault *fault);

/* Look for what arrives, or not for now. */
void tdd_session_listen(struct tdd_session *session, bool listens);

/* Close without a word. It is freed in a turn of its own. */
void tdd_session_close(struct tdd_session *session);

/* Try again to send what is queued, then events. */
void tdd_session_flush(struct tdd_session *session);

static inline struct tdd_session *tdd_session_of(struct tdd_holder *holder)
{
	return TDP_CONTAINER_OF(holder, struct tdd_session, holder);
}

#endif
