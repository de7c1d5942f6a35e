/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/paths.h"
#include "tests/support/leak.h"

/*
 * Every case runs in a child with its own environment and, where the test runs as root, its own
 * uid: one that has no folder in /run/user. The child reports by its exit status.
 */
enum { LONELY_UID = 61234, OTHER_UID = 61235 };

struct outcome {
	int code;
	char path[TDP_PATH_MAX];
	char text[TDP_FAULT_TEXT_MAX];
};

static char folder[64]; /* of the running test, writable for everybody */

static void folder_open(void)
{
	strcpy(folder, "/tmp/tidl-test-paths-XXXXXX");
	cr_assert_not_null(mkdtemp(folder));
	cr_assert_eq(chmod(folder, 0777), 0);
}

static void folder_remove(void)
{
	char command[128];

	(void)snprintf(command, sizeof(command), "rm -rf '%s'", folder);
	cr_assert_eq(system(command), 0);
}

/* The runtime folder as a process with this variable and uid finds it; uid 0: stay who we are. */
static struct outcome find(const char *variable, uid_t uid, int create)
{
	struct outcome outcome = {0};
	struct tdp_fault fault = {0};
	int pipes[2];
	pid_t child;

	cr_assert_eq(pipe(pipes), 0);
	child = fork();
	if (child == 0) {
		if (uid != 0 && (setgid(uid) != 0 || setuid(uid) != 0))
			_exit(1);
		if (variable != NULL)
			setenv("XDG_RUNTIME_DIR", variable, 1);
		else
			unsetenv("XDG_RUNTIME_DIR");
		outcome.code = tdp_paths_runtime_folder(create, outcome.path, &fault);
		memcpy(outcome.text, fault.text, sizeof(fault.text));
		_exit(write(pipes[1], &outcome, sizeof(outcome)) != (ssize_t)sizeof(outcome));
	}
	close(pipes[1]);
	cr_assert_eq(read(pipes[0], &outcome, sizeof(outcome)), (ssize_t)sizeof(outcome));
	close(pipes[0]);
	cr_assert_eq(waitpid(child, NULL, 0), child);
	return outcome;
}

static void expect_mode(const char *path, mode_t mode, uid_t uid)
{
	struct stat status;

	cr_assert_eq(lstat(path, &status), 0, "%s", path);
	cr_assert(S_ISDIR(status.st_mode));
	cr_assert_eq(status.st_mode & 07777, mode, "%o", status.st_mode);
	cr_assert_eq(status.st_uid, uid);
}

TT_TEST(paths, the_variable_comes_first)
{
	struct outcome outcome;
	char expected[80];

	folder_open();
	(void)snprintf(expected, sizeof(expected), "%s/tidl", folder);
	outcome = find(folder, 0, 0);
	cr_assert_eq(outcome.code, TIDL_ERR_NOT_FOUND);
	cr_assert_eq(access(expected, F_OK), -1, "looking makes nothing");
	outcome = find(folder, 0, 1);
	cr_assert_eq(outcome.code, 0, "%s", outcome.text);
	cr_assert_str_eq(outcome.path, expected);
	expect_mode(expected, 0700, geteuid());
	outcome = find(folder, 0, 0);
	cr_assert_eq(outcome.code, 0);
	outcome = find(folder, 0, 1);
	cr_assert_eq(outcome.code, 0);
	folder_remove();
}

TT_TEST(paths, a_strict_umask_does_not_lock_the_owner_out)
{
	struct outcome outcome;
	mode_t before;

	folder_open();
	before = umask(0077);
	outcome = find(folder, 0, 1);
	umask(before);
	cr_assert_eq(outcome.code, 0);
	expect_mode(outcome.path, 0700, geteuid());
	folder_remove();
}

TT_TEST(paths, a_variable_that_leads_nowhere_is_an_error)
{
	struct outcome outcome = find("/nowhere/at/all", 0, 1);

	cr_assert_eq(outcome.code, TIDL_ERR_NOT_FOUND);
	cr_assert_not_null(strstr(outcome.text, "XDG_RUNTIME_DIR"));
	cr_assert_eq(find("/dev/null", 0, 1).code, TIDL_ERR_NOT_FOUND);
}

TT_TEST(paths, a_path_too_long_for_a_socket_is_an_error)
{
	char path[200];

	memset(path, 'p', sizeof(path));
	path[0] = '/';
	path[TDP_PATH_MAX - 6] = '\0';
	cr_assert_eq(find(path, 0, 0).code, TIDL_ERR_NOT_FOUND);
	path[TDP_PATH_MAX - 6] = 'p';
	path[TDP_PATH_MAX - 5] = '\0';
	cr_assert_eq(find(path, 0, 0).code, TIDL_ERR_LIMIT);
	path[TDP_PATH_MAX - 5] = 'p';
	path[sizeof(path) - 1] = '\0';
	cr_assert_eq(find(path, 0, 1).code, TIDL_ERR_LIMIT);
}

/* As after `sudo -E`: what root made in there would lock its owner out. */
TT_TEST(paths, the_variable_of_another_user_is_ignored)
{
	struct outcome outcome;

	if (geteuid() != 0)
		cr_skip_test("only root can make folders of others");
	folder_open();
	cr_assert_eq(chown(folder, OTHER_UID, OTHER_UID), 0);
	outcome = find(folder, LONELY_UID, 0);
	cr_assert_null(strstr(outcome.path, folder));
	cr_assert_null(strstr(outcome.text, folder));
	cr_assert_eq(find(folder, OTHER_UID, 1).code, 0, "its owner's own");
	folder_remove();
}

