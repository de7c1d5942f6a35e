/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for steps of other processes: no wake-up is lost, and nobody waits for the dead. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/lib/client.h"
#include "client/lib/steps.h"
#include "client/lib/tensor.h"
#include "tests/support/leak.h"
#include "tests/unit/client/support/broker.h"
#include "tests/unit/client/support/stepping.h"

enum { STEPS = 100000 };

static const int64_t shape[] = {2, 3};

TT_TEST(step_wait, two_processes_take_turns, .timeout = 110)
{
	struct tt_broker broker;
	struct tt_stepper other = {.broker = &broker,
				   .name = "x",
				   .attaches = 1,
				   .step_count = STEPS / 2,
				   .turn_of = 1,
				   .turns = 2};
	struct tidl_client *client;
	struct tidl_tensor *tensor;
	const float *cells;
	uint64_t step;
	pid_t pid;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	tensor = tt_tensor_counting(client, 1, (const int64_t[]){512});
	cells = tidl_tensor_data(tensor);
	tt_publish(client, "x", tensor, NULL, NULL);
	pid = tt_stepper_start(&other);
	for (uint64_t i = 0; i < STEPS; i += 2) {
		cr_assert_eq(tidl_wait_step(tensor, i, -1, &step), 0, "%s", tidl_last_error());
		cr_assert_eq(step, i, "somebody stepped out of turn");
		cr_assert(i == 0 || (cells[0] == (float)i && cells[511] == (float)i));
		cr_assert_eq(tidl_update_begin(tensor, 0), 0, "%s", tidl_last_error());
		cr_assert_eq(tidl_update_end(tensor, NULL), 0);
	}
	cr_assert_eq(tidl_wait_step(tensor, STEPS, -1, NULL), 0, "%s", tidl_last_error());
	tt_stepper_join(pid);
	tidl_tensor_unref(tensor);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

/* The readers only read; the writer does not wait for them, so each sees steps of its own. */
TT_TEST(step_wait, readers_follow_a_writer_that_does_not_wait, .timeout = 110)
{
	enum { READERS = 3 };
	struct tt_broker broker;
	struct tt_stepper writer = {.broker = &broker, .name = "x", .step_count = STEPS};
	pid_t readers[READERS], pid;

	tt_broker_start(&broker);
	for (int i = 0; i < READERS; i++) {
		readers[i] = fork();
		if (readers[i] == 0) {
			struct tidl_client *client = tt_broker_connect(&broker);
			struct tidl_tensor *tensor = tt_get_waiting(client, "x", TIDL_ATTACH_READ);
			uint64_t step = 0;

			while (step < STEPS) {
				if (tidl_wait_step(tensor, step + 1, -1, &step) != 0)
					_exit(1);
			}
			_exit(step == STEPS ? 0 : 2);
		}
	}
	pid = tt_stepper_start(&writer);
	for (int i = 0; i < READERS; i++)
		tt_stepper_join(readers[i]);
	tt_stepper_join(pid);
	tt_broker_stop(&broker);
}

/* ---- writers that go ---- */

/* Waits for one step after the other until it is told that there will be no more. */
struct follower {
	struct tidl_tensor *tensor;
	uint64_t step;
	int result;
	pthread_t thread;
};

static void *follower_main(void *argument)
{
	struct follower *follower = argument;

	do
		follower->result =
			tidl_wait_step(follower->tensor, follower->step + 1, -1, &follower->step);
	while (follower->result == 0);
	return NULL;
}

TT_TEST(step_wait, random_kills_leave_nobody_waiting, .timeout = 110)
{
	enum { ROUNDS = 25, FOLLOWERS = 3 };
	struct tt_broker broker;
	struct tidl_client *client;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	srand(1);
	for (int round = 0; round < ROUNDS; round++) {
		struct tt_stepper writer = {
			.broker = &broker, .name = "x", .step_count = UINT64_MAX};
		struct follower followers[FOLLOWERS];
		pid_t pid = tt_stepper_start(&writer);
		uint64_t last_step = (uint64_t)rand() % 1000;
		struct tidl_tensor *tensor = tt_get_waiting(client, "x", TIDL_ATTACH_READ);

		for (int i = 0; i < FOLLOWERS; i++) {
			followers[i] = (struct follower){.tensor = tensor};
			cr_assert_eq(pthread_create(&followers[i].thread, NULL, follower_main,
						    &followers[i]),
				     0);
		}
		while (tt_step(tensor) < last_step)
			(void)sched_yield();
		tt_stepper_kill(pid);
		for (int i = 0; i < FOLLOWERS; i++) {
			cr_assert_eq(pthread_join(followers[i].thread, NULL), 0);
			cr_expect_eq(followers[i].result, TIDL_ERR_WRITER_GONE, "%s",
				     tidl_error_name(followers[i].result));
			cr_expect_eq(followers[i].step, tt_step(tensor), "it saw all that was");
		}
		/* It stays so, for who comes later too. */
		cr_expect_eq(tidl_wait_step(tensor, UINT64_MAX, -1, NULL), TIDL_ERR_WRITER_GONE);
		cr_expect_not_null(strstr(tidl_last_error(), "has ended"), "%s", tidl_last_error());
		tidl_tensor_unref(tensor);
		cr_assert_eq(tidl_remove(client, "x"), 0);
	}
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

/* One connection waits, another one of the same process writes. */
struct scene {
	struct tt_broker broker;
	struct tidl_client *writer_client;
	struct tidl_client *reader_client;
	struct tidl_tensor *writer;
	struct follower follower;
};

static void scene_init(struct scene *scene)
{
	tt_broker_start(&scene->broker);
	scene->writer_client = tt_broker_connect(&scene->broker);
	scene->reader_client = tt_broker_connect(&scene->broker);
	scene->writer = tt_tensor_counting(scene->writer_client, 2, shape);
	tt_publish(scene->writer_client, "x", scene->writer, NULL, NULL);
	scene->follower =
		(struct follower){.tensor = tt_get(scene->reader_client, "x", TIDL_ATTACH_READ)};
	cr_assert_eq(tt_step(scene->follower.tensor), 0);
}

static void scene_deinit(struct scene *scene)
{
	tidl_tensor_unref(scene->follower.tensor);
	tidl_tensor_unref(scene->writer);
	tidl_disconnect(scene->reader_client);
	tidl_disconnect(scene->writer_client);
	tt_broker_stop(&scene->broker);
}

static void follower_start(struct scene *scene)
{
	cr_assert_eq(pthread_create(&scene->follower.thread, NULL, follower_main, &scene->follower),
		     0);
}

/* It has asked the broker, which is the last it does before it sleeps. */
static void follower_await_watch(const struct scene *scene)
{
	struct tidl_client *client = scene->reader_client;
	bool is_watched = false;

	while (!is_watched) {
		(void)sched_yield();
		tdc_client_lock(client);
		is_watched = scene->follower.tensor->segment->steps->watch != NULL;
		tdc_client_unlock(client);
	}
}

static void follower_expect(struct scene *scene, int code, const char *text)
{
	cr_assert_eq(pthread_join(scene->follower.thread, NULL), 0);
	cr_expect_eq(scene->follower.result, code, "%s", tidl_error_name(scene->follower.result));
	if (text != NULL)
		cr_expect_not_null(strstr(scene->follower.tensor->segment->steps->loss.text, text),
				   "%s", scene->follower.tensor->segment->steps->loss.text);
}

TT_TEST(step_wait, a_writer_that_lets_go, .timeout = 60)
{
	struct scene scene;

	scene_init(&scene);
	follower_start(&scene);
	follower_await_watch(&scene);
	scene.writer = tidl_tensor_unref(scene.writer);
	follower_expect(&scene, TIDL_ERR_WRITER_GONE, "let go of it");
	scene_deinit(&scene);
}

TT_TEST(step_wait, a_loss_between_two_waits_is_told_to_the_next, .timeout = 60)
{
	struct scene scene;
	struct tt_stepper other = {
		.broker = &scene.broker, .name = "x", .attaches = 1, .step_count = 0};
	struct tidl_tensor *tensor;
	uint64_t step;

	scene_init(&scene);
	tensor = scene.follower.tensor;
	cr_assert_eq(tidl_wait_step(tensor, 1, 1, NULL), TIDL_ERR_TIMEOUT);
	tt_stepper_join(tt_stepper_start(&other));
	while (tt_holder_count(scene.writer_client, "x") > 2)
		;
	/* A step that is there needs nobody. */
	cr_assert_eq(tidl_commit(scene.writer, NULL), 0);
	cr_expect_eq(tidl_wait_step(tensor, 1, -1, NULL), 0);
	cr_expect_eq(tidl_wait_step(tensor, 2, -1, &step), TIDL_ERR_WRITER_GONE);
	cr_expect_not_null(strstr(tidl_last_error(), "others can still write it"), "%s",
			   tidl_last_error());
	/* It is told once; the other writer goes on. */
	cr_expect_eq(tidl_wait_step(tensor, 2, 1, NULL), TIDL_ERR_TIMEOUT);
	cr_assert_eq(tidl_commit(scene.writer, NULL), 0);
	cr_expect_eq(tidl_wait_step(tensor, 2, -1, &step), 0);
	scene_deinit(&scene);
}

TT_TEST(step_wait, a_writer_that_has_not_come_is_waited_for, .timeout = 60)
{
	struct tt_broker broker;
	struct tt_stepper other = {.broker = &broker, .name = "x", .attaches = 1, .step_count = 1};
	struct tidl_client *client;
	struct tidl_tensor *tensor;
	pid_t pid;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	tensor = tt_tensor_counting(client, 1, (const int64_t[]){512});
	tt_publish(client, "x", tensor, NULL, NULL);
	cr_expect_eq(tidl_wait_step(tensor, 1, 1, NULL), TIDL_ERR_TIMEOUT);
	pid = tt_stepper_start(&other);
	cr_expect_eq(tidl_wait_step(tensor, 1, -1, NULL), 0, "%s", tidl_last_error());
	tt_stepper_join(pid);
	cr_expect_eq(tidl_wait_step(tensor, 2, -1, NULL), TIDL_ERR_WRITER_GONE);
	tidl_tensor_unref(tensor);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

TT_TEST(step_wait, within_an_update_a_snapshot_learns_of_it_too, .timeout = 60)
{
	struct tt_broker broker;
	struct tt_stepper writer = {
		.broker = &broker, .name = "x", .step_count = 1, .ends_within = 1};
	struct tidl_client *client;
	struct tidl_tensor *tensor;
	float copy[512];
	pid_t pid;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	pid = tt_stepper_start(&writer);
	tensor = tt_get_waiting(client, "x", TIDL_ATTACH_READ);
	cr_assert_eq(tidl_wait_step(tensor, 1, -1, NULL), 0);
	while (!tdp_word_is_open(tdp_control_load(tensor->segment->steps->control)))
		(void)sched_yield();
	tt_stepper_kill(pid);
	cr_expect_eq(tidl_snapshot(tensor, copy, sizeof(copy), -1, NULL), TIDL_ERR_WRITER_GONE);
	tidl_tensor_unref(tensor);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

/* ---- the socket, meanwhile ---- */

static void *getter_main(void *argument)
{
	struct tidl_get_options options = {.size = sizeof(options), .timeout_ms = -1};
	struct tidl_tensor *tensor = NULL;
	int r = tidl_get(argument, "end", &options, &tensor);

	tidl_tensor_unref(tensor);
	return r == 0 ? NULL : argument;
}

TT_TEST(step_wait, another_thread_receives_what_concerns_the_sleeper, .timeout = 60)
{
	struct scene scene;
	struct tidl_tensor *end;
	pthread_t getter;
	void *failed;
	bool is_led = false;

	scene_init(&scene);
	cr_assert_eq(pthread_create(&getter, NULL, getter_main, scene.reader_client), 0);
	while (!is_led) {
		(void)sched_yield();
		tdc_client_lock(scene.reader_client);
		is_led = scene.reader_client->leader != NULL;
		tdc_client_unlock(scene.reader_client);
	}
	follower_start(&scene);
	follower_await_watch(&scene);
	scene.writer = tidl_tensor_unref(scene.writer);
	follower_expect(&scene, TIDL_ERR_WRITER_GONE, NULL);
	end = tt_tensor_counting(scene.writer_client, 2, shape);
	tt_publish(scene.writer_client, "end", end, NULL, NULL);
	cr_assert_eq(pthread_join(getter, &failed), 0);
	cr_expect_null(failed);
	tidl_tensor_unref(end);
	scene_deinit(&scene);
}

TT_TEST(step_wait, without_the_broker_only_a_time_out_ends_a_wait, .timeout = 60)
{
	struct scene scene;

	scene_init(&scene);
	cr_assert_eq(tidl_commit(scene.writer, NULL), 0);
	follower_start(&scene);
	follower_await_watch(&scene);
	tt_broker_kill(&scene.broker);
	follower_expect(&scene, TIDL_ERR_BROKER_GONE, NULL);
	cr_expect_eq(scene.follower.step, 1);
	cr_expect_eq(tidl_wait_step(scene.follower.tensor, 2, 1, NULL), TIDL_ERR_TIMEOUT);
	cr_expect_eq(tidl_wait_step(scene.follower.tensor, 2, -1, NULL), TIDL_ERR_BROKER_GONE);
	/* Steps go on without it. */
	cr_assert_eq(tidl_commit(scene.writer, NULL), 0);
	cr_expect_eq(tidl_wait_step(scene.follower.tensor, 2, -1, NULL), 0);
	scene_deinit(&scene);
}

TT_TEST(step_wait, close_ends_it, .timeout = 60)
{
	struct scene scene;

	scene_init(&scene);
	follower_start(&scene);
	follower_await_watch(&scene);
	tidl_close(scene.reader_client);
	follower_expect(&scene, TIDL_ERR_CLOSED, NULL);
	scene_deinit(&scene);
}

/* ---- signals ---- */

static atomic_int handler_calls;
static atomic_int handler_answer;

static int interrupt_handler(void *context)
{
	(void)context;
	atomic_fetch_add(&handler_calls, 1);
	return atomic_load(&handler_answer);
}

static void on_signal(int number)
{
	(void)number;
}

TT_TEST(step_wait, a_signal_asks_the_handler, .timeout = 60)
{
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	struct scene scene;

	scene_init(&scene);
	tidl_tensor_unref(scene.follower.tensor);
	tidl_disconnect(scene.reader_client);
	scene.reader_client =
		tt_broker_connect_interruptible(&scene.broker, interrupt_handler, NULL);
	scene.follower.tensor = tt_get(scene.reader_client, "x", TIDL_ATTACH_READ);
	cr_assert_eq(sigaction(SIGUSR1, &action, NULL), 0);
	follower_start(&scene);
	while (atomic_load(&handler_calls) < 3) {
		(void)pthread_kill(scene.follower.thread, SIGUSR1);
		(void)sched_yield();
	}
	cr_expect_neq(pthread_tryjoin_np(scene.follower.thread, NULL), 0,
		      "the handler said to go on");
	atomic_store(&handler_answer, 1);
	(void)pthread_kill(scene.follower.thread, SIGUSR1);
	follower_expect(&scene, TIDL_ERR_INTERRUPTED, NULL);
	scene_deinit(&scene);
}

/* A writer that changes the word all the time, and never makes a step. */
static atomic_bool is_over;

static void *scribbler_main(void *argument)
{
	struct tdp_control *control = argument;

	for (uint64_t i = 1; !atomic_load(&is_over); i++)
		atomic_store(&control->word, i % 2);
	return NULL;
}

TT_TEST(step_wait, a_scribbling_writer_keeps_nobody, .timeout = 60)
{
	struct scene scene;
	pthread_t scribbler;
	float copy[6];

	scene_init(&scene);
	cr_assert_eq(tt_step(scene.writer), 0);
	cr_assert_eq(pthread_create(&scribbler, NULL, scribbler_main,
				    scene.writer->segment->steps->control),
		     0);
	cr_expect_eq(tidl_wait_step(scene.follower.tensor, 5, 20, NULL), TIDL_ERR_TIMEOUT);
	for (int i = 0; i < 20; i++) {
		int r = tidl_snapshot(scene.follower.tensor, copy, sizeof(copy), 1, NULL);

		cr_expect(r == 0 || r == TIDL_ERR_TIMEOUT, "%s", tidl_error_name(r));
	}
	atomic_store(&is_over, true);
	cr_assert_eq(pthread_join(scribbler, NULL), 0);
	scene_deinit(&scene);
}
