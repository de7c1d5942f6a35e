/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making and leaving the place where clients connect. The lock beside the socket is held only while
 * starting and stopping, by flock() and so never by a dead process; its file is never removed,
 * because two starters could then hold two locks of one name.
 */
#include "daemon/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/limits.h"
#include "proto/base/fd.h"

enum {
	ACTIVATED_FD = 3,
	LOCK_PATH_BYTES = TDP_PATH_MAX + 8,
	UMASK_PUBLIC = 0111,  /* the socket becomes 0666: rights are per uid and per object */
	UMASK_PRIVATE = 0177, /* 0600 */
};

static int choose_user_path(const char *file, char ret_path[TDP_PATH_MAX], struct tdp_fault *fault)
{
	char folder[TDP_PATH_MAX];
	int r = tdp_paths_runtime_folder(1, folder, fault);

	if (r < 0)
		return r;
	return tdp_paths_join(folder, file, ret_path, fault);
}

static int choose_system_path(char ret_path[TDP_PATH_MAX], struct tdp_fault *fault)
{
	char folder[] = TDP_SYSTEM_SOCKET;

	*strrchr(folder, '/') = '\0';
	if (mkdir(folder, 0755) < 0 && errno != EEXIST)
		return tdp_fault_errno(fault, errno, "cannot make %s", folder);
	memcpy(ret_path, TDP_SYSTEM_SOCKET, sizeof(TDP_SYSTEM_SOCKET));
	return 0;
}

/* Absolute, because a detached broker leaves its folder, and removes the socket at its end. */
static int choose_given_path(const char *path, char ret_path[TDP_PATH_MAX], struct tdp_fault *fault)
{
	char folder[TDP_PATH_MAX] = "";

	if (*path != '/' && !getcwd(folder, sizeof(folder)))
		return tdp_fault_set(fault, TIDL_ERR_LIMIT,
				     "the current folder's path is too long for a socket: give "
				     "--socket an absolute path of at most %d bytes",
				     TDP_PATH_MAX - 1);
	if (*path != '/')
		return tdp_paths_join(folder, path, ret_path, fault);
	if (strlen(path) >= TDP_PATH_MAX)
		return tdp_fault_set(fault, TIDL_ERR_LIMIT,
				     "the socket's path is longer than %d bytes: choose a shorter "
				     "one",
				     TDP_PATH_MAX - 1);
	memcpy(ret_path, path, strlen(path) + 1);
	return 0;
}

int tdd_listener_choose_path(const char *path, bool is_private, char ret_path[TDP_PATH_MAX],
			     struct tdp_fault *fault)
{
	if (path)
		return choose_given_path(path, ret_path, fault);
	if (is_private)
		return choose_user_path("private.sock", ret_path, fault);
	if (geteuid() == 0)
		return choose_system_path(ret_path, fault);
	return choose_user_path("tidld.sock", ret_path, fault);
}

static int open_lock(const char *socket_path, int operation, int *ret_fd, struct tdp_fault *fault)
{
	char path[LOCK_PATH_BYTES];
	tdp_auto_fd fd = -1;

	snprintf(path, sizeof(path), "%s.lock", socket_path);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY, 0600);
	if (fd < 0)
		return tdp_fault_errno(fault, errno, "cannot open the start lock %s", path);
	while (flock(fd, operation) < 0) {
		if (errno != EINTR)
			return tdp_fault_errno(fault, errno, "cannot take the start lock %s", path);
	}
	*ret_fd = tdp_fd_steal(&fd);
	return 0;
}

static struct sockaddr_un socket_address(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	memcpy(address.sun_path, path, strlen(path) + 1);
	return address;
}

static int open_socket(struct tdp_fault *fault)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	return fd < 0 ? tdp_fault_errno(fault, errno, "cannot make a socket") : fd;
}

/* Remove a socket that nobody listens at. A file that is no socket is somebody's data. */
static int remove_stale(const char *path, struct tdp_fault *fault)
{
	struct stat status;

	if (lstat(path, &status) < 0)
		return errno == ENOENT ? 0
				       : tdp_fault_errno(fault, errno, "cannot examine %s", path);
	if (!S_ISSOCK(status.st_mode))
		return tdp_fault_set(fault, TIDL_ERR_WRONG_SOCKET,
				     "%s exists and is not a socket: remove it or choose another "
				     "--socket",
				     path);
	if (unlink(path) < 0 && errno != ENOENT)
		return tdp_fault_errno(fault, errno, "cannot remove the stale socket %s", path);
	return 0;
}

/* Does somebody listen there already? Leaves nothing in the way when not. */
static int clear_path(const char *path, struct tdp_fault *fault)
{
	struct sockaddr_un address = socket_address(path);
	tdp_auto_fd fd = open_socket(fault);

	if (fd < 0)
		return fd;
	/* EAGAIN: its queue of connections is full. */
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 || errno == EAGAIN)
		return tdp_fault_set(fault, TIDL_ERR_EXISTS, "a broker listens at %s already",
				     path);
	if (errno == ENOENT)
		return 0;
	if (errno == ECONNREFUSED)
		return remove_stale(path, fault);
	if (errno == EPROTOTYPE)
		return tdp_fault_set(fault, TIDL_ERR_WRONG_SOCKET,
				     "another program listens at %s: choose another --socket",
				     path);
	return tdp_fault_errno(fault, errno, "cannot examine the socket %s", path);
}

