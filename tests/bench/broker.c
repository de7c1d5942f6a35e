/* SPDX-License-Identifier: Apache-2.0 */
/* The broker under test, and the process that publishes what is attached later. */
#include "tests/bench/broker.h"

#include <err.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <dlpack/dlpack.h>

enum { START_TRIES = 5000, START_PAUSE_NS = 1000000 };

const struct tidl_dtype bench_dtype = {.code = kDLUInt, .bits = 8, .lanes = 1};

void bench_check(int result, const char *what)
{
	if (result < 0)
		errx(1, "%s: %s (%s)", what, tidl_last_error(), tidl_error_name(result));
}

static int broker_try_connect(const struct bench_broker *broker, struct tidl_client **ret_client)
{
	struct tidl_connect_options options = {
		.size = sizeof(options),
		.address = broker->address,
		.client_name = "tidl_bench",
		.no_autostart = 1,
	};

	return tidl_connect(&options, ret_client);
}

struct tidl_client *bench_broker_connect(const struct bench_broker *broker)
{
	struct tidl_client *client = NULL;

	bench_check(broker_try_connect(broker, &client), "connect");
	return client;
}

/* In the foreground there is no other sign of readiness than that it answers. */
static void broker_wait(const struct bench_broker *broker)
{
	const struct timespec pause = {.tv_nsec = START_PAUSE_NS};
	struct tidl_client *client = NULL;

	for (int i = 0; i < START_TRIES; i++) {
		if (waitpid(broker->pid, NULL, WNOHANG) != 0)
			errx(1, "tidld ended at once");
		if (broker_try_connect(broker, &client) == 0) {
			tidl_disconnect(client);
			return;
		}
		nanosleep(&pause, NULL);
	}
	bench_check(TIDL_ERR_NO_BROKER, "start of tidld");
}

void bench_broker_start(struct bench_broker *broker, const char *tidld, const char *address)
{
	broker->address = address;
	broker->pid = fork();
	if (broker->pid < 0)
		err(1, "fork");
	if (broker->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		execl(tidld, tidld, "--private", "--log-level", "warning", "--socket", address,
		      (char *)NULL);
		err(1, "%s", tidld);
	}
	broker_wait(broker);
}

void bench_broker_stop(struct bench_broker *broker, struct tidl_client *client)
{
	bench_check(tidl_shutdown(client), "shutdown");
	tidl_disconnect(client);
	waitpid(broker->pid, NULL, 0);
}

const char *bench_broker_name(uint64_t size_bytes, char buffer[64])
{
	snprintf(buffer, 64, "bench/%" PRIu64, size_bytes);
	return buffer;
}

static void publish_one(struct tidl_client *client, uint64_t size_bytes)
{
	const int64_t shape[] = {(int64_t)size_bytes};
	DLManagedTensorVersioned *managed = NULL;
	struct tidl_tensor *tensor = NULL;
	char name[64];

	bench_check(tidl_empty(client, 1, shape, bench_dtype, &tensor), "allocate");
	memset(tidl_tensor_data(tensor), 1, size_bytes);
	bench_check(tidl_tensor_export(tensor, &managed), "export");
	bench_check(tidl_publish(client, bench_broker_name(size_bytes, name), managed, NULL, NULL),
		    "publish");
	tidl_tensor_unref(tensor);
}

void bench_broker_publish(const struct bench_broker *broker, const uint64_t *sizes_bytes,
			  size_t size_count)
{
	int status = 0;
	pid_t publisher = fork();

	if (publisher < 0)
		err(1, "fork");
	if (publisher == 0) {
		struct tidl_client *client = bench_broker_connect(broker);

		for (size_t i = 0; i < size_count; i++)
			publish_one(client, sizes_bytes[i]);
		tidl_disconnect(client);
		_exit(0);
	}
	if (waitpid(publisher, &status, 0) < 0 || status != 0)
		errx(1, "the publisher failed");
}
