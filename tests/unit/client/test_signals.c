/* SPDX-License-Identifier: Apache-2.0 */
/* Signals during a wait, and what their handler may do. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/leak.h"
#include "tests/unit/client/support/broker.h"

static const int64_t shape[] = {2, 3};

static int get_waiting(struct tidl_client *client, const char *name, int64_t timeout_ms,
		       struct tidl_tensor **ret_tensor)
{
	struct tidl_get_options options = {.size = sizeof(options), .timeout_ms = timeout_ms};

	return tidl_get(client, name, &options, ret_tensor);
}

static atomic_int handler_calls;
static atomic_int handler_answer;

static void on_signal(int number)
{
	(void)number;
}

static int interrupt_handler(void *context)
{
	static _Thread_local bool is_inside;
	struct tidl_listing *listing;

	/* A signal may interrupt the call below too. */
	if (is_inside)
		return 0;
	is_inside = true;
	atomic_fetch_add(&handler_calls, 1);
	/* It may call the client itself, in the middle of its wait. */
	if (tidl_list(*(struct tidl_client **)context, NULL, &listing) == 0)
		tidl_listing_free(listing);
	is_inside = false;
	return atomic_load(&handler_answer);
}

struct interrupted {
	struct tidl_client *client;
	const char *name;
	atomic_bool is_done;
	int result;
};

static void *interrupted_main(void *argument)
{
	struct interrupted *wait = argument;
	struct tidl_tensor *tensor = NULL;

	wait->result = get_waiting(wait->client, wait->name, -1, &tensor);
	tidl_tensor_unref(tensor);
	atomic_store(&wait->is_done, true);
	return NULL;
}

static void interrupt_until(pthread_t thread, const atomic_int *counter, int count)
{
	while (atomic_load(counter) < count) {
		(void)pthread_kill(thread, SIGUSR1);
		(void)sched_yield();
	}
}

TT_TEST(signals, a_signal_asks_the_handler, .timeout = 60)
{
	struct sigaction action = {.sa_handler = on_signal};
	struct tt_broker broker;
	struct interrupted wait = {.name = "never", .result = 1};
	pthread_t thread;

	tt_broker_start(&broker);
	cr_assert_eq(sigaction(SIGUSR1, &action, NULL), 0);
	wait.client = tt_broker_connect_interruptible(&broker, interrupt_handler, &wait.client);
	cr_assert_eq(pthread_create(&thread, NULL, interrupted_main, &wait), 0);
	interrupt_until(thread, &handler_calls, 3);
	cr_assert_not(atomic_load(&wait.is_done), "the handler said to go on");
	atomic_store(&handler_answer, 1);
	while (!atomic_load(&wait.is_done)) {
		(void)pthread_kill(thread, SIGUSR1);
		(void)sched_yield();
	}
	cr_assert_eq(pthread_join(thread, NULL), 0);
	cr_assert_eq(wait.result, TIDL_ERR_INTERRUPTED);
	tidl_disconnect(wait.client);
	tt_broker_stop(&broker);
}

TT_TEST(signals, without_a_handler_signals_change_nothing, .timeout = 60)
{
	struct sigaction action = {.sa_handler = on_signal};
	struct tt_broker broker;
	struct interrupted wait = {.name = "x", .result = 1};
	struct tidl_tensor *tensor;
	pthread_t thread;

	tt_broker_start(&broker);
	cr_assert_eq(sigaction(SIGUSR1, &action, NULL), 0);
	wait.client = tt_broker_connect(&broker);
	cr_assert_eq(pthread_create(&thread, NULL, interrupted_main, &wait), 0);
	for (int i = 0; i < 100; i++)
		(void)pthread_kill(thread, SIGUSR1);
	tensor = tt_tensor_counting(wait.client, 2, shape);
	tt_publish(wait.client, "x", tensor, NULL, NULL);
	for (int i = 0; i < 100; i++)
		(void)sched_yield();
	cr_assert_eq(pthread_join(thread, NULL), 0);
	cr_assert_eq(wait.result, 0);
	tidl_tensor_unref(tensor);
	tidl_disconnect(wait.client);
	tt_broker_stop(&broker);
}

static atomic_int forked_result = 1;

/* As a Python signal handler may: everything, in the middle of the call. */
static int forking_handler(void *context)
{
	pid_t pid;
	int status;

	if (atomic_load(&handler_calls) > 0)
		return 1;
	pid = fork();
	if (pid == 0) {
		/* In the child this returns into a call that is no longer there. */
		atomic_store(&handler_calls, 100);
		return 0;
	}
	(void)context;
	atomic_store(&handler_calls, 1);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	atomic_store(&forked_result, WIFEXITED(status) ? WEXITSTATUS(status) : 98);
	return 1;
}

TT_TEST(signals, a_handler_that_forks, .timeout = 60)
{
	struct sigaction action = {.sa_handler = on_signal};
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_tensor *tensor = NULL;
	pid_t parent = getpid();
	int r;

	tt_broker_start(&broker);
	cr_assert_eq(sigaction(SIGALRM, &action, NULL), 0);
	client = tt_broker_connect_interruptible(&broker, forking_handler, NULL);
	/* It comes again and again, so one of them meets the wait. */
	(void)setitimer(ITIMER_REAL, &(struct itimerval){{0, 5000}, {0, 5000}}, NULL);
	r = get_waiting(client, "never", -1, &tensor);
	(void)setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
	if (getpid() != parent) {
		struct tidl_listing *listing;

		if (r != TIDL_ERR_CANCELLED)
			_exit(2);
		_exit(tidl_list(client, NULL, &listing) == 0 ? 0 : 3);
	}
	cr_assert_eq(r, TIDL_ERR_INTERRUPTED);
	cr_assert_eq(atomic_load(&forked_result), 0);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}
