/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is shared where it lies while others are at it: threads that write, signal handlers,
 * children. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/lib/inplace/maps.h"
#include "client/lib/inplace/move.h"
#include "proto/base/kernel.h"
#include "tests/support/leak.h"
#include "tests/unit/client/support/memory.h"

#define PIECE_BYTES ((size_t)TDC_PIECE_BYTES)

enum { WRITER_COUNT = 2, TOUCH_ROUNDS = 150 };

struct writer {
	struct tt_memory *memory;
	size_t first; /* element, then every WRITER_COUNTth */
	uint32_t rounds;
	atomic_bool *ends;
	pthread_t thread;
};

/* Counts each of its elements up, all the time. That the kernel stops it while they are copied is
 * nothing that ThreadSanitizer knows. */
__attribute__((no_sanitize_thread)) static void *writer_run(void *context)
{
	struct writer *writer = context;
	volatile uint32_t *elements = (volatile uint32_t *)writer->memory->data;
	size_t count = writer->memory->bytes / TT_ELEMENT_BYTES;

	while (!atomic_load(writer->ends)) {
		for (size_t i = writer->first; i < count; i += WRITER_COUNT)
			elements[i]++;
		writer->rounds++;
	}
	return NULL;
}

static size_t writers_lost(struct tt_memory *memory, const struct writer *writers)
{
	const uint32_t *elements = (const uint32_t *)memory->data;
	size_t lost = 0;

	for (size_t i = 0; i < memory->bytes / TT_ELEMENT_BYTES; i++)
		lost += elements[i] != writers[i % WRITER_COUNT].rounds;
	return lost;
}

/* Share and unshare while threads write. Elements in which a write was lost. */
static size_t rounds_run(struct tt_world *world, size_t rounds, int nobody_writes)
{
	struct writer writers[WRITER_COUNT];
	struct tt_memory memory;
	atomic_bool ends = false;
	size_t lost;

	tt_memory_init(&memory, 32 * TT_PAGE_BYTES);
	memset(memory.data, 0, memory.bytes);
	memory.options.nobody_writes = nobody_writes;
	for (size_t i = 0; i < WRITER_COUNT; i++) {
		writers[i] = (struct writer){.memory = &memory, .first = i, .ends = &ends};
		cr_assert_eq(pthread_create(&writers[i].thread, NULL, writer_run, &writers[i]), 0);
	}
	for (size_t i = 0; i < rounds; i++) {
		cr_assert_eq(tt_memory_publish(&memory, world->client, "x"), 0, "%s",
			     tidl_last_error());
		cr_assert_eq(tidl_unshare(world->client, "x"), 0, "%s", tidl_last_error());
	}
	atomic_store(&ends, true);
	for (size_t i = 0; i < WRITER_COUNT; i++)
		cr_assert_eq(pthread_join(writers[i].thread, NULL), 0);
	lost = writers_lost(&memory, writers);
	tt_memory_deinit(&memory);
	return lost;
}

TT_TEST(inplace_threads, no_write_of_another_thread_is_lost)
{
	struct tt_world world;

	tt_world_init(&world);
	cr_expect_eq(rounds_run(&world, 1000, 0), 0);
	tt_world_deinit(&world);
}

TT_TEST(inplace_threads, nor_where_pages_have_to_be_there_first)
{
	struct tt_world world;

	tt_world_init(&world);
	tdp_kernel_forget(TDP_KERNEL_WP_UNPOPULATED);
	cr_expect_eq(rounds_run(&world, 200, 0), 0);
	tt_world_deinit(&world);
}

static struct tt_memory *untouched;
static atomic_bool toucher_goes;
static pthread_t toucher;

/* Writes to each page for the first time, while it is copied. */
__attribute__((no_sanitize_thread)) static void *touch_run(void *context)
{
	volatile float *elements = untouched->data;
	size_t count = untouched->bytes / TT_ELEMENT_BYTES;

	(void)context;
	atomic_store(&toucher_goes, true);
	for (size_t i = 0; i < count; i += TT_PAGE_BYTES / TT_ELEMENT_BYTES)
		elements[i] = 1;
	return NULL;
}

static int touch_begin(enum tdc_move_step step, size_t piece)
{
	(void)piece;
	if (step != TDC_MOVE_THERE)
		return 0;
	atomic_store(&toucher_goes, false);
	cr_assert_eq(pthread_create(&toucher, NULL, touch_run, NULL), 0);
	while (!atomic_load(&toucher_goes))
		(void)sched_yield();
	return 0;
}

