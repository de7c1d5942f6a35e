/* SPDX-License-Identifier: Apache-2.0 */
/* Self-description from /proc. What cannot be read is left out: nothing depends on it. */
#include "client/lib/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/fd.h"

/* Read the start of a file; returns the number of bytes, and a zero behind them. */
static size_t file_read(const char *path, char *buffer, size_t size_bytes)
{
	tdp_auto_fd fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t received = fd < 0 ? 0 : read(fd, buffer, size_bytes - 1);
	size_t length = received > 0 ? (size_t)received : 0;

	buffer[length] = '\0';
	return length;
}

/* Arguments are separated by zeros there. */
static void command_read(char *command, size_t size_bytes)
{
	size_t length = file_read("/proc/self/cmdline", command, size_bytes);

	while (length > 0 && command[length - 1] == '\0')
		length--;
	for (size_t i = 0; i < length; i++) {
		if (command[i] == '\0')
			command[i] = ' ';
	}
}

/* Lines of `hierarchy:controllers:path`; in version 2 there is one. */
static void cgroup_read(char *cgroup, size_t size_bytes)
{
	const char *path;

	(void)file_read("/proc/self/cgroup", cgroup, size_bytes);
	cgroup[strcspn(cgroup, "\n")] = '\0';
	path = strstr(cgroup, ":/");
	if (path != NULL)
		memmove(cgroup, path + 1, strlen(path));
}

static uint64_t inode_of(const char *path)
{
	struct stat status;

	return stat(path, &status) == 0 ? status.st_ino : 0;
}

static uint64_t device_of(const char *path)
{
	struct stat status;

	return stat(path, &status) == 0 ? status.st_dev : 0;
}

void tdc_identity_fill(const char *client_name, struct tdc_identity *identity,
		       struct tdp_hello *ret_hello)
{
	command_read(identity->command, sizeof(identity->command));
	cgroup_read(identity->cgroup, sizeof(identity->cgroup));
	*ret_hello = (struct tdp_hello){
		.min_version = TDP_PROTOCOL_MIN,
		.max_version = TDP_PROTOCOL_MAX,
		.client_name = client_name ? client_name : program_invocation_short_name,
		.command = identity->command,
		.cgroup = identity->cgroup,
		.pid_namespace = inode_of("/proc/self/ns/pid"),
		.ipc_namespace = inode_of("/proc/self/ns/ipc"),
		.dev_shm_device = device_of("/dev/shm"),
	};
}
