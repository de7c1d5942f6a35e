/* SPDX-License-Identifier: Apache-2.0 */
/* Events: their queue, who is woken, and what happens at the ends; with a broker that sends what
 * the test wants. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/lib/client.h"
#include "client/lib/event_queue.h"
#include "client/lib/watch.h"
#include "tests/support/leak.h"
#include "tests/unit/client/support/fake_broker.h"

enum { WATCH_ID = 12 };

static struct tdp_event event_named(const char *name, uint64_t generation)
{
	return (struct tdp_event){
		.watch_id = WATCH_ID,
		.kind = TDP_EVENT_PUBLISHED,
		.owner_uid = 7,
		.name = name,
		.generation = generation,
	};
}

TT_TEST(watch, a_full_queue_says_once_where_events_are_missing)
{
	struct tdc_event_queue queue = {.head = NULL};
	struct tidl_event event;

	for (uint64_t i = 1; i <= TDC_EVENT_QUEUE_MAX + 10; i++) {
		struct tdp_event sent = event_named("x", i);

		tdc_event_queue_push(&queue, &sent);
	}
	for (uint64_t i = 1; i <= TDC_EVENT_QUEUE_MAX; i++) {
		cr_assert(tdc_event_queue_pop(&queue, &event));
		cr_assert_eq(event.generation, i);
		/* What comes while there is room again comes behind the gap. */
		if (i == 2) {
			struct tdp_event sent = event_named("late", 99999);

			tdc_event_queue_push(&queue, &sent);
		}
	}
	cr_assert(tdc_event_queue_pop(&queue, &event));
	cr_assert_eq(event.kind, TIDL_EVENT_LOST);
	cr_assert_str_eq(event.name, "");
	cr_assert(tdc_event_queue_pop(&queue, &event));
	cr_assert_str_eq(event.name, "late");
	cr_assert(!tdc_event_queue_pop(&queue, &event));
	cr_assert(tdc_event_queue_is_empty(&queue));
}

TT_TEST(watch, a_gap_at_the_end_of_the_queue_shows_too)
{
	struct tdc_event_queue queue = {.head = NULL};
	struct tdp_event lost = {.kind = TDP_EVENT_LOST};
	struct tidl_event event;

	/* The broker's own, which may come more than once. */
	tdc_event_queue_push(&queue, &lost);
	tdc_event_queue_push(&queue, &lost);
	cr_assert(!tdc_event_queue_is_empty(&queue));
	cr_assert(tdc_event_queue_pop(&queue, &event));
	cr_assert_eq(event.kind, TIDL_EVENT_LOST);
	cr_assert(!tdc_event_queue_pop(&queue, &event));
	tdc_event_queue_push(&queue, &lost);
	tdc_event_queue_deinit(&queue);
}

/* What the broker's side does and saw. */
struct script {
	size_t events_behind_answer; /* sent right behind WATCHING */
	int go_on_fd;		     /* each write sends one event more */
	size_t watch_count;
	size_t unwatch_count;
	size_t goodbye_count;
	uint32_t kinds;
	char pattern[32];
};

static void send_event(int fd, uint64_t number)
{
	char name[32];
	struct tdp_message message = {.kind = TDP_MESSAGE_EVENT};

	(void)snprintf(name, sizeof(name), "n%llu", (unsigned long long)number);
	message.event = event_named(name, number);
	(void)tt_fake_send(fd, &message, NULL, 0);
}

static void handle(struct script *script, int fd, const struct tdp_message *message)
{
	struct tdp_message answer = {
		.kind = TDP_MESSAGE_WATCHING,
		.request_id = message->request_id,
		.watching = {.watch_id = WATCH_ID},
	};

	if (message->kind == TDP_MESSAGE_WATCH) {
		script->watch_count++;
		script->kinds = message->watch.kinds;
		(void)snprintf(script->pattern, sizeof(script->pattern), "%s",
			       message->watch.pattern);
		(void)tt_fake_send(fd, &answer, NULL, 0);
		for (size_t i = 1; i <= script->events_behind_answer; i++)
			send_event(fd, i);
	} else if (message->kind == TDP_MESSAGE_UNWATCH) {
		script->unwatch_count += message->unwatch.watch_id == WATCH_ID;
	} else if (message->kind == TDP_MESSAGE_GOODBYE) {
		script->goodbye_count++;
	} else if (message->request_id != 0) {
		(void)tt_fake_send_failure(fd, message->request_id, TIDL_ERR_NOT_FOUND);
	}
}

