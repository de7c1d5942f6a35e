/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_HANDLERS_HANDLERS_H
#define TDD_HANDLERS_HANDLERS_H

#include "daemon/session.h"
#include "daemon/work.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"
#include "proto/wire/message.h"

/*
 * One handler for each message that a client may send. The dispatcher has checked state, request id
 * and descriptors. A handler answers and returns 0, or returns the code that it recorded in the
 * fault: then nothing has changed, and the dispatcher sends the refusal. One that takes long leaves
 * off when the work of a turn is over (daemon/work.h), remembers in session::request how far it has
 * come, and returns TDD_WORK_LEFT: it is called again in a later turn.
 */
typedef int (*tdd_handler_fn)(struct tdd_session *session, const struct tdp_message *request,
			      struct tdp_fault *fault);

/* hello.c */
int tdd_handle_hello(struct tdd_session *session, const struct tdp_message *request,
		     struct tdp_fault *fault) TDP_MUST_CHECK;
int tdd_handle_goodbye(struct tdd_session *session, const struct tdp_message *request,
		       struct tdp_fault *fault) TDP_MUST_CHECK;
/* tensor.c */
int tdd_handle_allocate(struct tdd_session *session, const struct tdp_message *request,
			struct tdp_fault *fault) TDP_MUST_CHECK;
int tdd_handle_release(struct tdd_session *session, const struct tdp_message *request,
		       struct tdp_fault *fault) TDP_MUST_CHECK;
int tdd_handle_open(struct tdd_session *session, const struct tdp_message *request,
		    struct tdp_fault *fault) TDP_MUST_CHECK;
int tdd_handle_remove(struct tdd_session *session, const struct tdp_message *request,
		      struct tdp_fault *fault) TDP_MUST_CHECK;
/* publish.c */
int tdd_handle_publish(struct tdd_session *session, const struct tdp_message *request,
		       struct tdp_fault *fault) TDP_MUST_CHECK;
/* get.c */
int tdd_handle_get(struct tdd_session *session, const struct tdp_message *request,
		   struct tdp_fault *fault) TDP_MUST_CHECK;
int tdd_handle_cancel(struct tdd_session *session, const struct tdp_message *request,
		      struct tdp_fault *fault) TDP_MUST_CHECK;
/* grant.c */
int tdd_handle_get_more(struct tdd_session *session, const struct tdp_message *request,
			struct tdp_fault *fault) TDP_MUST_CHECK;
/* steps.c */
int tdd_handle_watch_writer(struct tdd_session *session, const struct tdp_message *request,
			    struct tdp_fault *fault) TDP_MUST_CHECK;
/* wait.c */
int tdd_handle_wait(struct tdd_session *session, const struct tdp_message *request,
		    struct tdp_fault *fault) TDP_MUST_CHECK;
/* pin.c */
int tdd_handle_pin(struct tdd_session *session, const struct tdp_message *request,
		   struct tdp_fault *fault) TDP_MUST_CHECK;
/* watch.c */
int tdd_handle_watch(struct tdd_session *session, const struct tdp_message *request,
		     struct tdp_fault *fault) TDP_MUST_CHECK;
int tdd_handle_unwatch(struct tdd_session *session, const struct tdp_message *request,
		       struct tdp_fault *fault) TDP_MUST_CHECK;
/* admin.c */
int tdd_handle_list(struct tdd_session *session, const struct tdp_message *request,
		    struct tdp_fault *fault) TDP_MUST_CHECK;
int tdd_handle_inspect(struct tdd_session *session, const struct tdp_message *request,
		       struct tdp_fault *fault) TDP_MUST_CHECK;
int tdd_handle_shutdown(struct tdd_session *session, const struct tdp_message *request,
			struct tdp_fault *fault) TDP_MUST_CHECK;

/* What every lookup by name begins with (lookup.c): the owner that a request means, and its
 * publication if there is one and the session may see it. */
uint32_t tdd_lookup_owner(const struct tdd_session *session, bool has_owner, uint32_t owner_uid);
struct tdd_publication *tdd_lookup_visible(const struct tdd_session *session, uint32_t owner_uid,
					   const char *name);
/* Generation 0: the current one. Any other may be unlisted, held by others alone. */
struct tdd_publication *tdd_lookup_generation(const struct tdd_session *session, uint32_t owner_uid,
					      const char *name, uint64_t generation);
int tdd_lookup_not_found(const struct tdd_session *session, uint32_t owner_uid, const char *name,
			 struct tdp_fault *fault);

#endif
