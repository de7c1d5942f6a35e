/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a real broker for one test. */
#include "tests/unit/client/support/broker.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <unistd.h>

#include "client/lib/autostart.h"
#include "client/lib/deadline.h"

#include <dlpack/dlpack.h>

const struct tidl_dtype tt_float32 = {.code = kDLFloat, .bits = 32, .lanes = 1};

void tt_broker_prepare(struct tt_broker *broker)
{
	if (getenv("TIDL_DAEMON") == NULL)
		cr_skip_test("TIDL_DAEMON does not say where tidld is");
	strcpy(broker->folder, "/tmp/tidl-test-XXXXXX");
	cr_assert_not_null(mkdtemp(broker->folder));
	cr_assert_eq(setenv("XDG_RUNTIME_DIR", broker->folder, 1), 0);
	cr_assert_eq(unsetenv("TIDL_SOCKET"), 0);
	/* A test that fails leaves its broker behind: not for long. */
	cr_assert_eq(setenv("TIDLD_IDLE_EXIT", "20", 1), 0);
	(void)snprintf(broker->address, sizeof(broker->address), "%s/tidl/private.sock",
		       broker->folder);
	broker->pid = 0;
}

/* Does the command line of a process name this socket? That of a dead one is empty. */
static bool process_serves(const char *pid, const char *address)
{
	char path[64];
	char command[1024];
	ssize_t length;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%.20s/cmdline", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	length = read(fd, command, sizeof(command));
	close(fd);
	return length > 0 && memmem(command, (size_t)length, address, strlen(address)) != NULL &&
	       memmem(command, (size_t)length, "tidld", 5) != NULL;
}

size_t tt_broker_find(struct tt_broker *broker)
{
	DIR *folder = opendir("/proc");
	struct dirent *entry;
	size_t count = 0;

	cr_assert_not_null(folder);
	while ((entry = readdir(folder)) != NULL) {
		if (entry->d_name[0] < '0' || entry->d_name[0] > '9' ||
		    !process_serves(entry->d_name, broker->address))
			continue;
		broker->pid = atoi(entry->d_name);
		count++;
	}
	closedir(folder);
	return count;
}

void tt_broker_start(struct tt_broker *broker)
{
	const struct tdc_patience patience = {.deadline = tdc_deadline_after(20000)};
	struct tdp_fault fault;
	char address[TDP_PATH_MAX];

	tt_broker_prepare(broker);
	cr_assert_eq(tdc_autostart(NULL, &patience, address, &fault), 0, "%s", fault.text);
	cr_assert_str_eq(address, broker->address);
	cr_assert_eq(tt_broker_find(broker), 1);
}

void tt_broker_kill(struct tt_broker *broker)
{
	struct pollfd item = {.events = POLLIN};

	if (broker->pid == 0)
		return;
	item.fd = pidfd_open(broker->pid, 0);
	if (item.fd >= 0) {
		(void)kill(broker->pid, SIGKILL);
		while (poll(&item, 1, -1) < 0 && errno == EINTR)
			;
		close(item.fd);
	}
	broker->pid = 0;
}

static int path_remove(const char *path, const struct stat *status, int type, struct FTW *walk)
{
	(void)status;
	(void)type;
	(void)walk;
	return remove(path);
}

void tt_broker_stop(struct tt_broker *broker)
{
	tt_broker_kill(broker);
	(void)nftw(broker->folder, path_remove, 8, FTW_DEPTH | FTW_PHYS);
}

struct tidl_client *tt_broker_connect_interruptible(const struct tt_broker *broker,
						    int (*handler)(void *context), void *context)
{
	struct tidl_connect_options options = {
		.size = sizeof(options),
		.address = broker->address,
		.timeout_ms = 20000,
		.interrupt_handler = handler,
		.interrupt_context = context,
	};
	struct tidl_client *client = NULL;

	cr_assert_eq(tidl_connect(&options, &client), 0, "%s", tidl_last_error());
	return client;
}

struct tidl_client *tt_broker_connect(const struct tt_broker *broker)
{
	return tt_broker_connect_interruptible(broker, NULL, NULL);
}

size_t tt_holder_count(struct tidl_client *client, const char *name)
{
	struct tidl_inspection *inspection;
	size_t count;

	cr_assert_eq(tidl_inspect(client, name, &inspection), 0, "%s", tidl_last_error());
	count = tidl_inspection_info(inspection)->holder_count;
	tidl_inspection_free(inspection);
	return count;
}

struct tidl_tensor *tt_tensor_counting(struct tidl_client *client, uint32_t ndim,
				       const int64_t *shape)
{
	struct tidl_tensor *tensor = NULL;
	float *data;

	cr_assert_eq(tidl_empty(client, ndim, shape, tt_float32, &tensor), 0, "%s",
		     tidl_last_error());
	data = tidl_tensor_data(tensor);
	for (uint64_t i = 0; i < tidl_tensor_nbytes(tensor) / sizeof(float); i++)
		data[i] = (float)i;
	return tensor;
}

void tt_publish(struct tidl_client *client, const char *name, struct tidl_tensor *tensor,
		const struct tidl_publish_options *options,
		struct tidl_publication *ret_publication)
{
	struct DLManagedTensorVersioned *managed = NULL;

	cr_assert_eq(tidl_tensor_export(tensor, &managed), 0);
	cr_assert_eq(tidl_publish(client, name, managed, options, ret_publication), 0, "%s",
		     tidl_last_error());
}

struct tidl_tensor *tt_get(struct tidl_client *client, const char *name, enum tidl_attach attach)
{
	struct tidl_get_options options = {.size = sizeof(options), .attach = attach};
	struct tidl_tensor *tensor = NULL;

	cr_assert_eq(tidl_get(client, name, &options, &tensor), 0, "%s", tidl_last_error());
	return tensor;
}
