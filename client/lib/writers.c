/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks through /proc for shared, writable maps of a file. Only for explanations: what it sees may
 * have changed by the time it is read, and processes of others cannot be looked at.
 */
#include "client/lib/writers.h"

#include <ctype.h>
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A line of /proc/PID/maps: "7f00-7f10 rw-s 00000000 00:01 4711   /memfd:tidl:1 (deleted)". */
static bool line_is_writer(const char *line, ino_t inode)
{
	char flags[5] = "";
	char number[24] = "";

	return sscanf(line, "%*s %4s %*s %*s %23s", flags, number) == 2 &&
	       strtoull(number, NULL, 10) == inode && flags[1] == 'w' && flags[3] == 's' &&
	       strstr(line, "/memfd:") != NULL;
}

static bool process_is_writer(const char *pid, ino_t inode)
{
	char path[64];
	char *line = NULL;
	size_t capacity = 0;
	bool is_found = false;
	FILE *maps;

	(void)snprintf(path, sizeof(path), "/proc/%.20s/maps", pid);
	maps = fopen(path, "re");
	if (maps == NULL)
		return false;
	while (!is_found && getline(&line, &capacity, maps) > 0)
		is_found = line_is_writer(line, inode);
	free(line);
	(void)fclose(maps);
	return is_found;
}

static bool writer_find(ino_t inode, char *ret_text)
{
	DIR *processes = opendir("/proc");
	const struct dirent *entry;
	bool is_found = false;

	if (processes == NULL)
		return false;
	while (!is_found && (entry = readdir(processes)) != NULL) {
		if (!isdigit((unsigned char)entry->d_name[0]) ||
		    !process_is_writer(entry->d_name, inode))
			continue;
		is_found = true;
		if (strtol(entry->d_name, NULL, 10) == getpid())
			(void)snprintf(ret_text, TDC_WRITERS_TEXT_BYTES,
				       "this process has a second map of it");
		else
			(void)snprintf(ret_text, TDC_WRITERS_TEXT_BYTES,
				       "process %.20s has, perhaps a forked child", entry->d_name);
	}
	(void)closedir(processes);
	return is_found;
}

void tdc_writers_describe(int fd, char ret_text[TDC_WRITERS_TEXT_BYTES])
{
	struct stat status;

	if (fstat(fd, &status) == 0 && writer_find(status.st_ino, ret_text))
		return;
	(void)snprintf(ret_text, TDC_WRITERS_TEXT_BYTES,
		       "by a process that cannot be seen from here, or pinned by a device");
}
