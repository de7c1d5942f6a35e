/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a user's sockets live. Makes folders when asked to, never removes one, and trusts no folder
 * that somebody else may have made.
 */
#include "proto/paths.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FOLDER_MODE = 0700, FOLDER_OTHERS_WRITE = 0022 };

__attribute__((format(printf, 3, 4))) static int
path_format(char ret_path[TDP_PATH_MAX], struct tdp_fault *fault, const char *format, ...)
{
	char path[TDP_PATH_MAX];
	va_list arguments;
	int length;

	va_start(arguments, format);
	length = vsnprintf(path, sizeof(path), format, arguments);
	va_end(arguments);
	if (length < 0 || length >= TDP_PATH_MAX)
		return tdp_fault_set(fault, TIDL_ERR_LIMIT,
				     "the path %s... is longer than the %d bytes of a socket's "
				     "path: set XDG_RUNTIME_DIR or TIDL_SOCKET to a shorter one",
				     path, TDP_PATH_MAX - 1);
	memcpy(ret_path, path, (size_t)length + 1);
	return 0;
}

int tdp_paths_join(const char *folder, const char *file, char ret_path[TDP_PATH_MAX],
		   struct tdp_fault *fault)
{
	return path_format(ret_path, fault, "%s/%s", folder, file);
}

/* A real folder of ours that nobody else can write to. lstat(), since a link in /tmp may be
 * anybody's. */
static int folder_check(const char *path, struct tdp_fault *fault)
{
	struct stat status;

	if (lstat(path, &status) < 0) {
		if (errno == ENOENT || errno == ENOTDIR)
			return tdp_fault_set(fault, TIDL_ERR_NOT_FOUND,
					     "the folder %s does not exist: start a broker, which "
					     "makes it",
					     path);
		if (errno == EACCES)
			return tdp_fault_set(fault, TIDL_ERR_PERMISSION,
					     "the folder %s cannot be reached: correct or unset "
					     "XDG_RUNTIME_DIR",
					     path);
		return tdp_fault_errno(fault, errno, "cannot look at the folder %s", path);
	}
	if (!S_ISDIR(status.st_mode))
		return tdp_fault_set(fault, TIDL_ERR_PERMISSION,
				     "%s is not a folder: remove it, or set XDG_RUNTIME_DIR to "
				     "another place",
				     path);
	if (status.st_uid != geteuid())
		return tdp_fault_set(fault, TIDL_ERR_PERMISSION,
				     "the folder %s belongs to uid %u: set XDG_RUNTIME_DIR to a "
				     "folder of your own",
				     path, status.st_uid);
	if ((status.st_mode & FOLDER_OTHERS_WRITE) != 0)
		return tdp_fault_set(fault, TIDL_ERR_PERMISSION,
				     "others may write to the folder %s: run `chmod 700` on it, or "
				     "set XDG_RUNTIME_DIR to another place",
				     path);
	return 0;
}

static int folder_make(const char *path, struct tdp_fault *fault)
{
	if (mkdir(path, FOLDER_MODE) == 0 || errno == EEXIST)
		return 0;
	if (errno == ENOENT || errno == ENOTDIR)
		return tdp_fault_set(fault, TIDL_ERR_NOT_FOUND,
				     "the folder around %s does not exist: make it, or correct or "
				     "unset XDG_RUNTIME_DIR",
				     path);
	if (errno == EACCES || errno == EPERM || errno == EROFS)
		return tdp_fault_set(fault, TIDL_ERR_PERMISSION,
				     "the folder %s cannot be made: set XDG_RUNTIME_DIR to a "
				     "folder of your own",
				     path);
	return tdp_fault_errno(fault, errno, "cannot make the folder %s", path);
}

static bool folder_is_ours(const char *path)
{
	struct stat status;

	return lstat(path, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid();
}

static bool folder_is_of_others(const char *path)
{
	struct stat status;

	return stat(path, &status) == 0 && status.st_uid != geteuid() && status.st_uid != 0;
}

/* The folder that `tidl` goes into; only the one in /tmp is ours to make. */
static int base_folder_find(int create, char ret_path[TDP_PATH_MAX], struct tdp_fault *fault)
{
	const char *configured = secure_getenv("XDG_RUNTIME_DIR");
	char path[TDP_PATH_MAX];
	int result;

	/* The specification of this variable has relative paths ignored. One that belongs to
	 * another user came along with sudo or su: what root makes in there would lock that user
	 * out. */
	if (configured != NULL && configured[0] == '/' && !folder_is_of_others(configured))
		return path_format(ret_path, fault, "%s", configured);
	(void)snprintf(path, sizeof(path), "/run/user/%u", geteuid());
	if (!folder_is_ours(path)) {
		(void)snprintf(path, sizeof(path), "/tmp/tidl-%u", geteuid());
		result = create ? folder_make(path, fault) : 0;
		if (result == 0)
			result = folder_check(path, fault);
		if (result < 0)
			return result;
	}
	memcpy(ret_path, path, sizeof(path));
	return 0;
}

int tdp_paths_runtime_folder(int create, char ret_path[TDP_PATH_MAX], struct tdp_fault *fault)
{
	char base[TDP_PATH_MAX];
	char path[TDP_PATH_MAX];
	int result = base_folder_find(create, base, fault);

	if (result == 0)
		result = tdp_paths_join(base, "tidl", path, fault);
	if (result == 0 && create)
		result = folder_make(path, fault);
	if (result == 0)
		result = folder_check(path, fault);
	if (result == 0)
		memcpy(ret_path, path, sizeof(path));
	return result;
}
