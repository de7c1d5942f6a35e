/* SPDX-License-Identifier: Apache-2.0 */
/* A broker that is stopped: every call ends, and says whom to look at. */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>

#include "client/lib/client.h"
#include "tests/support/leak.h"
#include "tests/unit/client/support/fake_broker.h"
#include "tests/unit/client/support/foreign.h"

enum { SOON_MS = 20, TICK_US = 10000 };

static void serve_nothing(struct tt_fake *fake, int fd)
{
	struct tdp_message message;
	struct tdp_arena arena;

	(void)fake;
	tdp_arena_init(&arena, TDP_UNPACK_MAX_BYTES);
	while (tt_fake_receive(fd, &arena, &message))
		continue;
	tdp_arena_deinit(&arena);
}

static int interrupts;

static void on_signal(int number)
{
	(void)number;
}

static int stop_waiting(void *context)
{
	(void)context;
	interrupts++;
	return 1;
}

static struct tidl_client *connect_interruptible(const struct tt_fake *fake)
{
	struct tidl_connect_options options = {
		.size = sizeof(options),
		.address = fake->address,
		.interrupt_handler = stop_waiting,
	};
	struct tidl_client *client = NULL;

	cr_assert_eq(tidl_connect(&options, &client), 0, "%s", tidl_last_error());
	return client;
}

static void expect_blame(int result)
{
	cr_expect_eq(result, TIDL_ERR_TIMEOUT, "%s", tidl_error_name(result));
	cr_expect(strstr(tidl_last_error(), "does not answer"), "%s", tidl_last_error());
}

TT_TEST(silence, every_request_ends, .timeout = 60)
{
	static const int64_t none[] = {0};
	struct tt_fake fake = {.serve = serve_nothing};
	struct tidl_get_options get = {.size = sizeof(get)};
	struct tidl_inspection *inspection;
	struct tidl_listing *listing;
	struct tidl_tensor *tensor;
	struct tidl_client *client;
	struct tt_foreign foreign;

	tt_fake_start(&fake);
	client = tt_fake_connect(&fake);
	cr_assert_gt(client->answer_timeout_ms, SOON_MS);
	client->answer_timeout_ms = SOON_MS;
	tt_foreign_init(&foreign, NULL, 1, none, NULL);
	expect_blame(tidl_get(client, "x", &get, &tensor));
	get.timeout_ms = SOON_MS;
	expect_blame(tidl_get(client, "x", &get, &tensor));
	expect_blame(tidl_list(client, NULL, &listing));
	expect_blame(tidl_inspect(client, "x", &inspection));
	expect_blame(tidl_remove(client, "x"));
	expect_blame(tidl_shutdown(client));
	expect_blame(tidl_publish(client, "x", &foreign.managed, NULL, NULL));
	tidl_disconnect(client);
	tt_fake_stop(&fake);
}

/* One signal is enough: what the broker never holds back cannot be cancelled, so there is nothing
 * to wait for. A clock sends them, since one may come before the wait begins. */
TT_TEST(silence, a_signal_ends_a_request_at_once, .timeout = 60)
{
	const struct itimerval ticking = {{0, TICK_US}, {0, TICK_US}};
	const struct itimerval silent = {{0, 0}, {0, 0}};
	struct sigaction action = {.sa_handler = on_signal};
	struct tt_fake fake = {.serve = serve_nothing};
	struct tidl_get_options get = {.size = sizeof(get)};
	struct tidl_tensor *tensor;
	struct tidl_client *client;
	sigset_t alarms;
	int r;

	(void)sigemptyset(&alarms);
	(void)sigaddset(&alarms, SIGALRM);
	(void)pthread_sigmask(SIG_BLOCK, &alarms, NULL);
	tt_fake_start(&fake);
	(void)pthread_sigmask(SIG_UNBLOCK, &alarms, NULL);
	client = connect_interruptible(&fake);
	cr_assert_eq(sigaction(SIGALRM, &action, NULL), 0);
	cr_assert_eq(setitimer(ITIMER_REAL, &ticking, NULL), 0);
	r = tidl_get(client, "x", &get, &tensor);
	cr_assert_eq(setitimer(ITIMER_REAL, &silent, NULL), 0);
	cr_expect_eq(r, TIDL_ERR_INTERRUPTED);
	cr_expect_eq(interrupts, 1);
	tidl_disconnect(client);
	tt_fake_stop(&fake);
}