/* Pages whose first write was lost. */
static size_t touches_lost(struct tt_world *world)
{
	struct tt_memory memory;
	size_t lost = 0;

	tt_memory_init(&memory, PIECE_BYTES);
	cr_assert_eq(madvise(memory.data, memory.bytes, MADV_DONTNEED), 0);
	untouched = &memory;
	tdc_move_hook = touch_begin;
	cr_assert_eq(tt_memory_publish(&memory, world->client, "x"), 0, "%s", tidl_last_error());
	tdc_move_hook = NULL;
	cr_assert_eq(pthread_join(toucher, NULL), 0);
	for (size_t i = 0; i < memory.bytes / TT_ELEMENT_BYTES;
	     i += TT_PAGE_BYTES / TT_ELEMENT_BYTES)
		lost += memory.data[i] != 1;
	cr_assert_eq(tidl_unshare(world->client, "x"), 0, "%s", tidl_last_error());
	tt_memory_deinit(&memory);
	return lost;
}

TT_TEST(inplace_threads, nor_the_first_one_to_a_page)
{
	struct tt_world world;

	tt_world_init(&world);
	for (int i = 0; i < TOUCH_ROUNDS; i++)
		cr_assert_eq(touches_lost(&world), 0);
	tt_world_deinit(&world);
}

TT_TEST(inplace_threads, nor_that_where_pages_have_to_be_there_first)
{
	struct tt_world world;

	tt_world_init(&world);
	tdp_kernel_forget(TDP_KERNEL_WP_UNPOPULATED);
	for (int i = 0; i < TOUCH_ROUNDS; i++)
		cr_assert_eq(touches_lost(&world), 0);
	tt_world_deinit(&world);
}

TT_TEST(inplace_threads, without_the_guard_writes_would_be_lost)
{
	struct tt_world world;
	struct tt_memory memory;
	size_t lost = 0;

	tt_world_init(&world);
	tdp_kernel_forget(TDP_KERNEL_USERFAULTFD);
	tt_memory_init(&memory, 16 * TT_PAGE_BYTES);
	cr_expect_eq(tt_memory_publish(&memory, world.client, "x"), TIDL_ERR_COPY_NEEDED);
	cr_expect_eq(tidl_last_copy_reason(), TIDL_COPY_REASON_GUARD);
	tt_memory_expect_intact(&memory);
	tt_memory_deinit(&memory);
	/* What the caller would be wrong to vouch for. */
	for (int i = 0; i < 100 && lost == 0; i++)
		lost = rounds_run(&world, 20, 1);
	cr_expect_gt(lost, 0);
	tt_world_deinit(&world);
}

static struct tt_memory *signalled;
static atomic_uint signal_count;

static void signal_writes(int number)
{
	(void)number;
	for (size_t i = 0; i < signalled->bytes / TT_ELEMENT_BYTES;
	     i += TT_PAGE_BYTES / TT_ELEMENT_BYTES)
		((volatile uint32_t *)signalled->data)[i]++;
	atomic_fetch_add(&signal_count, 1);
}

/* The handler runs in the moving thread, and writes where that has stopped all writers. */
TT_TEST(inplace_threads, a_signal_handler_may_write, .timeout = 60)
{
	struct sigaction action = {.sa_handler = signal_writes};
	const struct itimerspec often = {.it_interval = {.tv_nsec = 200000},
					 .it_value = {.tv_nsec = 200000}};
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
	struct tt_world world;
	struct tt_memory memory;
	timer_t timer;

	tt_world_init(&world);
	tt_memory_init(&memory, 4 * PIECE_BYTES);
	memset(memory.data, 0, memory.bytes);
	signalled = &memory;
	cr_assert_eq(sigaction(SIGUSR1, &action, NULL), 0);
	cr_assert_eq(timer_create(CLOCK_MONOTONIC, &event, &timer), 0);
	cr_assert_eq(timer_settime(timer, 0, &often, NULL), 0);
	for (int i = 0; i < 20 || atomic_load(&signal_count) < 20; i++) {
		cr_assert_eq(tt_memory_publish(&memory, world.client, "x"), 0, "%s",
			     tidl_last_error());
		cr_assert_eq(tidl_unshare(world.client, "x"), 0, "%s", tidl_last_error());
	}
	cr_assert_eq(timer_delete(timer), 0);
	for (size_t i = 0; i < memory.bytes / TT_ELEMENT_BYTES;
	     i += TT_PAGE_BYTES / TT_ELEMENT_BYTES)
		cr_assert_eq(((uint32_t *)memory.data)[i], atomic_load(&signal_count));
	tt_memory_deinit(&memory);
	tt_world_deinit(&world);
}

static struct tt_memory *forked;
static pthread_t forker;
static atomic_int forker_id;
static atomic_uint child_status;

/* Exit status: 0 when all of the memory is private, or all of it shared. */
static int child_look(const struct tt_memory *memory)
{
	size_t private_count = 0;
	struct tdp_fault fault;
	struct tdc_maps maps;

	if (tdc_maps_load(&maps, &fault) < 0)
		return 2;
	for (size_t i = 0; i < memory->bytes / PIECE_BYTES; i++) {
		uintptr_t begin = (uintptr_t)memory->data + i * PIECE_BYTES;

		private_count += tdc_maps_refusal(&maps, begin, begin + PIECE_BYTES) ==
				 TIDL_COPY_REASON_NONE;
	}
	if (private_count != 0 && private_count != memory->bytes / PIECE_BYTES)
		return 1;
	return memory->data[memory->bytes / TT_ELEMENT_BYTES - 1] > 0 ? 0 : 3;
}

