/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TIDL_PENDING_H
#define TIDL_PENDING_H

#include <stddef.h>
#include <stdint.h>

#include <tidl/bundle.h>
#include <tidl/client.h>
#include <tidl/export.h>
#include <tidl/tensor.h>
#include <tidl/watch.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A request whose answer is not waited for, for event loops. Opaque.
 *
 *	struct tidl_pending *pending;
 *	tidl_get_begin(client, "frames/next", &options, &pending);
 *	... when tidl_fd(client) is readable:
 *	tidl_dispatch(client);
 *	if (tidl_pending_is_done(pending))
 *		r = tidl_pending_tensor(pending, &tensor);
 *	tidl_pending_free(pending);
 *
 * Time-outs are the loop's: freeing what is not answered cancels it at the broker, and what the
 * broker grants all the same is given back when it arrives. Requests of one client may be begun,
 * looked at and freed by different threads; one request is used by one thread at a time.
 */
struct tidl_pending;

/*
 * tidl_get_begin - ask for a tensor without waiting for it.
 *
 * @options      as for tidl_get(), but `timeout_ms` says only whether the broker waits for the
 *               name: not with 0, else as long as the request lives
 * @ret_pending  free with tidl_pending_free()
 *
 * Returns 0 or TIDL_ERR_INVALID_ARGUMENT, _NAME_INVALID, _NOT_FOUND (no such user), _NO_MEMORY or a
 * connection error. Does not block, but for the user database (`owner:`) and, in a forked child's
 * first call, for connecting. Any thread.
 */
TIDL_API int tidl_get_begin(struct tidl_client *client, const char *name,
			    const struct tidl_get_options *options,
			    struct tidl_pending **ret_pending);

/* tidl_wait_begin - the same for tidl_wait(); `timeout_ms` is ignored. */
TIDL_API int tidl_wait_begin(struct tidl_client *client, const char *name,
			     const struct tidl_wait_options *options,
			     struct tidl_pending **ret_pending);

/*
 * tidl_pending_is_done - non-zero once there is an answer or the connection is over. Never blocks.
 * A bundle of more than 253 segments comes in several packets, and tidl_dispatch() maps
 * one and asks for the next: it is done with the last.
 */
TIDL_API int tidl_pending_is_done(struct tidl_pending *pending);

/*
 * tidl_pending_tensor - what became of a tidl_get_begin(). Once.
 *
 * Returns what tidl_get() would; TIDL_ERR_BUSY while there is no answer; TIDL_ERR_INVALID_ARGUMENT
 * for another kind of request, or when it was taken already. Maps, but never waits.
 */
TIDL_API int tidl_pending_tensor(struct tidl_pending *pending, struct tidl_tensor **ret_tensor);

/* tidl_pending_generation - the same for a tidl_wait_begin(). */
TIDL_API int tidl_pending_generation(struct tidl_pending *pending, uint64_t *ret_generation);

/*
 * tidl_pending_any - the same, for a name that may stand for a bundle (bundle.h): sets one of the
 * two, and the other to NULL.
 */
TIDL_API int tidl_pending_any(struct tidl_pending *pending, struct tidl_tensor **ret_tensor,
			      struct tidl_bundle **ret_bundle);

/*
 * tidl_pending_cancel - give it up at the broker, yet wait for what becomes of it: its answer is
 * TIDL_ERR_CANCELLED, unless another one was on its way. Never blocks.
 */
TIDL_API void tidl_pending_cancel(struct tidl_pending *pending);

/* tidl_pending_free - cancel it unless it is done, and free it. NULL is allowed. Never blocks. */
TIDL_API void tidl_pending_free(struct tidl_pending *pending);

/*
 * Programs with several event loops on one client, or with blocking calls beside one: any thread
 * may receive what another one waits for. A key (not 0) on requests and watches makes it known whom
 * to tell. After each tidl_dispatch() take all keys and tell their loops.
 */
TIDL_API void tidl_pending_set_key(struct tidl_pending *pending, uint64_t key);
TIDL_API void tidl_watch_set_key(struct tidl_watch *watch, uint64_t key);

/*
 * tidl_ready - the key of a request that is done, or of a watch that has events or has ended, and
 * that no call of tidl_ready() has named since. 0: no more. Any thread; never blocks.
 */
TIDL_API uint64_t tidl_ready(struct tidl_client *client);

/*
 * tidl_due - answers that may still come without a thread that waits for them: those of requests
 * that are not done, and of such as were given up. While it is 0 and there is no watch, an event
 * loop need not look at tidl_fd(). Any thread; never blocks.
 */
TIDL_API size_t tidl_due(struct tidl_client *client);

#ifdef __cplusplus
}
#endif

#endif
