/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that no thread waits for, answered in more packets than one. */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/lib/client.h"
#include "tests/support/leak.h"
#include "tests/unit/client/support/scene.h"

enum { SEGMENTS = 600, PACKETS = 3 };

/* A loop has nothing else to do then: what was allocated is given back. */
static void publish(struct tt_scene *scene, size_t count)
{
	tt_scene_publish(scene, count);
	while (scene->client->outbound.head != NULL)
		tt_scene_settle(scene);
	tt_scene_settle(scene);
}

static struct tidl_pending *begin(struct tt_scene *scene)
{
	struct tidl_pending *pending = NULL;

	cr_assert_eq(tidl_get_begin(scene->client, "x", NULL, &pending), 0, "%s",
		     tidl_last_error());
	return pending;
}

static bool is_readable(struct tidl_client *client, int timeout_ms)
{
	struct pollfd item = {.fd = tidl_fd(client), .events = POLLIN};

	return poll(&item, 1, timeout_ms) == 1;
}

/* What an event loop does, once. */
static void loop_once(struct tidl_client *client)
{
	cr_assert(is_readable(client, -1));
	cr_assert_eq(tidl_dispatch(client), 0, "%s", tidl_last_error());
}

static void take(struct tidl_pending *pending, size_t count)
{
	struct tidl_tensor *tensor = NULL;
	struct tidl_bundle *bundle = NULL;

	cr_assert_eq(tidl_pending_any(pending, &tensor, &bundle), 0, "%s", tidl_last_error());
	cr_assert_null(tensor);
	tt_scene_check(bundle, count);
	tidl_bundle_unref(bundle);
	tidl_pending_free(pending);
}

/* Sends no further part before it is told to. */
static void wait_for_leave(struct tt_store *store, struct tdp_message *message)
{
	eventfd_t value;

	if (message->kind == TDP_MESSAGE_MORE)
		(void)eventfd_read(*(int *)store->context, &value);
}

TT_TEST(pending_parts, a_loop_never_waits_for_them, .timeout = 60)
{
	int leave_fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	struct tidl_tensor *tensor = NULL;
	struct tidl_bundle *bundle = NULL;
	struct tidl_pending *pending;
	struct tt_scene scene;

	tt_scene_begin(&scene);
	publish(&scene, SEGMENTS);
	scene.store.context = &leave_fd;
	scene.store.bend = wait_for_leave;
	pending = begin(&scene);
	tidl_pending_set_key(pending, 7);
	for (int i = 1; i < PACKETS; i++) {
		loop_once(scene.client);
		cr_assert_not(tidl_pending_is_done(pending));
		cr_assert_eq(tidl_pending_any(pending, &tensor, &bundle), TIDL_ERR_BUSY);
		cr_assert_not(is_readable(scene.client, 0));
		cr_assert_eq(tidl_ready(scene.client), 0, "nobody is told of a part");
		cr_assert_eq(tidl_due(scene.client), 1);
		cr_assert_eq(eventfd_write(leave_fd, 1), 0);
	}
	loop_once(scene.client);
	cr_assert_eq(tidl_ready(scene.client), 7);
	cr_assert(tidl_pending_is_done(pending));
	cr_assert_eq(tidl_due(scene.client), 0);
	take(pending, SEGMENTS);
	cr_assert_eq(scene.store.more_count, PACKETS - 1);
	tt_scene_settle(&scene);
	cr_assert_eq(scene.store.released_leases, 1);
	tt_scene_end(&scene);
	close(leave_fd);
}

TT_TEST(pending_parts, calls_of_others_receive_them, .timeout = 60)
{
	struct tidl_pending *pending;
	struct tt_scene scene;

	tt_scene_begin(&scene);
	publish(&scene, SEGMENTS);
	(void)tidl_fd(scene.client);
	pending = begin(&scene);
	for (int i = 1; i < PACKETS; i++) {
		/* It takes the part from the socket; the loop learns of it all the same. */
		tt_scene_settle(&scene);
		loop_once(scene.client);
		cr_assert_not(tidl_pending_is_done(pending));
	}
	tt_scene_settle(&scene);
	cr_assert(tidl_pending_is_done(pending));
	take(pending, SEGMENTS);
	/* Without a loop, looking is enough. */
	pending = begin(&scene);
	for (int i = 0; i < PACKETS; i++) {
		cr_assert_not(tidl_pending_is_done(pending));
		tt_scene_settle(&scene);
	}
	take(pending, SEGMENTS);
	tt_scene_end(&scene);
}

