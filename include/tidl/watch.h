/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TIDL_WATCH_H
#define TIDL_WATCH_H

#include <stddef.h>
#include <stdint.h>

#include <tidl/client.h>
#include <tidl/export.h>
#include <tidl/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What happens to publications and to those who hold them. */
enum tidl_event_kind {
	TIDL_EVENT_PUBLISHED = 1,  /* a name appeared */
	TIDL_EVENT_REPLACED = 2,   /* a name stands for a new generation */
	TIDL_EVENT_REMOVED = 3,	   /* a name went: removed, its time was over, its owner went */
	TIDL_EVENT_LEASED = 4,	   /* somebody attached it; told to its owner and administrators */
	TIDL_EVENT_RELEASED = 5,   /* somebody let go of it; told to the same */
	TIDL_EVENT_OWNER_DIED = 6, /* its publisher died; with TIDL_RETENTION_OWNER it goes soon */
	TIDL_EVENT_LOST = 7,	/* events were dropped here: look for yourself with tidl_list() */
	TIDL_EVENT_RECALLED = 8 /* its owner asks for it back (never sent yet) */
};

/* The longest name, without the final zero. */
#define TIDL_NAME_MAX_BYTES 255

/* One event. Set `size` before the call that fills it in. */
struct tidl_event {
	size_t size; /* sizeof(struct tidl_event), set by the caller */
	enum tidl_event_kind kind;
	uint32_t owner_uid;
	uint64_t generation;		    /* 0 with TIDL_EVENT_LOST */
	uint32_t holder_uid;		    /* who, with LEASED and RELEASED */
	int64_t holder_pid;		    /* in the broker's pid namespace, 0 outside it */
	enum tidl_attach attach;	    /* how, with LEASED and RELEASED; else 0 */
	char name[TIDL_NAME_MAX_BYTES + 1]; /* in its owner's namespace; "" with TIDL_EVENT_LOST */
};

/*
 * Events of all names that match a pattern. Opaque. Belongs to the connection that it was opened
 * over: a forked child opens its own.
 *
 * The broker and the library each keep a bounded number of events for a reader that is slow. What
 * is beyond is dropped, and in its place the reader finds one TIDL_EVENT_LOST; neither its
 * connection nor anybody else suffers. Events come in the order in which the broker saw them. No
 * thread of the library receives them: they arrive while any call on the client waits, in
 * tidl_watch_next() and in tidl_dispatch().
 */
struct tidl_watch;

/* Zero-initialise, set `size`, then what differs from the defaults. */
struct tidl_watch_options {
	size_t size;	/* sizeof(struct tidl_watch_options) */
	uint32_t kinds; /* TIDL_EVENT_BIT() of those wanted; 0: all; LOST comes in any case */
};

#define TIDL_EVENT_BIT(kind) (1u << (kind))

/*
 * tidl_watch - be told of what happens from now on.
 *
 * @pattern    as for tidl_list(); NULL: everything in the caller's own namespace
 * @options    may be NULL for the defaults
 * @ret_watch  free with tidl_unwatch()
 *
 * What happened before is not told: open the watch first, then list. Events about publications that
 * the caller may not read are not sent. Returns 0 or TIDL_ERR_INVALID_ARGUMENT, _NAME_INVALID,
 * _NOT_FOUND (no such user), _QUOTA, _LIMIT, _UNSUPPORTED, _NO_MEMORY or a connection error. One
 * round trip. Any thread.
 */
TIDL_API int tidl_watch(struct tidl_client *client, const char *pattern,
			const struct tidl_watch_options *options, struct tidl_watch **ret_watch);

/*
 * tidl_watch_next - the next event.
 *
 * @timeout_ms  0 looks at what has arrived, negative waits for ever
 * @ret_event   its `size` is set; whole on success, untouched else
 *
 * Several threads may take events from one watch: each event goes to one of them. Returns 0 or
 * TIDL_ERR_INVALID_ARGUMENT, _TIMEOUT (none came), _INTERRUPTED, _CANCELLED (tidl_watch_stop()),
 * _NO_MEMORY, _DESCRIPTORS or a connection error, which comes after the last event that arrived.
 */
TIDL_API int tidl_watch_next(struct tidl_watch *watch, int64_t timeout_ms,
			     struct tidl_event *ret_event);

/*
 * tidl_watch_stop - end the watch; its reader finds TIDL_ERR_CANCELLED behind what has arrived.
 * For another thread than the one that waits in tidl_watch_next(). May be called twice. Any thread;
 * never blocks.
 */
TIDL_API void tidl_watch_stop(struct tidl_watch *watch);

/*
 * tidl_unwatch - end the watch and free it. NULL is allowed. Must not run at the same time as
 * another call on this watch. Works after tidl_disconnect(). Never blocks.
 */
TIDL_API void tidl_unwatch(struct tidl_watch *watch);

/* "published", "replaced", ...; "unknown" for what this version does not know. */
TIDL_API const char *tidl_event_kind_name(enum tidl_event_kind kind);

/* Zero-initialise, set `size`, then what differs from the defaults. */
struct tidl_wait_options {
	size_t size;	     /* sizeof(struct tidl_wait_options) */
	int64_t timeout_ms;  /* 0 looks, negative waits for ever */
	uint64_t newer_than; /* wait for a generation above this one; 0: for any */
	int released;	     /* non-zero: wait until no other connection holds a lease */
	uint64_t generation; /* with `released`: on this generation; 0: the current one */
};

/*
 * tidl_wait - wait for a name, for its next generation, or until everybody has let go of it.
 *
 * @name            as for tidl_get()
 * @options         may be NULL: wait for nothing, only look
 * @ret_generation  may be NULL; the current generation, or with `released` the one that is free
 *
 * `released` looks at leases of other connections than this one, also on a generation that was
 * replaced or removed and is still held; nobody holds what is gone. Returns 0 or
 * TIDL_ERR_INVALID_ARGUMENT, _NAME_INVALID, _NOT_FOUND (with `released`, or no such user),
 * _GENERATION_GONE, _PERMISSION, _TIMEOUT, _INTERRUPTED, _QUOTA, _LIMIT, _UNSUPPORTED, _NO_MEMORY,
 * _DESCRIPTORS or a connection error. Blocks up to the time-out plus one round trip. Any thread.
 */
TIDL_API int tidl_wait(struct tidl_client *client, const char *name,
		       const struct tidl_wait_options *options, uint64_t *ret_generation);

/*
 * tidl_pin - keep a generation for another process that was told to get it.
 *
 * For a minute the broker keeps it as if it were held, and grants it by number although the name
 * has been replaced or removed; that ends neither with this connection nor by any call. The
 * generation has to be current, or one that this client holds. Returns 0 or
 * TIDL_ERR_INVALID_ARGUMENT, _NAME_INVALID, _NOT_FOUND, _GENERATION_GONE, _PERMISSION, _QUOTA,
 * _LIMIT, _UNSUPPORTED, _NO_MEMORY or a connection error. One round trip. Any thread.
 */
TIDL_API int tidl_pin(struct tidl_client *client, const char *name, uint64_t generation);

/* tidl_tensor_pin - the same for what a tensor was got as. TIDL_ERR_INVALID_ARGUMENT for one that
 * was not got by name. */
TIDL_API int tidl_tensor_pin(struct tidl_tensor *tensor);

#ifdef __cplusplus
}
#endif

#endif