TT_TEST(paths, folders_of_others_are_refused)
{
	char path[80];

	if (geteuid() != 0)
		cr_skip_test("only root can make folders of others");
	folder_open();
	(void)snprintf(path, sizeof(path), "%s/tidl", folder);
	cr_assert_eq(mkdir(path, 0700), 0);
	cr_assert_eq(chmod(path, 0777), 0);
	cr_assert_eq(chown(path, OTHER_UID, OTHER_UID), 0);
	cr_assert_eq(find(folder, LONELY_UID, 0).code, TIDL_ERR_PERMISSION);
	cr_assert_eq(find(folder, LONELY_UID, 1).code, TIDL_ERR_PERMISSION);
	cr_assert_eq(find(folder, 0, 1).code, TIDL_ERR_PERMISSION, "not even by root");
	cr_assert_eq(find(folder, OTHER_UID, 0).code, TIDL_ERR_PERMISSION, "all may write");
	cr_assert_eq(chmod(path, 0770), 0);
	cr_assert_eq(find(folder, OTHER_UID, 0).code, TIDL_ERR_PERMISSION, "a group may write");
	cr_assert_eq(chmod(path, 0750), 0);
	cr_assert_eq(find(folder, OTHER_UID, 0).code, 0);
	folder_remove();
}

TT_TEST(paths, links_and_files_are_refused)
{
	char path[80];
	int fd;

	folder_open();
	(void)snprintf(path, sizeof(path), "%s/tidl", folder);
	cr_assert_eq(symlink("/tmp", path), 0);
	cr_assert_eq(find(folder, 0, 1).code, TIDL_ERR_PERMISSION);
	cr_assert_eq(unlink(path), 0);
	fd = open(path, O_CREAT | O_WRONLY, 0600);
	cr_assert_geq(fd, 0);
	close(fd);
	cr_assert_eq(find(folder, 0, 1).code, TIDL_ERR_PERMISSION);
	folder_remove();
}

TT_TEST(paths, a_locked_folder_is_a_permission_error)
{
	if (geteuid() != 0)
		cr_skip_test("only root can become another uid");
	folder_open();
	cr_assert_eq(chmod(folder, 0700), 0);
	cr_assert_eq(find(folder, LONELY_UID, 0).code, TIDL_ERR_PERMISSION);
	cr_assert_eq(find(folder, LONELY_UID, 1).code, TIDL_ERR_PERMISSION);
	folder_remove();
}

static void expect_folder_in_tmp(const char *variable)
{
	char base[40], expected[60];

	(void)snprintf(base, sizeof(base), "/tmp/tidl-%d", LONELY_UID);
	(void)snprintf(expected, sizeof(expected), "%s/tidl", base);
	cr_assert_eq(find(variable, LONELY_UID, 0).code, TIDL_ERR_NOT_FOUND);
	cr_assert_eq(access(base, F_OK), -1, "looking makes nothing");
	cr_assert_str_eq(find(variable, LONELY_UID, 1).path, expected);
	expect_mode(base, 0700, LONELY_UID);
	expect_mode(expected, 0700, LONELY_UID);
	cr_assert_str_eq(find(variable, LONELY_UID, 0).path, expected);
	cr_assert_eq(rmdir(expected), 0);
	cr_assert_eq(rmdir(base), 0);
}

/* One test, since they share the one folder in /tmp. */
TT_TEST(paths, without_a_variable_it_is_in_tmp)
{
	char base[40];

	if (geteuid() != 0)
		cr_skip_test("only root can become a uid without /run/user");
	(void)snprintf(base, sizeof(base), "/tmp/tidl-%d", LONELY_UID);
	expect_folder_in_tmp(NULL);
	expect_folder_in_tmp("");
	expect_folder_in_tmp("relative/path");

	/* Somebody else was there first. */
	cr_assert_eq(mkdir(base, 0700), 0);
	cr_assert_eq(chown(base, OTHER_UID, OTHER_UID), 0);
	cr_assert_eq(find(NULL, LONELY_UID, 0).code, TIDL_ERR_PERMISSION);
	cr_assert_eq(find(NULL, LONELY_UID, 1).code, TIDL_ERR_PERMISSION);
	cr_assert_eq(chown(base, LONELY_UID, LONELY_UID), 0);
	cr_assert_eq(chmod(base, 0777), 0);
	cr_assert_eq(find(NULL, LONELY_UID, 1).code, TIDL_ERR_PERMISSION);
	cr_assert_eq(rmdir(base), 0);
	cr_assert_eq(symlink("/tmp", base), 0);
	cr_assert_eq(find(NULL, LONELY_UID, 1).code, TIDL_ERR_PERMISSION);
	cr_assert_eq(unlink(base), 0);
}

TT_TEST(paths, join)
{
	char path[TDP_PATH_MAX] = "before";
	char long_name[TDP_PATH_MAX];
	struct tdp_fault fault;

	cr_assert_eq(tdp_paths_join("/run/tidl", "tidld.sock", path, &fault), 0);
	cr_assert_str_eq(path, TDP_SYSTEM_SOCKET);
	memset(long_name, 'n', sizeof(long_name));
	long_name[TDP_PATH_MAX - 3] = '\0';
	cr_assert_eq(tdp_paths_join("r", long_name, path, &fault), 0);
	cr_assert_eq(strlen(path), TDP_PATH_MAX - 1);
	cr_assert_eq(tdp_paths_join("ru", long_name, path, &fault), TIDL_ERR_LIMIT);
	cr_assert_eq(path[1], '/', "untouched on failure");
}