static void serve_script(struct tt_fake *fake, int fd)
{
	struct script *script = fake->context;
	struct tdp_message message;
	struct tdp_arena arena;
	struct pollfd items[] = {{.fd = fd, .events = POLLIN},
				 {.fd = script->go_on_fd, .events = POLLIN}};
	uint64_t number = 100;
	eventfd_t value;

	tdp_arena_init(&arena, TDP_UNPACK_MAX_BYTES);
	for (;;) {
		(void)poll(items, script->go_on_fd >= 0 ? 2 : 1, -1);
		if (items[1].revents != 0 && eventfd_read(script->go_on_fd, &value) == 0)
			send_event(fd, number++);
		if (items[0].revents == 0)
			continue;
		if (!tt_fake_receive(fd, &arena, &message))
			break;
		handle(script, fd, &message);
	}
	tdp_arena_deinit(&arena);
}

static struct tidl_event next(struct tidl_watch *watch, int64_t timeout_ms)
{
	struct tidl_event event = {.size = sizeof(event)};

	cr_assert_eq(tidl_watch_next(watch, timeout_ms, &event), 0, "%s", tidl_last_error());
	return event;
}

TT_TEST(watch, events_right_behind_the_answer_are_kept, .timeout = 60)
{
	struct script script = {.events_behind_answer = 3, .go_on_fd = -1};
	struct tt_fake fake = {.serve = serve_script, .context = &script};
	struct tidl_watch_options options = {.size = sizeof(options),
					     .kinds = TIDL_EVENT_BIT(TIDL_EVENT_PUBLISHED)};
	struct tidl_event event = {.size = sizeof(event)};
	struct tidl_client *client;
	struct tidl_watch *watch = NULL;

	tt_fake_start(&fake);
	client = tt_fake_connect(&fake);
	cr_assert_eq(tidl_watch(client, "n*", &options, &watch), 0, "%s", tidl_last_error());
	for (uint64_t i = 1; i <= 3; i++) {
		event = next(watch, -1);
		cr_assert_eq(event.kind, TIDL_EVENT_PUBLISHED);
		cr_assert_eq(event.owner_uid, 7);
		cr_assert_eq(event.generation, i);
		cr_assert_eq(event.name[1], (char)('0' + i));
		cr_assert_eq(event.attach, 0);
	}
	cr_assert_eq(tidl_watch_next(watch, 0, &event), TIDL_ERR_TIMEOUT);
	cr_assert_eq(tidl_watch_next(watch, 10, &event), TIDL_ERR_TIMEOUT);
	cr_assert(strstr(tidl_last_error(), "no event"), "%s", tidl_last_error());
	cr_assert_null(client->calls);
	cr_assert_eq(client->orphan_count, 0);
	tidl_unwatch(watch);
	cr_assert_eq(tidl_remove(client, "x"), TIDL_ERR_NOT_FOUND);
	tidl_disconnect(client);
	tt_fake_stop(&fake);
	cr_assert_eq(script.watch_count, 1);
	cr_assert_eq(script.unwatch_count, 1);
	cr_assert_eq(script.goodbye_count, 1);
	cr_assert_eq(script.kinds, 1u << TDP_EVENT_PUBLISHED);
	cr_assert_str_eq(script.pattern, "n*");
}

TT_TEST(watch, arguments_are_checked, .timeout = 60)
{
	struct script script = {.go_on_fd = -1};
	struct tt_fake fake = {.serve = serve_script, .context = &script};
	struct tidl_watch_options options = {.size = sizeof(options), .kinds = 1};
	struct tidl_event event = {.size = 0};
	struct tidl_client *client;
	struct tidl_watch *watch = NULL;

	tt_fake_start(&fake);
	client = tt_fake_connect(&fake);
	cr_assert_eq(tidl_watch(NULL, NULL, NULL, &watch), TIDL_ERR_INVALID_ARGUMENT);
	cr_assert_eq(tidl_watch(client, NULL, NULL, NULL), TIDL_ERR_INVALID_ARGUMENT);
	cr_assert_eq(tidl_watch(client, "a//b", NULL, &watch), TIDL_ERR_NAME_INVALID);
	cr_assert_eq(tidl_watch(client, "x", &options, &watch), TIDL_ERR_INVALID_ARGUMENT);
	cr_assert_eq(script.watch_count, 0);
	cr_assert_eq(tidl_watch(client, NULL, NULL, &watch), 0);
	cr_assert_str_eq(script.pattern, "**");
	cr_assert_eq(script.kinds, TDP_EVENT_KINDS_ALL);
	cr_assert_eq(tidl_watch_next(watch, 0, &event), TIDL_ERR_INVALID_ARGUMENT);
	cr_assert_eq(tidl_watch_next(watch, 0, NULL), TIDL_ERR_INVALID_ARGUMENT);
	cr_assert_eq(tidl_watch_next(NULL, 0, &event), TIDL_ERR_INVALID_ARGUMENT);
	tidl_unwatch(watch);
	tidl_unwatch(NULL);
	tidl_disconnect(client);
	tt_fake_stop(&fake);
}

