/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that several threads share, name, take back and dispatch at once, through one client. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <dlpack/dlpack.h>

#include "tests/support/leak.h"
#include "tests/unit/client/support/memory.h"

enum { THREADS = 4, MEMORIES = 3, NAMES = 4, ROUNDS = 300, FORKS = 10 };

static struct tt_world world;
static struct tt_memory memories[MEMORIES];
static atomic_int held_count; /* tensors whose deleters have not been called */

/* A tensor that goes with its deleter, in whichever thread. */
struct owned {
	DLManagedTensorVersioned managed;
	int64_t shape[1];
};

static void owned_delete(DLManagedTensorVersioned *managed)
{
	atomic_fetch_sub(&held_count, 1);
	free(managed->manager_ctx);
}

static struct owned *owned_new(const struct tt_memory *memory)
{
	struct owned *owned = malloc(sizeof(*owned));

	cr_assert_not_null(owned);
	atomic_fetch_add(&held_count, 1);
	owned->managed = memory->foreign.managed;
	owned->managed.manager_ctx = owned;
	owned->managed.deleter = owned_delete;
	owned->shape[0] = memory->foreign.shape[0];
	owned->managed.dl_tensor.shape = owned->shape;
	owned->managed.dl_tensor.strides = NULL;
	return owned;
}

static bool is_expected(int result)
{
	return result == 0 || result == TIDL_ERR_BUSY || result == TIDL_ERR_NOT_FOUND ||
	       result == TIDL_ERR_COPY_NEEDED || result == TIDL_ERR_CLOSED;
}

static int publish_some(unsigned int number)
{
	const struct tt_memory *memory = &memories[number % MEMORIES];
	struct tidl_publish_options options = memory->options;
	struct owned *owned = owned_new(memory);
	char name[8];
	int r;

	(void)snprintf(name, sizeof(name), "%u", number / MEMORIES % NAMES);
	options.replace = 1;
	r = tidl_publish(world.client, name, &owned->managed, &options, NULL);
	if (r < 0)
		owned_delete(&owned->managed);
	return r;
}

static int do_something(unsigned int number)
{
	char name[8];

	(void)snprintf(name, sizeof(name), "%u", number / 4 % NAMES);
	switch (number % 4) {
	case 0:
		return tidl_unshare(world.client, name);
	case 1:
		return tidl_remove(world.client, name);
	case 2:
		return tidl_dispatch(world.client);
	default:
		return publish_some(number / 4);
	}
}

static void *thread_run(void *context)
{
	unsigned int seed = (unsigned int)(uintptr_t)context;
	uintptr_t unexpected = 0;

	for (int i = 0; i < ROUNDS && unexpected == 0; i++) {
		int r = do_something((unsigned int)rand_r(&seed));

		if (!is_expected(r))
			unexpected = (uintptr_t)-r;
	}
	return (void *)unexpected;
}

/* All of each memory is the child's own at the end, whatever its parent's threads were at. */
static void child_run(void)
{
	if (tidl_disconnect(world.client) != 0)
		_exit(1);
	for (size_t i = 0; i < MEMORIES; i++) {
		if (!tt_memory_is_private(&memories[i]))
			_exit(2);
	}
	_exit(0);
}

static void forks_run(void)
{
	for (int i = 0; i < FORKS; i++) {
		int status = -1;
		pid_t pid = fork();

		if (pid == 0)
			child_run();
		cr_assert_eq(waitpid(pid, &status, 0), pid);
		cr_expect_eq(status, 0, "%d", WEXITSTATUS(status));
	}
}

static void threads_run(void (*meanwhile)(void))
{
	pthread_t threads[THREADS];

	for (size_t i = 0; i < THREADS; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, thread_run, (void *)(i + 1)), 0);
	meanwhile();
	for (size_t i = 0; i < THREADS; i++) {
		void *unexpected;

		cr_assert_eq(pthread_join(threads[i], &unexpected), 0);
		cr_expect_null(unexpected, "error -%zu", (size_t)(uintptr_t)unexpected);
	}
}

static void races_init(void)
{
	tt_world_init(&world);
	for (size_t i = 0; i < MEMORIES; i++)
		tt_memory_init(&memories[i], 20 * TT_PAGE_BYTES);
}

static void races_deinit(void)
{
	cr_expect_eq(tidl_disconnect(world.client), 0, "%s", tidl_last_error());
	world.client = NULL;
	cr_expect_eq(atomic_load(&held_count), 0);
	for (size_t i = 0; i < MEMORIES; i++) {
		cr_expect(tt_memory_is_private(&memories[i]));
		tt_memory_expect_intact(&memories[i]);
		tt_memory_deinit(&memories[i]);
	}
	tt_world_deinit(&world);
}

static void nothing(void)
{
}

TT_TEST(inplace_races, all_at_once)
{
	races_init();
	threads_run(nothing);
	races_deinit();
}

TT_TEST(inplace_races, forked_meanwhile)
{
	races_init();
	threads_run(forks_run);
	races_deinit();
}

static void close_soon(void)
{
	for (int i = 0; i < 100; i++)
		cr_expect(is_expected(tidl_dispatch(world.client)));
	tidl_close(world.client);
}

TT_TEST(inplace_races, closed_meanwhile)
{
	races_init();
	threads_run(close_soon);
	races_deinit();
}
