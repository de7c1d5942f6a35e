/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TIDL_CLIENT_H
#define TIDL_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#include <tidl/export.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A connection to a broker. Opaque. All calls on one client may be made from any thread at the same
 * time, except tidl_disconnect(), after which the pointer must not be used again. A call that waits
 * does not hold up calls of other threads. The library starts no threads.
 *
 * Waiting: a broker answers within milliseconds. One that is stopped or overloaded is waited for up
 * to 30 seconds, by a tidl_get() with a time-out 2 seconds beyond that time-out; then the call
 * returns TIDL_ERR_TIMEOUT and tidl_last_error() says that the broker does not answer. A
 * publication or removal that was asked for may happen still. A tidl_get() without end waits
 * without end.
 *
 * After fork() the child may go on using the client: its first call opens a connection of its own.
 * Tensors inherited from the parent stay mapped in the child, but without a lease: the broker
 * counts the parent's only.
 */
struct tidl_client;

/* Zero-initialise, set `size`, then what differs from the defaults. */
struct tidl_connect_options {
	size_t size;		 /* sizeof(struct tidl_connect_options) */
	const char *address;	 /* path of the broker's socket; NULL: search for it, see below */
	const char *client_name; /* shown to administrators; NULL: the program's name */
	int64_t timeout_ms; /* for connecting, starting and greeting; 0: 5000; negative: for ever */
	int no_autostart;   /* non-zero: never start a private broker */
	const char *daemon_path; /* where a package keeps its own tidld; NULL: see below */
	/*
	 * Decides what a signal does to a waiting call, this one and all later ones of the client.
	 * When a signal handler ran during a blocking wait, this is called in that thread with no
	 * lock held; it may call the client itself. If it returns non-zero the call is given up
	 * and returns TIDL_ERR_INTERRUPTED (a tensor that arrives all the same is given back, but
	 * a publication or removal may have happened), else it goes on waiting. NULL: go on.
	 */
	int (*interrupt_handler)(void *context);
	void *interrupt_context;
};

/*
 * tidl_connect - connect to a broker, or start a private one.
 *
 * Search order: options->address; $TIDL_SOCKET; `tidl/tidld.sock`, then `tidl/private.sock` in the
 * user's runtime folder ($XDG_RUNTIME_DIR unless it is another user's, else /run/user/<euid>, else
 * /tmp/tidl-<euid>); /run/tidl/tidld.sock. A place where nobody listens is passed over; a place
 * that refuses access is an error. When nobody listens anywhere, no address was given by argument
 * or environment, and autostart is allowed, a private `tidld` is started on `private.sock`. Which
 * one: $TIDL_DAEMON; options->daemon_path, if that can be executed; the one installed with the
 * library. $PATH is not searched, and a privileged program (set-uid, capabilities) ignores the
 * environment.
 *
 * @options     may be NULL for the defaults
 * @ret_client  the new client; free with tidl_disconnect()
 *
 * Returns 0, or TIDL_ERR_INVALID_ARGUMENT, _NO_MEMORY, _DESCRIPTORS, _PERMISSION, _TIMEOUT,
 * _INTERRUPTED, _QUOTA and _LIMIT (too many connections), _NO_BROKER, _BROKER_GONE, _PROTOCOL,
 * _VERSION, _PEER_REFUSED, _BROKER_UNTRUSTED, _WRONG_SOCKET, _AUTOSTART, _SYSTEM. Blocks up to the
 * time-out. Any thread.
 */
TIDL_API int tidl_connect(const struct tidl_connect_options *options,
			  struct tidl_client **ret_client);

/*
 * tidl_disconnect - close the connection and free the client. NULL is allowed.
 *
 * Leases end with the connection; memory that is attached stays mapped until its tensors and
 * exports are gone. Objects published with TIDL_RETENTION_OWNER are removed. What was shared where
 * it lay becomes private (inplace.h). Must not run at the same time as another call on this client.
 * Never blocks.
 *
 * Returns 0. Or a code when memory could not be made private: whoever has it attached goes on
 * seeing and writing it, until its owner frees it, and tidl_last_error() names it and says why. The
 * client is gone in any case, and the owners' deleters have been called, unless not even malloc's
 * header could be saved from those who write: then they never are.
 */
TIDL_API int tidl_disconnect(struct tidl_client *client);

/*
 * tidl_close - end the connection, for calls of other threads that wait.
 *
 * They return TIDL_ERR_CLOSED, as does every later call. The client itself stays until
 * tidl_disconnect(). May be called twice. Any thread; never blocks.
 */
TIDL_API void tidl_close(struct tidl_client *client);

/*
 * tidl_fd - the descriptor to watch for readability in an event loop.
 *
 * It becomes readable when there is something for tidl_dispatch() to do, and also when a call of
 * another thread received what was meant for the loop (see pending.h). It is no socket, but an
 * epoll set: nothing but readability can be asked of it. Owned by the client; it changes when the
 * client reconnects after fork(). Returns a descriptor, or TIDL_ERR_CLOSED, _BROKER_GONE,
 * _DESCRIPTORS (the first call makes two). Any thread; never blocks.
 */
TIDL_API int tidl_fd(struct tidl_client *client);

/*
 * tidl_dispatch - handle what has arrived and send what is queued, without blocking.
 *
 * Call it when tidl_fd() is readable. Releases that could not be sent at once go out here (or with
 * the next call), and so do requests that the socket had no room for. Returns 0, or
 * TIDL_ERR_BROKER_GONE, _PROTOCOL, _CLOSED. Any thread.
 */
TIDL_API int tidl_dispatch(struct tidl_client *client);

/* What the broker said of itself in its greeting. Owned by the client, constant for its life. */
struct tidl_broker_info {
	const char *address; /* the socket's path */
	const char *version; /* version of tidld */
	uint8_t id[16];	     /* random identity; a new one at each start */
	uint64_t epoch;	     /* counts the restarts of this identity: always 1 today */
	uint32_t uid;	     /* the caller's uid as the broker's kernel sees it */
	uint32_t protocol;   /* protocol version agreed on */
	int is_private;	     /* non-zero: a private broker, which exits when idle */
};

/*
 * tidl_broker - who is at the other end. Borrowed pointer, valid until tidl_disconnect() (after
 * fork() until the child's first call). Any thread; never blocks.
 */
TIDL_API const struct tidl_broker_info *tidl_broker(const struct tidl_client *client);

#ifdef __cplusplus
}
#endif

#endif
