/* SPDX-License-Identifier: Apache-2.0 */
/* Runs one fuzz target over every file of the folders given: the corpus as an ordinary test. */
#include <dirent.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"

enum { INPUT_MAX_BYTES = 1 << 20 };

static int file_replay(const char *path)
{
	FILE *file = fopen(path, "rb");
	uint8_t *all, *exact;
	size_t size;

	if (file == NULL)
		return 0;
	all = malloc(INPUT_MAX_BYTES);
	size = all ? fread(all, 1, INPUT_MAX_BYTES, file) : 0;
	(void)fclose(file);
	/* Of exactly the size, so that reading beyond it is seen. */
	exact = malloc(size ? size : 1);
	if (all != NULL && exact != NULL) {
		memcpy(exact, all, size);
		(void)LLVMFuzzerTestOneInput(exact, size);
	}
	free(all);
	free(exact);
	return 1;
}

static int folder_replay(const char *path)
{
	DIR *folder = opendir(path);
	struct dirent *entry;
	int count = 0;

	if (folder == NULL) {
		perror(path);
		return 0;
	}
	while ((entry = readdir(folder)) != NULL) {
		char file[4096];

		if (entry->d_name[0] == '.')
			continue;
		(void)snprintf(file, sizeof(file), "%s/%s", path, entry->d_name);
		count += file_replay(file);
	}
	(void)closedir(folder);
	return count;
}

int main(int argc, char **argv)
{
	int count = 0;

	for (int i = 1; i < argc; i++)
		count += folder_replay(argv[i]);
	(void)printf("%d inputs replayed\n", count);
	return count > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
