/* SPDX-License-Identifier: Apache-2.0 */
/* Clients across fork(), against a real broker. */
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <dlpack/dlpack.h>

#include "client/lib/client.h"
#include "tests/support/leak.h"
#include "tests/unit/client/support/broker.h"
#include "tests/unit/client/support/foreign.h"

static const int64_t shape[] = {2, 3};

static void assert_child(pid_t pid)
{
	int status;

	cr_assert_geq(pid, 0);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", status);
}

/* The number of the step that failed, or 0. */
static int child_uses_client(struct tidl_client *client, struct tidl_tensor *inherited)
{
	struct tidl_publication publication = {.size = sizeof(publication)};
	struct tidl_tensor *got = NULL;
	struct tt_foreign foreign;

	/* The first call connects. */
	if (tidl_get(client, "x", NULL, &got) != 0)
		return 1;
	if (((float *)tidl_tensor_data(got))[5] != 5.0f)
		return 2;
	/* What was inherited is no longer this connection's. */
	tt_foreign_init(&foreign, tidl_tensor_data(inherited), 2, shape, NULL);
	if (tidl_publish(client, "child", &foreign.managed, NULL, &publication) != 0)
		return 3;
	if (publication.path != TIDL_PATH_COPIED ||
	    publication.reason != TIDL_COPY_REASON_OTHER_BROKER)
		return 4;
	((float *)tidl_tensor_data(inherited))[0] = 77.0f;
	tidl_tensor_unref(inherited);
	tidl_tensor_unref(got);
	if (tidl_fd(client) < 0)
		return 5;
	tidl_disconnect(client);
	return 0;
}

TT_TEST(fork, the_child_goes_on_with_a_connection_of_its_own, .timeout = 60)
{
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_tensor *tensor, *seen;
	pid_t pid;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	tensor = tt_tensor_counting(client, 2, shape);
	tt_publish(client, "x", tensor, NULL, NULL);
	pid = fork();
	if (pid == 0)
		_exit(child_uses_client(client, tensor));
	assert_child(pid);
	/* The child's own lease ends when the broker has read what it left. */
	while (tt_holder_count(client, "x") > 1)
		;
	cr_assert_eq(tt_holder_count(client, "x"), 1, "the parent's hold was released");
	cr_assert_float_eq(((float *)tidl_tensor_data(tensor))[0], 77.0f, 0.0f);
	seen = tt_get(client, "child", TIDL_ATTACH_READ);
	cr_assert_float_eq(((float *)tidl_tensor_data(seen))[5], 5.0f, 0.0f);
	tidl_tensor_unref(seen);
	tidl_tensor_unref(tensor);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

TT_TEST(fork, the_end_of_a_child_ends_nothing_of_the_parent, .timeout = 60)
{
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_tensor *tensor;
	pid_t pid;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	tensor = tt_tensor_counting(client, 2, shape);
	tt_publish(client, "x", tensor, NULL, NULL);
	pid = fork();
	if (pid == 0)
		_exit(0);
	assert_child(pid);
	cr_assert_eq(tt_holder_count(client, "x"), 1);
	tidl_tensor_unref(tensor);
	cr_assert_eq(tt_holder_count(client, "x"), 0);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

/* The child lives on after its parent; the broker must see the parent end all the same. */
TT_TEST(fork, a_living_child_does_not_hide_the_death_of_its_parent, .timeout = 60)
{
	struct tt_broker broker;
	struct tidl_client *watcher;
	int ready[2];
	int release[2];
	char byte;
	pid_t pid;

	tt_broker_start(&broker);
	watcher = tt_broker_connect(&broker);
	cr_assert_eq(pipe2(ready, O_CLOEXEC), 0);
	cr_assert_eq(pipe2(release, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		struct tidl_client *client = tt_broker_connect(&broker);
		struct tidl_tensor *tensor = tt_tensor_counting(client, 2, shape);

		tt_publish(client, "x", tensor, NULL, NULL);
		if (fork() == 0) {
			/* The grandchild: holds the map, waits until the test is over. */
			close(release[1]);
			(void)!write(ready[1], "", 1);
			(void)!read(release[0], &byte, 1);
			_exit(0);
		}
		(void)!read(ready[0], &byte, 1);
		_exit(0);
	}
	assert_child(pid);
	/* The connection ends with the process, which the broker notices in its own time. */
	while (tt_holder_count(watcher, "x") != 0)
		;
	close(release[1]);
	close(release[0]);
	close(ready[0]);
	close(ready[1]);
	tidl_disconnect(watcher);
	tt_broker_stop(&broker);
}

TT_TEST(fork, children_of_children, .timeout = 60)
{
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_tensor *tensor;
	pid_t pid;
	int status;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	tensor = tt_tensor_counting(client, 2, shape);
	tt_publish(client, "x", tensor, NULL, NULL);
	pid = fork();
	if (pid == 0) {
		struct tidl_tensor *got = NULL;
		pid_t grandchild;

		if (tidl_get(client, "x", NULL, &got) != 0)
			_exit(1);
		grandchild = fork();
		if (grandchild == 0) {
			/* Neither the child's lease nor the first parent's. */
			tidl_tensor_unref(got);
			_exit(child_uses_client(client, tensor));
		}
		if (waitpid(grandchild, &status, 0) != grandchild || status != 0)
			_exit(2);
		/* Its own leases are counted until the broker has noticed its end. */
		while (tt_holder_count(client, "x") > 2)
			;
		if (tt_holder_count(client, "x") != 2)
			_exit(3);
		_exit(0);
	}
	assert_child(pid);
	tidl_tensor_unref(tensor);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

TT_TEST(fork, a_child_without_a_broker_says_so, .timeout = 60)
{
	struct tt_broker broker;
	struct tidl_client *client;
	pid_t pid;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	tt_broker_kill(&broker);
	pid = fork();
	if (pid == 0) {
		struct tidl_listing *listing;
		int r = tidl_list(client, NULL, &listing);

		_exit(r == TIDL_ERR_NO_BROKER ? 0 : 1);
	}
	assert_child(pid);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}
