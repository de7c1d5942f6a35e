/* SPDX-License-Identifier: Apache-2.0 */
/* What listens there may be anything: each greeting that is none has its own code. */
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "tests/support/leak.h"
#include "tests/unit/client/support/fake_broker.h"

struct greeting {
	const char *what;
	int expected;
	bool (*greet)(struct tt_fake *fake, int fd);
};

static bool hello_take(int fd, struct tdp_message *ret_hello)
{
	struct tdp_arena arena;
	bool is_good;

	tdp_arena_init(&arena, TDP_UNPACK_MAX_BYTES);
	is_good = tt_fake_receive(fd, &arena, ret_hello);
	tdp_arena_deinit(&arena);
	return is_good;
}

static bool greet_garbage(struct tt_fake *fake, int fd)
{
	struct tdp_message hello;

	(void)fake;
	if (hello_take(fd, &hello))
		(void)!send(fd, "HTTP/1.1 400 Bad Request\r\n", 26, MSG_NOSIGNAL);
	return false;
}

static bool greet_version(struct tt_fake *fake, int fd)
{
	struct tdp_message welcome = {
		.kind = TDP_MESSAGE_WELCOME,
		.welcome = {.version = 99, .server_version = "99"},
	};
	struct tdp_message hello;

	(void)fake;
	if (hello_take(fd, &hello)) {
		welcome.request_id = hello.request_id;
		(void)tt_fake_send(fd, &welcome, NULL, 0);
	}
	return false;
}

static bool greet_refusal(struct tt_fake *fake, int fd)
{
	struct tdp_message hello;

	(void)fake;
	if (hello_take(fd, &hello))
		(void)tt_fake_send_failure(fd, hello.request_id, TIDL_ERR_PEER_REFUSED);
	return false;
}

/* Refuses before it has read anything, which makes the kernel report an error first. */
static bool greet_refusal_unread(struct tt_fake *fake, int fd)
{
	(void)fake;
	(void)tt_fake_send_failure(fd, 0, TIDL_ERR_VERSION);
	return false;
}

static bool greet_descriptor(struct tt_fake *fake, int fd)
{
	struct tdp_message welcome = {
		.kind = TDP_MESSAGE_WELCOME,
		.fd_count = 1,
		.welcome = {.version = 1, .server_version = "1"},
	};
	struct tdp_message hello;

	(void)fake;
	if (hello_take(fd, &hello)) {
		welcome.request_id = hello.request_id;
		(void)tt_fake_send(fd, &welcome, &fd, 1);
	}
	return false;
}

static bool greet_done(struct tt_fake *fake, int fd)
{
	struct tdp_message done = {.kind = TDP_MESSAGE_DONE};
	struct tdp_message hello;

	(void)fake;
	if (hello_take(fd, &hello)) {
		done.request_id = hello.request_id;
		(void)tt_fake_send(fd, &done, NULL, 0);
	}
	return false;
}

static bool greet_close(struct tt_fake *fake, int fd)
{
	struct tdp_message hello;

	(void)fake;
	(void)hello_take(fd, &hello);
	return false;
}

TT_TEST(greeting, greetings, .timeout = 60)
{
	static const struct greeting greetings[] = {
		{"garbage", TIDL_ERR_WRONG_SOCKET, greet_garbage},
		{"version", TIDL_ERR_VERSION, greet_version},
		{"refusal", TIDL_ERR_PEER_REFUSED, greet_refusal},
		{"refusal unread", TIDL_ERR_VERSION, greet_refusal_unread},
		{"descriptor", TIDL_ERR_WRONG_SOCKET, greet_descriptor},
		{"another message", TIDL_ERR_WRONG_SOCKET, greet_done},
		{"close", TIDL_ERR_BROKER_GONE, greet_close},
	};

	for (size_t i = 0; i < TDP_ARRAY_LENGTH(greetings); i++) {
		struct tt_fake fake = {.greet = greetings[i].greet};
		struct tidl_connect_options options = {.size = sizeof(options)};
		struct tidl_client *client = NULL;

		tt_fake_start(&fake);
		options.address = fake.address;
		options.timeout_ms = 20000;
		cr_assert_eq(tidl_connect(&options, &client), greetings[i].expected, "%s: %s",
			     greetings[i].what, tidl_last_error());
		cr_assert_null(client);
		tt_fake_stop(&fake);
	}
}

static bool greet_never(struct tt_fake *fake, int fd)
{
	struct tdp_message message;

	(void)fake;
	/* Until the client has gone. */
	while (hello_take(fd, &message))
		;
	return false;
}

TT_TEST(greeting, a_greeting_that_never_comes, .timeout = 60)
{
	struct tt_fake fake = {.greet = greet_never};
	struct tidl_connect_options options = {.size = sizeof(options), .timeout_ms = 20};
	struct tidl_client *client = NULL;

	tt_fake_start(&fake);
	options.address = fake.address;
	cr_assert_eq(tidl_connect(&options, &client), TIDL_ERR_TIMEOUT);
	tt_fake_stop(&fake);
}

static void on_alarm(int number)
{
	(void)number;
}

static int say_stop(void *context)
{
	(*(int *)context)++;
	return 1;
}

TT_TEST(greeting, a_signal_ends_an_endless_wait_for_it, .timeout = 60)
{
	struct sigaction action = {.sa_handler = on_alarm};
	struct tt_fake fake = {.greet = greet_never};
	int asked_count = 0;
	struct tidl_connect_options options = {
		.size = sizeof(options),
		.timeout_ms = -1,
		.interrupt_handler = say_stop,
		.interrupt_context = &asked_count,
	};
	struct tidl_client *client = NULL;

	cr_assert_eq(sigaction(SIGALRM, &action, NULL), 0);
	tt_fake_start(&fake);
	options.address = fake.address;
	/* It comes again and again, so one of them meets the wait. */
	(void)setitimer(ITIMER_REAL, &(struct itimerval){{0, 5000}, {0, 5000}}, NULL);
	cr_assert_eq(tidl_connect(&options, &client), TIDL_ERR_INTERRUPTED);
	(void)setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
	cr_assert_eq(asked_count, 1);
	tt_fake_stop(&fake);
}

/* Ends the first connection as a broker does that was just exiting, and serves the second. */
static bool greet_second(struct tt_fake *fake, int fd)
{
	int *count = fake->context;
	struct tdp_message welcome = {
		.kind = TDP_MESSAGE_WELCOME,
		.welcome = {.version = 1, .server_version = "1"},
	};
	struct tdp_message hello;

	if ((*count)++ == 0 || !hello_take(fd, &hello))
		return false;
	welcome.request_id = hello.request_id;
	return tt_fake_send(fd, &welcome, NULL, 0);
}

TT_TEST(greeting, a_broker_that_just_ended_is_searched_for_again, .timeout = 60)
{
	int count = 0;
	struct tt_fake fake = {.greet = greet_second, .context = &count};
	struct tidl_client *client;

	tt_fake_start(&fake);
	client = tt_fake_connect(&fake);
	tidl_disconnect(client);
	tt_fake_stop(&fake);
	cr_assert_eq(count, 2);
}
