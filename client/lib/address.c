/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search for a broker's socket. A place where nobody listens is passed over; a place that
 * refuses us, or that is somebody else's, ends the search with its reason. Starts nothing.
 */
#include "client/lib/address.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/lib/deadline.h"
#include "client/lib/owner.h"
#include "client/lib/stdio_guard.h"
#include "proto/base/fd.h"

/* The system's broker runs as this user. */
static const char broker_user[] = "tidl";

static int list_add(struct tdc_address_list *list, const char *path, struct tdp_fault *fault)
{
	size_t length = strnlen(path, TDP_PATH_MAX);

	if (length == 0 || length == TDP_PATH_MAX)
		return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT,
				     "the path of a socket has 1 to %d bytes: correct the address "
				     "or TIDL_SOCKET",
				     TDP_PATH_MAX - 1);
	memcpy(list->paths[list->count++], path, length + 1);
	return 0;
}

static int list_add_runtime(struct tdc_address_list *list, struct tdp_fault *fault)
{
	static const char *const files[] = {"tidld.sock", "private.sock"};
	char folder[TDP_PATH_MAX];
	int r = tdp_paths_runtime_folder(0, folder, fault);

	/* No folder yet: nobody can listen there. */
	if (r == TIDL_ERR_NOT_FOUND)
		return 0;
	for (size_t i = 0; r == 0 && i < TDP_ARRAY_LENGTH(files); i++) {
		r = tdp_paths_join(folder, files[i], list->paths[list->count], fault);
		if (r == 0)
			list->count++;
	}
	return r;
}

int tdc_address_list_init(const char *given, struct tdc_address_list *ret_list,
			  struct tdp_fault *fault)
{
	const char *configured = secure_getenv("TIDL_SOCKET");
	int r;

	ret_list->count = 0;
	ret_list->is_given = true;
	if (given != NULL)
		return list_add(ret_list, given, fault);
	if (configured != NULL && configured[0] != '\0')
		return list_add(ret_list, configured, fault);
	ret_list->is_given = false;
	r = list_add_runtime(ret_list, fault);
	return r < 0 ? r : list_add(ret_list, TDP_SYSTEM_SOCKET, fault);
}

static int connect_fail(const char *path, int error, struct tdp_fault *fault)
{
	switch (error) {
	case ENOENT:
	case ECONNREFUSED:
		return tdp_fault_set(fault, TIDL_ERR_NO_BROKER,
				     "no broker listens on %s: start tidld, or check the address",
				     path);
	case EACCES:
	case EPERM:
		return tdp_fault_set(fault, TIDL_ERR_PERMISSION,
				     "access to %s is refused: check the rights of the socket and "
				     "its folder, or use another address",
				     path);
	case EPROTOTYPE:
		return tdp_fault_set(fault, TIDL_ERR_WRONG_SOCKET,
				     "%s is a socket of another kind, so no tidl broker: check "
				     "the address",
				     path);
	case EAGAIN:
		return tdp_fault_set(fault, TIDL_ERR_TIMEOUT,
				     "the broker at %s did not accept the connection in time: "
				     "check whether it is stopped or overloaded",
				     path);
	default:
		return tdp_fault_errno(fault, error, "cannot connect to %s", path);
	}
}

/* connect() to a Unix socket waits while the listener's queue is full, as long as a send may. */
static int socket_set_deadline(int fd, int64_t deadline, const char *path, struct tdp_fault *fault)
{
	int left_ms = tdc_deadline_poll_ms(deadline);
	struct timeval left = {.tv_sec = left_ms / 1000,
			       .tv_usec = (suseconds_t)(left_ms % 1000) * 1000};

	if (left_ms < 0)
		return 0;
	if (left_ms == 0)
		return connect_fail(path, EAGAIN, fault);
	if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &left, sizeof(left)) < 0)
		return tdp_fault_errno(fault, errno, "cannot set a time-out on a socket");
	return 0;
}

static int socket_connect(int fd, const char *path, const struct tdc_patience *patience,
			  struct tdp_fault *fault)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct stat status;
	int r;

	strncpy(address.sun_path, path, sizeof(address.sun_path) - 1);
	for (;;) {
		r = socket_set_deadline(fd, patience->deadline, path, fault);
		if (r < 0)
			return r;
		r = connect(fd, (const struct sockaddr *)&address, sizeof(address));
		if (r == 0 || errno != EINTR)
			break;
		if (tdc_interrupt_is_asked(&patience->interrupt))
			return tdp_fault_code(fault, TIDL_ERR_INTERRUPTED);
	}
	if (r == 0)
		return 0;
	/* To the kernel a plain file is a socket that nobody listens on. */
	if (errno == ECONNREFUSED && lstat(path, &status) == 0 && S_ISREG(status.st_mode))
		return tdp_fault_set(fault, TIDL_ERR_WRONG_SOCKET,
				     "%s is a file, not a socket: check the address", path);
	return connect_fail(path, errno, fault);
}

static int broker_check_trust(int fd, const char *path, struct tdp_fault *fault)
{
	struct ucred credentials;
	socklen_t length = sizeof(credentials);
	uint32_t trusted;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) < 0)
		return tdp_fault_errno(fault, errno, "cannot learn who listens on %s", path);
	if (credentials.uid == geteuid() || credentials.uid == 0)
		return 0;
	if (tdc_user_find(broker_user, &trusted) && credentials.uid == trusted)
		return 0;
	return tdp_fault_set(fault, TIDL_ERR_BROKER_UNTRUSTED,
			     "the broker at %s runs as uid %u, which is neither you nor root nor "
			     "user %s: check the address",
			     path, credentials.uid, broker_user);
}

int tdc_address_connect(const char *path, const struct tdc_patience *patience, int *ret_fd,
			struct tdp_fault *fault)
{
	tdp_auto_fd fd = tdc_above_stdio(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
	int r;

	if (fd < 0)
		return tdp_fault_errno(fault, errno, "cannot create a socket");
	r = socket_connect(fd, path, patience, fault);
	if (r == 0)
		r = broker_check_trust(fd, path, fault);
	if (r == 0)
		*ret_fd = tdp_fd_steal(&fd);
	return r;
}

int tdc_address_search(const struct tdc_address_list *list, const struct tdc_patience *patience,
		       int *ret_fd, char ret_path[TDP_PATH_MAX], struct tdp_fault *fault)
{
	int r = TIDL_ERR_NO_BROKER;

	for (size_t i = 0; i < list->count && r == TIDL_ERR_NO_BROKER; i++) {
		r = tdc_address_connect(list->paths[i], patience, ret_fd, fault);
		if (r == 0)
			memcpy(ret_path, list->paths[i], TDP_PATH_MAX);
	}
	if (r == TIDL_ERR_NO_BROKER && !list->is_given)
		return tdp_fault_set(fault, r,
				     "no broker listens in your runtime folder or on %s: start "
				     "tidld, or a program that may start one by itself",
				     TDP_SYSTEM_SOCKET);
	return r;
}