static void *fork_once(void *context)
{
	int status = -1;
	pid_t pid;

	(void)context;
	atomic_store(&forker_id, gettid());
	pid = fork();
	if (pid == 0)
		_exit(child_look(forked));
	(void)waitpid(pid, &status, 0);
	atomic_store(&child_status, (unsigned int)status);
	return NULL;
}

/* It waits for the move, or has forked and waits for its child. */
static bool forker_waits(void)
{
	char text[256] = "";
	const char *name_end;
	FILE *stat;

	(void)snprintf(text, sizeof(text), "/proc/self/task/%d/stat", atomic_load(&forker_id));
	stat = fopen(text, "re");
	if (stat == NULL)
		return false;
	text[fread(text, 1, sizeof(text) - 1, stat)] = '\0';
	(void)fclose(stat);
	name_end = strrchr(text, ')');
	return name_end != NULL && strncmp(name_end, ") S", 3) == 0;
}

static int fork_in_the_middle(enum tdc_move_step step, size_t piece)
{
	if (step != TDC_MOVE_THERE || piece != 1)
		return 0;
	cr_assert_eq(pthread_create(&forker, NULL, fork_once, NULL), 0);
	while (!forker_waits())
		(void)sched_yield();
	return 0;
}

TT_TEST(inplace_threads, a_fork_waits_for_the_move)
{
	struct tt_world world;
	struct tt_memory memory;

	tt_world_init(&world);
	tt_memory_init(&memory, 4 * PIECE_BYTES);
	forked = &memory;
	tdc_move_hook = fork_in_the_middle;
	cr_assert_eq(tt_memory_publish(&memory, world.client, "x"), 0, "%s", tidl_last_error());
	tdc_move_hook = NULL;
	cr_assert_eq(pthread_join(forker, NULL), 0);
	cr_expect_eq(atomic_load(&child_status), 0);
	cr_assert_eq(tidl_unshare(world.client, "x"), 0, "%s", tidl_last_error());
	tt_memory_expect_intact(&memory);
	tt_memory_deinit(&memory);
	tt_world_deinit(&world);
}

/* A thread that unshares while another one is at the same memory. */
static struct {
	struct tidl_client *client;
	pthread_t thread;
	atomic_int tid;
	atomic_bool is_done;
	int result;
} unsharer;

static void *unshare_once(void *context)
{
	(void)context;
	atomic_store(&unsharer.tid, (int)syscall(SYS_gettid));
	unsharer.result = tidl_unshare(unsharer.client, "x");
	atomic_store(&unsharer.is_done, true);
	return NULL;
}

/* Is it waiting for something? */
static bool unsharer_sleeps(void)
{
	char path[64];
	char line[256] = "";
	FILE *file;

	if (atomic_load(&unsharer.tid) == 0)
		return false;
	(void)snprintf(path, sizeof(path), "/proc/self/task/%d/stat", atomic_load(&unsharer.tid));
	file = fopen(path, "re");
	if (file == NULL)
		return false;
	(void)!fread(line, 1, sizeof(line) - 1, file);
	(void)fclose(file);
	/* "17 (name) S ..." */
	return strstr(line, ") S ") != NULL;
}

static int unshare_meanwhile(enum tdc_move_step step, size_t piece)
{
	(void)piece;
	if (step != TDC_MOVE_BACK || atomic_load(&unsharer.tid) != 0)
		return 0;
	(void)pthread_create(&unsharer.thread, NULL, unshare_once, NULL);
	while (!atomic_load(&unsharer.is_done) && !unsharer_sleeps())
		(void)sched_yield();
	return 0;
}

/* A dispatch of an event loop that happens to end it is no reason to refuse. */
TT_TEST(inplace_threads, unshare_waits_for_other_threads)
{
	struct tt_world world;
	struct tt_memory memory;

	tt_world_init(&world);
	tt_memory_init(&memory, 4 * TT_PAGE_BYTES);
	unsharer.client = world.client;
	cr_assert_eq(tt_memory_publish(&memory, world.client, "x"), 0, "%s", tidl_last_error());
	tdc_move_hook = unshare_meanwhile;
	cr_assert_eq(tidl_unshare(world.client, "x"), 0, "%s", tidl_last_error());
	tdc_move_hook = NULL;
	cr_assert_eq(pthread_join(unsharer.thread, NULL), 0);
	/* It is over by the time that it could begin. */
	cr_expect_eq(unsharer.result, TIDL_ERR_NOT_FOUND);
	cr_expect_eq(memory.foreign.deleted, 1);
	tt_memory_deinit(&memory);
	tt_world_deinit(&world);
}
