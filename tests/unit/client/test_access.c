/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that becomes immutable, or live, where it is. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <dlpack/dlpack.h>

#include "proto/base/kernel.h"
#include "tests/support/leak.h"
#include "tests/unit/client/support/broker.h"

static const int64_t shape[] = {64, 64};

static int publish_as(struct tidl_client *client, const char *name, struct tidl_tensor *tensor,
		      enum tidl_access access, enum tidl_copy copy,
		      struct tidl_publication *ret_publication)
{
	struct tidl_publish_options options = {
		.size = sizeof(options), .access = access, .copy = copy};
	struct DLManagedTensorVersioned *managed;
	int r;

	cr_assert_eq(tidl_tensor_export(tensor, &managed), 0);
	ret_publication->size = sizeof(*ret_publication);
	r = tidl_publish(client, name, managed, &options, ret_publication);
	if (r < 0)
		managed->deleter(managed);
	return r;
}

/* Does a write to this address end the process? Asked of a child. */
static bool is_writable(void *address)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		(void)signal(SIGSEGV, SIG_DFL);
		*(volatile char *)address = 1;
		_exit(0);
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TT_TEST(access, immutable_in_place)
{
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_tensor *tensor, *seen, *private;
	struct tidl_publication publication;
	float *data;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	tensor = tt_tensor_counting(client, 2, shape);
	data = tidl_tensor_data(tensor);
	cr_assert_eq(publish_as(client, "x", tensor, TIDL_ACCESS_IMMUTABLE, TIDL_COPY_NEVER,
				&publication),
		     0, "%s", tidl_last_error());
	cr_expect_eq(publication.path, TIDL_PATH_ALLOCATED);
	cr_expect_eq(tidl_tensor_data(tensor), data);
	cr_expect_eq(data[100], 100);
	cr_expect(tidl_tensor_is_readonly(tensor));
	cr_expect_eq(tidl_tensor_attach(tensor), TIDL_ATTACH_READ);
	cr_expect_eq(tidl_tensor_access(tensor), TIDL_ACCESS_IMMUTABLE);
	cr_expect_lt(mprotect(data, 4096, PROT_READ | PROT_WRITE), 0);
	seen = tt_get(client, "x", TIDL_ATTACH_READ);
	cr_expect_eq(tidl_tensor_access(seen), TIDL_ACCESS_IMMUTABLE);
	cr_expect_eq(((float *)tidl_tensor_data(seen))[100], 100);
	private = tt_get(client, "x", TIDL_ATTACH_COPY_ON_WRITE);
	((float *)tidl_tensor_data(private))[100] = 7;
	cr_expect_eq(data[100], 100);
	cr_expect_not(tidl_tensor_is_readonly(private));
	/* Once more under another name: nothing is left to do but to say so. */
	cr_expect_eq(publish_as(client, "y", tensor, TIDL_ACCESS_IMMUTABLE, TIDL_COPY_NEVER,
				&publication),
		     0);
	cr_expect_eq(publish_as(client, "z", tensor, TIDL_ACCESS_SHARED, TIDL_COPY_IF_NEEDED,
				&publication),
		     TIDL_ERR_ACCESS);
	cr_expect_eq(
		publish_as(client, "z", tensor, TIDL_ACCESS_SHARED, TIDL_COPY_ALWAYS, &publication),
		0);
	tidl_tensor_unref(private);
	tidl_tensor_unref(seen);
	tidl_tensor_unref(tensor);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

TT_TEST(access, what_else_is_wrong_comes_before_sealing)
{
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_tensor *tensor, *other;
	struct tidl_publication publication;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	other = tt_tensor_counting(client, 2, shape);
	tt_publish(client, "taken", other, NULL, NULL);
	tensor = tt_tensor_counting(client, 2, shape);
	cr_expect_eq(publish_as(client, "taken", tensor, TIDL_ACCESS_IMMUTABLE, TIDL_COPY_NEVER,
				&publication),
		     TIDL_ERR_EXISTS);
	cr_expect_not(tidl_tensor_is_readonly(tensor));
	cr_expect(is_writable(tidl_tensor_data(tensor)));
	cr_expect_eq(
		publish_as(client, "x", tensor, TIDL_ACCESS_SHARED, TIDL_COPY_NEVER, &publication),
		0);
	cr_expect_eq(publish_as(client, "y", tensor, TIDL_ACCESS_IMMUTABLE, TIDL_COPY_NEVER,
				&publication),
		     TIDL_ERR_ACCESS);
	cr_expect(is_writable(tidl_tensor_data(tensor)));
	tidl_tensor_unref(tensor);
	tidl_tensor_unref(other);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

/* Everything that a writable map is in the way of. @name is free before and after. */
static void expect_busy(struct tidl_client *client, struct tidl_tensor *tensor, const char *who)
{
	struct tidl_publication publication;
	float *data = tidl_tensor_data(tensor);

	cr_expect_eq(publish_as(client, "x", tensor, TIDL_ACCESS_IMMUTABLE, TIDL_COPY_NEVER,
				&publication),
		     TIDL_ERR_BUSY);
	cr_expect(strstr(tidl_last_error(), who), "%s", tidl_last_error());
	cr_expect_not(tidl_tensor_is_readonly(tensor));
	data[5] = 55;
	cr_expect_eq(publish_as(client, "x", tensor, TIDL_ACCESS_IMMUTABLE, TIDL_COPY_ALWAYS,
				&publication),
		     0, "%s", tidl_last_error());
	cr_expect_eq(publication.reason, TIDL_COPY_REASON_REQUESTED);
	cr_expect_not(tidl_tensor_is_readonly(tensor), "the copy is, not this");
	cr_expect_eq(tidl_remove(client, "x"), 0);
}

TT_TEST(access, a_forked_child_is_in_the_way, .timeout = 60)
{
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_tensor *tensor;
	struct tidl_publication publication;
	char who[32];
	pid_t pid;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	tensor = tt_tensor_counting(client, 2, shape);
	pid = fork();
	if (pid == 0) {
		for (;;)
			pause();
	}
	(void)snprintf(who, sizeof(who), "process %d", pid);
	expect_busy(client, tensor, who);
	cr_assert_eq(kill(pid, SIGKILL), 0);
	cr_assert_eq(waitpid(pid, NULL, 0), pid);
	cr_expect_eq(publish_as(client, "x", tensor, TIDL_ACCESS_IMMUTABLE, TIDL_COPY_NEVER,
				&publication),
		     0, "%s", tidl_last_error());
	tidl_tensor_unref(tensor);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

TT_TEST(access, a_second_map_is_in_the_way, .timeout = 60)
{
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_tensor *tensor;
	void *second;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	tensor = tt_tensor_counting(client, 2, shape);
	second = mremap(tidl_tensor_data(tensor), 0, 4096, MREMAP_MAYMOVE);
	cr_assert_neq(second, MAP_FAILED);
	expect_busy(client, tensor, "this process has a second map of it");
	munmap(second, 4096);
	tidl_tensor_unref(tensor);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

/* Only once the memory is mapped read-only: then it is being tried. */
static int is_being_sealed(void *context)
{
	struct tidl_tensor **tensor = context;

	return *tensor != NULL && tidl_tensor_is_readonly(*tensor);
}

static void ignore_signal(int number)
{
	(void)number;
}

TT_TEST(access, a_signal_ends_the_trying, .timeout = 60)
{
	struct sigaction action = {.sa_handler = ignore_signal};
	struct itimerval every_ms = {.it_interval = {.tv_usec = 1000},
				     .it_value = {.tv_usec = 1000}};
	struct itimerval never = {.it_interval = {.tv_usec = 0}};
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_tensor *tensor = NULL;
	struct tidl_publication publication;
	pid_t pid;
	int r;

	cr_assert_eq(sigaction(SIGALRM, &action, NULL), 0);
	tt_broker_start(&broker);
	client = tt_broker_connect_interruptible(&broker, is_being_sealed, &tensor);
	tensor = tt_tensor_counting(client, 2, shape);
	pid = fork();
	if (pid == 0) {
		for (;;)
			pause();
	}
	cr_assert_eq(setitimer(ITIMER_REAL, &every_ms, NULL), 0);
	r = publish_as(client, "x", tensor, TIDL_ACCESS_IMMUTABLE, TIDL_COPY_NEVER, &publication);
	cr_assert_eq(setitimer(ITIMER_REAL, &never, NULL), 0);
	cr_expect_eq(r, TIDL_ERR_INTERRUPTED, "%s", tidl_last_error());
	cr_assert_eq(kill(pid, SIGKILL), 0);
	cr_assert_eq(waitpid(pid, NULL, 0), pid);
	cr_expect_not(tidl_tensor_is_readonly(tensor));
	cr_expect(is_writable(tidl_tensor_data(tensor)));
	tidl_tensor_unref(tensor);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

TT_TEST(access, a_live_tensor_has_one_writer)
{
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_tensor *tensor, *seen;
	struct tidl_publication publication;
	struct tidl_get_options get = {.size = sizeof(get), .attach = TIDL_ATTACH_WRITE};

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	tensor = tt_tensor_counting(client, 2, shape);
	cr_expect_eq(
		publish_as(client, "x", tensor, TIDL_ACCESS_LIVE, TIDL_COPY_ALWAYS, &publication),
		TIDL_ERR_COPY_NEEDED);
	cr_assert_eq(
		publish_as(client, "x", tensor, TIDL_ACCESS_LIVE, TIDL_COPY_NEVER, &publication), 0,
		"%s", tidl_last_error());
	cr_expect_eq(tidl_tensor_access(tensor), TIDL_ACCESS_LIVE);
	cr_expect_not(tidl_tensor_is_readonly(tensor));
	seen = tt_get(client, "x", TIDL_ATTACH_READ);
	((float *)tidl_tensor_data(tensor))[3] = 33;
	cr_expect_eq(((float *)tidl_tensor_data(seen))[3], 33);
	cr_expect(tidl_tensor_is_readonly(seen));
	cr_expect_lt(mprotect(tidl_tensor_data(seen), 4096, PROT_READ | PROT_WRITE), 0);
	tidl_tensor_unref(seen);
	cr_expect_eq(tidl_get(client, "x", &get, &seen), TIDL_ERR_ACCESS);
	tidl_tensor_unref(tensor);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

TT_TEST(access, written_pages_are_private)
{
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_tensor *tensor, *seen, *mine, *again, *other;
	struct tidl_publication publication;
	float *data;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	tensor = tt_tensor_counting(client, 2, shape);
	cr_expect_eq(tidl_tensor_copy_on_write(tensor, &mine), TIDL_ERR_ACCESS);
	cr_assert_eq(publish_as(client, "x", tensor, TIDL_ACCESS_IMMUTABLE, TIDL_COPY_NEVER,
				&publication),
		     0);
	seen = tt_get(client, "x", TIDL_ATTACH_READ);
	cr_assert_eq(tidl_tensor_copy_on_write(seen, &mine), 0, "%s", tidl_last_error());
	cr_expect_eq(tidl_tensor_attach(mine), TIDL_ATTACH_COPY_ON_WRITE);
	cr_expect_eq(tidl_tensor_generation(mine), tidl_tensor_generation(seen));
	data = tidl_tensor_data(mine);
	data[1] = -1;
	cr_assert_eq(tidl_tensor_copy_on_write(seen, &again), 0);
	cr_expect_eq(tidl_tensor_data(again), data);
	tidl_tensor_unref(again);
	cr_assert_eq(tidl_tensor_copy_on_write(mine, &again), 0);
	cr_expect_eq(again, mine);
	/* Whoever made it immutable may want to write, too. */
	cr_assert_eq(tidl_tensor_copy_on_write(tensor, &other), 0, "%s", tidl_last_error());
	cr_expect_eq(((float *)tidl_tensor_data(other))[1], 1);
	cr_expect_eq(((float *)tidl_tensor_data(seen))[1], 1);
	/* It does not need the one that it was made from. */
	tidl_tensor_unref(seen);
	cr_expect_eq(data[1], -1);
	cr_expect_eq(data[2], 2);
	tidl_tensor_unref(other);
	tidl_tensor_unref(again);
	tidl_tensor_unref(mine);
	tidl_tensor_unref(tensor);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

static int write_in_child(struct tidl_tensor *seen)
{
	struct tidl_tensor *mine;

	if (tidl_tensor_copy_on_write(seen, &mine) != 0)
		return 1;
	((float *)tidl_tensor_data(mine))[1] = -1;
	return ((float *)tidl_tensor_data(seen))[1] == 1 ? 0 : 2;
}

TT_TEST(access, a_forked_child_gets_private_pages_too)
{
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_tensor *tensor, *seen;
	struct tidl_publication publication;
	int status;
	pid_t pid;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	tensor = tt_tensor_counting(client, 2, shape);
	cr_assert_eq(publish_as(client, "x", tensor, TIDL_ACCESS_IMMUTABLE, TIDL_COPY_NEVER,
				&publication),
		     0);
	seen = tt_get(client, "x", TIDL_ATTACH_READ);
	pid = fork();
	if (pid == 0)
		_exit(write_in_child(seen));
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_expect_eq(status, 0);
	tidl_tensor_unref(seen);
	tidl_tensor_unref(tensor);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

TT_TEST(access, kernels_that_map_sealed_memory_privately_only)
{
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_tensor *tensor, *seen;
	struct tidl_publication publication;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	tdp_kernel_forget(TDP_KERNEL_SEALED_SHARED_MAP);
	tensor = tt_tensor_counting(client, 2, shape);
	cr_assert_eq(publish_as(client, "x", tensor, TIDL_ACCESS_IMMUTABLE, TIDL_COPY_NEVER,
				&publication),
		     0);
	seen = tt_get(client, "x", TIDL_ATTACH_READ);
	cr_expect_eq(((float *)tidl_tensor_data(seen))[5], 5);
	cr_expect_not(is_writable(tidl_tensor_data(seen)));
	cr_expect(tidl_tensor_is_readonly(seen));
	tidl_tensor_unref(seen);
	tidl_tensor_unref(tensor);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

/* A second map: the page of the steps is writable again afterwards, as the data is. */
static void expect_busy_with_steps(struct tidl_client *client, struct tidl_tensor *tensor)
{
	void *second = mremap(tidl_tensor_data(tensor), 0, 4096, MREMAP_MAYMOVE);

	cr_assert_neq(second, MAP_FAILED);
	expect_busy(client, tensor, "this process has a second map of it");
	munmap(second, 4096);
}

TT_TEST(access, the_last_step_of_an_immutable_tensor)
{
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_tensor *tensor;
	struct tidl_publication publication;
	uint64_t step = 0;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	tensor = tt_tensor_counting(client, 2, shape);
	cr_assert_eq(tidl_commit(tensor, &step), 0, "%s", tidl_last_error());
	cr_assert_eq(tidl_update_begin(tensor, 0), 0);
	cr_expect_eq(publish_as(client, "x", tensor, TIDL_ACCESS_IMMUTABLE, TIDL_COPY_NEVER,
				&publication),
		     TIDL_ERR_BUSY);
	cr_assert_eq(tidl_update_end(tensor, &step), 0);
	expect_busy_with_steps(client, tensor);
	cr_assert_eq(tidl_commit(tensor, &step), 0, "%s", tidl_last_error());
	cr_expect_eq(step, 3);
	cr_assert_eq(publish_as(client, "x", tensor, TIDL_ACCESS_IMMUTABLE, TIDL_COPY_NEVER,
				&publication),
		     0, "%s", tidl_last_error());
	cr_expect_eq(tidl_commit(tensor, &step), TIDL_ERR_READ_ONLY);
	cr_assert_eq(tidl_step(tensor, &step), 0);
	cr_expect_eq(step, 3);
	tidl_tensor_unref(tensor);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}