struct reader {
	struct tidl_watch *watch;
	int result;
	struct tidl_event event;
};

static void *reader_main(void *argument)
{
	struct reader *reader = argument;

	reader->event.size = sizeof(reader->event);
	reader->result = tidl_watch_next(reader->watch, -1, &reader->event);
	return NULL;
}

/* Until the thread is about to sleep: it has the socket to watch. */
static void await_reader(struct tidl_client *client)
{
	bool is_leading = false;

	while (!is_leading) {
		tdc_client_lock(client);
		is_leading = client->leader != NULL;
		tdc_client_unlock(client);
	}
}

TT_TEST(watch, each_event_goes_to_one_reader, .timeout = 60)
{
	enum { READERS = 3 };
	struct script script = {.go_on_fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE)};
	struct tt_fake fake = {.serve = serve_script, .context = &script};
	struct reader readers[READERS];
	pthread_t threads[READERS];
	struct tidl_client *client;
	struct tidl_watch *watch = NULL;
	uint64_t sum = 0;

	tt_fake_start(&fake);
	client = tt_fake_connect(&fake);
	cr_assert_eq(tidl_watch(client, "**", NULL, &watch), 0);
	for (size_t i = 0; i < READERS; i++) {
		readers[i] = (struct reader){.watch = watch, .result = 1};
		cr_assert_eq(pthread_create(&threads[i], NULL, reader_main, &readers[i]), 0);
	}
	cr_assert_eq(eventfd_write(script.go_on_fd, READERS), 0);
	for (size_t i = 0; i < READERS; i++) {
		cr_assert_eq(pthread_join(threads[i], NULL), 0);
		cr_assert_eq(readers[i].result, 0);
		sum += readers[i].event.generation;
	}
	cr_assert_eq(sum, 100 + 101 + 102);
	cr_assert_null(client->calls);
	tidl_unwatch(watch);
	tidl_disconnect(client);
	tt_fake_stop(&fake);
	close(script.go_on_fd);
}

TT_TEST(watch, events_that_another_call_receives_wait_and_wake_the_loop, .timeout = 60)
{
	struct script script = {.go_on_fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE)};
	struct tt_fake fake = {.serve = serve_script, .context = &script};
	struct pollfd item = {.events = POLLIN};
	struct tidl_event event = {.size = sizeof(event)};
	struct tidl_client *client;
	struct tidl_watch *watch = NULL;

	tt_fake_start(&fake);
	client = tt_fake_connect(&fake);
	cr_assert_eq(tidl_watch(client, "**", NULL, &watch), 0);
	tidl_watch_set_key(watch, 5);
	item.fd = tidl_fd(client);
	cr_assert_eq(tidl_ready(client), 0);
	/* Answers and events come in order, so calls take in what comes before theirs. */
	cr_assert_eq(eventfd_write(script.go_on_fd, 2), 0);
	while (watch->queue.count < 2)
		cr_assert_eq(tidl_remove(client, "x"), TIDL_ERR_NOT_FOUND);
	cr_assert_eq(poll(&item, 1, 0), 1);
	cr_assert_eq(tidl_dispatch(client), 0);
	cr_assert_eq(tidl_ready(client), 5);
	cr_assert_eq(tidl_ready(client), 0);
	cr_assert_eq(next(watch, 0).generation, 100);
	cr_assert_eq(next(watch, 0).generation, 101);
	cr_assert_eq(tidl_watch_next(watch, 0, &event), TIDL_ERR_TIMEOUT);
	/* And by the loop itself. */
	cr_assert_eq(eventfd_write(script.go_on_fd, 1), 0);
	cr_assert_eq(poll(&item, 1, -1), 1);
	cr_assert_eq(tidl_dispatch(client), 0);
	cr_assert_eq(tidl_ready(client), 5);
	cr_assert_eq(next(watch, 0).generation, 102);
	tidl_unwatch(watch);
	tidl_disconnect(client);
	tt_fake_stop(&fake);
	close(script.go_on_fd);
}

