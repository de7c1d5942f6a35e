/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_LISTENER_H
#define TDD_LISTENER_H

#include <stdbool.h>
#include <sys/types.h>

#include "proto/base/attr.h"
#include "proto/base/fault.h"
#include "proto/paths.h"

/* The socket that clients connect to, and its place in the file system. */
struct tdd_listener {
	int fd;
	char path[TDP_PATH_MAX]; /* "": passed by the service manager, who keeps it */
	dev_t device;		 /* of the socket's file, to know it again */
	ino_t inode;
};

/* Where to listen, as an absolute path. NULL for @path: as the mode says. */
int tdd_listener_choose_path(const char *path, bool is_private, char ret_path[TDP_PATH_MAX],
			     struct tdp_fault *fault) TDP_MUST_CHECK;

/*
 * Bind and listen under the start lock, so that of several starters one wins; a socket that nobody
 * listens at is replaced. Returns 0, TIDL_ERR_EXISTS when a broker answers there already, or
 * TIDL_ERR_PERMISSION, _LIMIT, _WRONG_SOCKET, _SYSTEM.
 */
int tdd_listener_open(const char *path, bool is_private, struct tdd_listener *ret_listener,
		      struct tdp_fault *fault) TDP_MUST_CHECK;

/* Is there a socket from the service manager (LISTEN_PID, LISTEN_FDS)? */
bool tdd_listener_is_activated(void);

/* Take it over. */
int tdd_listener_adopt(struct tdd_listener *ret_listener, struct tdp_fault *fault) TDP_MUST_CHECK;

/* Let the socket speak for this process: the kernel tells clients the pid and uid of whoever called
 * listen() last, which before a fork is a process that will end. */
int tdd_listener_sign(const struct tdd_listener *listener, struct tdp_fault *fault) TDP_MUST_CHECK;

/* One connection: a non-blocking, close-on-exec descriptor, or a negative errno. */
int tdd_listener_accept(const struct tdd_listener *listener) TDP_MUST_CHECK;

/*
 * Give the place up, under the start lock: take the socket's file away and turn off whoever has
 * connected since the last accept. False when somebody else holds the lock: try again later.
 */
bool tdd_listener_try_leave(const struct tdd_listener *listener);

/* Close what is open; the file stays. */
void tdd_listener_deinit(struct tdd_listener *listener);

#endif