static int bind_and_listen(struct tdd_listener *listener, bool is_private, struct tdp_fault *fault)
{
	struct sockaddr_un address = socket_address(listener->path);
	struct stat status;
	mode_t previous = umask(is_private ? UMASK_PRIVATE : UMASK_PUBLIC);
	int r = bind(listener->fd, (struct sockaddr *)&address, sizeof(address));
	int bind_errno = errno;

	umask(previous);
	if (r < 0)
		return tdp_fault_errno(fault, bind_errno, "cannot bind to %s", listener->path);
	if (lstat(listener->path, &status) < 0)
		return tdp_fault_errno(fault, errno, "cannot examine %s", listener->path);
	listener->device = status.st_dev;
	listener->inode = status.st_ino;
	if (listen(listener->fd, TDD_LISTEN_BACKLOG) < 0)
		return tdp_fault_errno(fault, errno, "cannot listen at %s", listener->path);
	return 0;
}

int tdd_listener_open(const char *path, bool is_private, struct tdd_listener *ret_listener,
		      struct tdp_fault *fault)
{
	struct tdd_listener listener = {.fd = -1};
	tdp_auto_fd lock = -1;
	int r = open_lock(path, LOCK_EX, &lock, fault);

	if (r < 0)
		return r;
	r = clear_path(path, fault);
	if (r < 0)
		return r;
	memcpy(listener.path, path, strlen(path) + 1);
	listener.fd = open_socket(fault);
	if (listener.fd < 0)
		return listener.fd;
	r = bind_and_listen(&listener, is_private, fault);
	if (r < 0) {
		tdd_listener_deinit(&listener);
		return r;
	}
	*ret_listener = listener;
	return 0;
}

static bool environment_number(const char *name, long *ret_number)
{
	const char *text = getenv(name);
	char *end;

	if (!text || *text < '0' || *text > '9')
		return false;
	errno = 0;
	*ret_number = strtol(text, &end, 10);
	return errno == 0 && *end == '\0';
}

bool tdd_listener_is_activated(void)
{
	long pid, count;

	return environment_number("LISTEN_PID", &pid) && pid == getpid() &&
	       environment_number("LISTEN_FDS", &count) && count > 0;
}

static int socket_option(int fd, int option)
{
	int value = -1;
	socklen_t size = sizeof(value);

	return getsockopt(fd, SOL_SOCKET, option, &value, &size) < 0 ? -1 : value;
}

int tdd_listener_adopt(struct tdd_listener *ret_listener, struct tdp_fault *fault)
{
	struct tdd_listener listener = {.fd = ACTIVATED_FD};
	long count = 0;

	environment_number("LISTEN_FDS", &count);
	/* Not for programs that we might start, nor for the next look. */
	unsetenv("LISTEN_PID");
	unsetenv("LISTEN_FDS");
	unsetenv("LISTEN_FDNAMES");
	if (count != 1)
		return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT,
				     "the service manager passed %ld sockets: give exactly one",
				     count);
	if (socket_option(listener.fd, SO_DOMAIN) != AF_UNIX ||
	    socket_option(listener.fd, SO_TYPE) != SOCK_SEQPACKET ||
	    socket_option(listener.fd, SO_ACCEPTCONN) != 1)
		return tdp_fault_set(fault, TIDL_ERR_WRONG_SOCKET,
				     "the service manager passed no listening Unix socket for "
				     "packets: use ListenSequentialPacket=");
	if (fcntl(listener.fd, F_SETFD, FD_CLOEXEC) < 0 ||
	    fcntl(listener.fd, F_SETFL, fcntl(listener.fd, F_GETFL) | O_NONBLOCK) < 0)
		return tdp_fault_errno(fault, errno, "cannot use the passed socket");
	*ret_listener = listener;
	return 0;
}

int tdd_listener_sign(const struct tdd_listener *listener, struct tdp_fault *fault)
{
	/* A passed socket speaks for whoever passed it, who goes on to hold it. */
	if (listener->path[0] == '\0' || listen(listener->fd, TDD_LISTEN_BACKLOG) == 0)
		return 0;
	return tdp_fault_errno(fault, errno, "cannot listen at %s", listener->path);
}

int tdd_listener_accept(const struct tdd_listener *listener)
{
	int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	return fd < 0 ? -errno : fd;
}

/* Somebody may have removed it, and a later broker made its own. */
static bool listener_owns_file(const struct tdd_listener *listener)
{
	struct stat status;

	return lstat(listener->path, &status) == 0 && status.st_dev == listener->device &&
	       status.st_ino == listener->inode;
}

static void turn_off_late_comers(const struct tdd_listener *listener)
{
	int fd;

	while ((fd = tdd_listener_accept(listener)) >= 0)
		tdp_fd_close(fd);
}

bool tdd_listener_try_leave(const struct tdd_listener *listener)
{
	tdp_auto_fd lock = -1;
	struct tdp_fault fault;

	/* Who waits in a passed socket's queue waits for the next broker. */
	if (listener->path[0] == '\0')
		return true;
	if (listener_owns_file(listener)) {
		if (open_lock(listener->path, LOCK_EX | LOCK_NB, &lock, &fault) < 0)
			return false;
		if (listener_owns_file(listener))
			unlink(listener->path);
	}
	turn_off_late_comers(listener);
	return true;
}

void tdd_listener_deinit(struct tdd_listener *listener)
{
	listener->fd = tdp_fd_close(listener->fd);
}