TT_TEST(watch, stopping_ends_the_wait_behind_what_has_come, .timeout = 60)
{
	struct script script = {.events_behind_answer = 1, .go_on_fd = -1};
	struct tt_fake fake = {.serve = serve_script, .context = &script};
	struct reader reader;
	pthread_t thread;
	struct tidl_event event = {.size = sizeof(event)};
	struct tidl_client *client;
	struct tidl_watch *watch = NULL;

	tt_fake_start(&fake);
	client = tt_fake_connect(&fake);
	cr_assert_eq(tidl_watch(client, "**", NULL, &watch), 0);
	cr_assert_eq(next(watch, -1).generation, 1);
	reader = (struct reader){.watch = watch};
	cr_assert_eq(pthread_create(&thread, NULL, reader_main, &reader), 0);
	await_reader(client);
	tidl_watch_stop(watch);
	cr_assert_eq(pthread_join(thread, NULL), 0);
	cr_assert_eq(reader.result, TIDL_ERR_CANCELLED);
	tidl_watch_stop(watch);
	cr_assert_eq(tidl_watch_next(watch, -1, &event), TIDL_ERR_CANCELLED);
	tidl_unwatch(watch);
	/* With something in it. */
	cr_assert_eq(tidl_watch(client, "**", NULL, &watch), 0);
	cr_assert_eq(tidl_remove(client, "x"), TIDL_ERR_NOT_FOUND);
	tidl_watch_stop(watch);
	cr_assert_eq(next(watch, -1).generation, 1);
	cr_assert_eq(tidl_watch_next(watch, 0, &event), TIDL_ERR_CANCELLED);
	tidl_unwatch(watch);
	tidl_disconnect(client);
	tt_fake_stop(&fake);
	cr_assert_eq(script.unwatch_count, 2);
}

TT_TEST(watch, the_end_of_the_connection_comes_behind_the_last_event, .timeout = 60)
{
	struct script script = {.events_behind_answer = 2, .go_on_fd = -1};
	struct tt_fake fake = {.serve = serve_script, .context = &script};
	struct tidl_event event = {.size = sizeof(event)};
	struct reader reader;
	pthread_t thread;
	struct tidl_client *client;
	struct tidl_watch *watch = NULL;

	tt_fake_start(&fake);
	client = tt_fake_connect(&fake);
	cr_assert_eq(tidl_watch(client, "**", NULL, &watch), 0);
	tidl_watch_set_key(watch, 5);
	cr_assert_eq(next(watch, -1).generation, 1);
	cr_assert_eq(next(watch, -1).generation, 2);
	reader = (struct reader){.watch = watch};
	cr_assert_eq(pthread_create(&thread, NULL, reader_main, &reader), 0);
	tidl_close(client);
	cr_assert_eq(pthread_join(thread, NULL), 0);
	cr_assert_eq(reader.result, TIDL_ERR_CLOSED);
	cr_assert_eq(tidl_ready(client), 5);
	cr_assert_eq(tidl_watch_next(watch, 0, &event), TIDL_ERR_CLOSED);
	tidl_disconnect(client);
	cr_assert_eq(tidl_watch_next(watch, -1, &event), TIDL_ERR_CLOSED);
	tidl_unwatch(watch);
	tt_fake_stop(&fake);
}

TT_TEST(watch, a_forked_child_opens_its_own, .timeout = 60)
{
	struct script script = {.events_behind_answer = 1, .go_on_fd = -1};
	struct tt_fake fake = {.serve = serve_script, .context = &script};
	struct tidl_client *client;
	struct tidl_watch *watch = NULL;
	int status;
	pid_t child;

	tt_fake_start(&fake);
	client = tt_fake_connect(&fake);
	cr_assert_eq(tidl_watch(client, "**", NULL, &watch), 0);
	child = fork();
	if (child == 0) {
		struct tidl_event event = {.size = sizeof(event)};
		int r = tidl_watch_next(watch, -1, &event);
		bool is_good = r == 0 || r == TIDL_ERR_BROKER_GONE;

		is_good = is_good && tidl_watch_next(watch, -1, &event) == TIDL_ERR_BROKER_GONE &&
			  strstr(tidl_last_error(), "forked") != NULL;
		tidl_unwatch(watch);
		_exit(is_good ? 0 : 1);
	}
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert_eq(status, 0);
	cr_assert_eq(next(watch, -1).generation, 1, "the parent's goes on");
	tidl_unwatch(watch);
	tidl_disconnect(client);
	tt_fake_stop(&fake);
	cr_assert_eq(script.unwatch_count, 1);
}