TT_TEST(pending_parts, freed_at_any_time_they_are_given_back, .timeout = 60)
{
	struct tidl_pending *pending;
	struct tt_scene scene;

	tt_scene_begin(&scene);
	publish(&scene, 4);
	scene.store.part_limit = 1;
	/* Steps: a part is received, a part is taken, and so on; in the end it is done. */
	for (size_t steps = 0; steps <= 8; steps++) {
		pending = begin(&scene);
		for (size_t i = 0; i < steps; i++) {
			if (i % 2 == 0)
				tt_scene_settle(&scene);
			else
				(void)tidl_pending_is_done(pending);
		}
		cr_assert_eq(tidl_pending_is_done(pending), steps == 8 || steps == 7, "%zu", steps);
		tidl_pending_free(pending);
		tt_scene_settle(&scene);
		tt_scene_settle(&scene);
		cr_assert_eq(scene.store.released_leases, steps + 1, "%zu", steps);
		cr_assert_eq(tidl_due(scene.client), 0);
		cr_assert_eq(scene.client->arrived_count, 0);
	}
	tt_scene_end(&scene);
}

TT_TEST(pending_parts, what_was_granted_is_not_cancelled, .timeout = 60)
{
	struct tidl_pending *pending;
	struct tt_scene scene;

	tt_scene_begin(&scene);
	publish(&scene, 2);
	scene.store.part_limit = 1;
	pending = begin(&scene);
	tt_scene_settle(&scene);
	tidl_pending_cancel(pending);
	cr_assert_not(tidl_pending_is_done(pending));
	tidl_pending_cancel(pending);
	tt_scene_settle(&scene);
	take(pending, 2);
	tt_scene_end(&scene);
}

TT_TEST(pending_parts, a_connection_that_ends_in_between, .timeout = 60)
{
	struct tidl_tensor *tensor = NULL;
	struct tidl_bundle *bundle = NULL;
	struct tidl_pending *received, *awaited;
	struct tt_scene scene;

	tt_scene_begin(&scene);
	publish(&scene, 2);
	scene.store.part_limit = 1;
	awaited = begin(&scene);
	tt_scene_settle(&scene);
	cr_assert_not(tidl_pending_is_done(awaited));
	received = begin(&scene);
	tt_scene_settle(&scene);
	tidl_close(scene.client);
	cr_assert(tidl_pending_is_done(received));
	cr_assert_eq(tidl_pending_any(received, &tensor, &bundle), TIDL_ERR_CLOSED);
	/* Its last part had come. */
	take(awaited, 2);
	tidl_pending_free(received);
	tt_scene_end(&scene);
}

TT_TEST(pending_parts, a_forked_child_has_none_of_them, .timeout = 60)
{
	struct tidl_tensor *tensor = NULL;
	struct tidl_bundle *bundle = NULL;
	struct tidl_pending *pending;
	struct tt_scene scene;
	int status;
	pid_t pid;

	tt_scene_begin(&scene);
	publish(&scene, 2);
	scene.store.part_limit = 1;
	pending = begin(&scene);
	tt_scene_settle(&scene);
	pid = fork();
	if (pid == 0) {
		if (!tidl_pending_is_done(pending))
			_exit(1);
		if (tidl_pending_any(pending, &tensor, &bundle) != TIDL_ERR_CANCELLED)
			_exit(2);
		tidl_pending_free(pending);
		_exit(0);
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", status);
	cr_assert_not(tidl_pending_is_done(pending));
	tt_scene_settle(&scene);
	take(pending, 2);
	tt_scene_end(&scene);
}

enum { RACES = 300 };

struct race {
	struct tidl_client *client;
	atomic_bool is_over;
};

static void *dispatch_main(void *argument)
{
	struct race *race = argument;

	while (!atomic_load(&race->is_over))
		(void)tidl_dispatch(race->client);
	return NULL;
}

/* The thread that dispatches may be at a part of what is freed. */
TT_TEST(pending_parts, freed_while_another_thread_dispatches, .timeout = 60)
{
	struct tt_scene scene;
	struct race race;
	pthread_t thread;

	tt_scene_begin(&scene);
	publish(&scene, 8);
	scene.store.part_limit = 2;
	race = (struct race){.client = scene.client};
	cr_assert_eq(pthread_create(&thread, NULL, dispatch_main, &race), 0);
	for (unsigned i = 0; i < RACES; i++) {
		struct tidl_pending *pending = begin(&scene);

		for (unsigned looks = 0; looks < i % 64; looks++) {
			if (tidl_pending_is_done(pending))
				break;
		}
		if (i % 3 != 0) {
			tidl_pending_free(pending);
			continue;
		}
		while (!tidl_pending_is_done(pending))
			(void)sched_yield();
		take(pending, 8);
	}
	atomic_store(&race.is_over, true);
	cr_assert_eq(pthread_join(thread, NULL), 0);
	tt_scene_settle(&scene);
	tt_scene_settle(&scene);
	cr_assert_eq(scene.store.released_leases, RACES);
	cr_assert_eq(tidl_due(scene.client), 0);
	tt_scene_end(&scene);
}
