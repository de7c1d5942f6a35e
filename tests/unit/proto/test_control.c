/* SPDX-License-Identifier: Apache-2.0 */
/* The control page: steps are counted and waited for between maps and processes. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/fd.h"
#include "proto/mem/control.h"
#include "proto/mem/memfd.h"
#include "tests/support/leak.h"

/* Longer than any test: what ends it is the wake-up. */
enum { LONG_MS = 600 * 1000, STEPS = 100000 };

struct segment {
	int write_fd;
	int read_fd;
	struct tdp_memfd_geometry geometry;
};

static void segment_init(struct segment *segment)
{
	struct tdp_fault fault;

	cr_assert_eq(tdp_memfd_plan(4096, &segment->geometry, &fault), 0);
	cr_assert_eq(tdp_memfd_create("test", segment->geometry.size_bytes, &segment->write_fd,
				      &segment->read_fd, &fault),
		     0, "%s", fault.text);
}

static void segment_deinit(struct segment *segment)
{
	tdp_fd_close(segment->write_fd);
	tdp_fd_close(segment->read_fd);
}

static struct tdp_control *map(const struct segment *segment, bool is_writable)
{
	struct tdp_control *control = NULL;
	struct tdp_fault fault;

	cr_assert_eq(tdp_control_map(is_writable ? segment->write_fd : segment->read_fd,
				     segment->geometry.control_offset_bytes, is_writable, &control,
				     &fault),
		     0, "%s", fault.text);
	return control;
}

TT_TEST(control, begin_and_end_count_a_step)
{
	struct tdp_control control = {0};
	uint64_t word = 99;

	cr_assert(tdp_control_begin(&control, &word));
	cr_expect_eq(word, 1);
	cr_expect(tdp_word_is_open(word));
	cr_expect_eq(tdp_word_steps(word), 0);
	cr_expect_not(tdp_control_begin(&control, &word), "one is open");
	cr_expect_eq(word, 1);
	cr_expect_not(tdp_control_commit(&control, &word), "one is open");
	cr_expect_not(tdp_control_end(&control, 3), "another one");
	cr_expect(tdp_control_end(&control, 1));
	cr_expect_not(tdp_control_end(&control, 1), "once");
	cr_expect_eq(tdp_control_load(&control), 2);
	cr_expect_eq(tdp_word_steps(tdp_control_load(&control)), 1);
	cr_expect(tdp_control_commit(&control, &word));
	cr_expect_eq(word, 4);
}

TT_TEST(control, a_reader_notices_an_update)
{
	struct tdp_control control = {0};
	uint64_t before = tdp_control_load(&control);
	uint64_t word;

	cr_expect(tdp_control_is_unchanged(&control, before));
	cr_assert(tdp_control_begin(&control, &word));
	cr_expect_not(tdp_control_is_unchanged(&control, before));
	cr_assert(tdp_control_end(&control, word));
	cr_expect_not(tdp_control_is_unchanged(&control, before));
}

TT_TEST(control, the_low_half_wraps)
{
	struct tdp_control control = {.word = UINT32_MAX - 1};
	uint64_t word;

	cr_assert(tdp_control_begin(&control, &word));
	cr_assert(tdp_control_end(&control, word));
	cr_expect_eq(tdp_control_load(&control), 1ull << 32);
	cr_expect_eq(tdp_control_sleep(&control, UINT32_MAX - 1, LONG_MS), 0, "it changed");
	cr_expect_eq(tdp_control_sleep(&control, 1ull << 32, 1), -ETIMEDOUT);
	control.word = UINT64_MAX - 1;
	cr_assert(tdp_control_commit(&control, &word));
	cr_expect_eq(word, 0);
}

TT_TEST(control, maps_are_what_they_say)
{
	struct segment segment;
	struct tdp_control *writer, *reader, *refused;
	struct tdp_fault fault;

	segment_init(&segment);
	writer = map(&segment, true);
	reader = map(&segment, false);
	atomic_store(&writer->word, 8);
	cr_expect_eq(tdp_control_load(reader), 8);
	cr_expect_eq(mprotect(reader, tdp_page_bytes(), PROT_READ | PROT_WRITE), -1);
	cr_expect_lt(tdp_control_map(segment.read_fd, segment.geometry.control_offset_bytes, true,
				     &refused, &fault),
		     0);
	cr_expect_lt(tdp_control_map(-1, 0, false, &refused, &fault), 0);
	tdp_control_unmap(reader);
	tdp_control_unmap(writer);
	segment_deinit(&segment);
}

/* Steps another process through its own map, each time that the step here is even. */
static void answer_steps(const struct segment *segment, unsigned count)
{
	struct tdp_control *control = map(segment, true);
	uint64_t word;

	for (unsigned i = 0; i < count; i++) {
		while (tdp_word_steps(word = tdp_control_load(control)) % 2 == 0) {
			if (tdp_control_sleep(control, word, LONG_MS) == -ETIMEDOUT)
				_exit(2);
		}
		if (!tdp_control_commit(control, &word))
			_exit(3);
	}
	_exit(0);
}

static void await_steps(const struct tdp_control *control, uint64_t steps)
{
	uint64_t word;

	while (tdp_word_steps(word = tdp_control_load(control)) < steps)
		cr_assert_neq(tdp_control_sleep(control, word, LONG_MS), -ETIMEDOUT,
			      "a wake-up was lost at step %llu",
			      (unsigned long long)tdp_word_steps(word));
}

TT_TEST(control, two_processes_alternate, .timeout = 110)
{
	struct segment segment;
	struct tdp_control *writer, *reader;
	uint64_t word;
	pid_t child;
	int status;

	segment_init(&segment);
	writer = map(&segment, true);
	reader = map(&segment, false);
	child = fork();
	if (child == 0)
		answer_steps(&segment, STEPS / 2);
	for (uint64_t steps = 0; steps < STEPS; steps += 2) {
		cr_assert(tdp_control_commit(writer, &word));
		await_steps(reader, steps + 2);
	}
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_expect_eq(status, 0);
	tdp_control_unmap(reader);
	tdp_control_unmap(writer);
	segment_deinit(&segment);
}

/* ---- threads over one map, so that ThreadSanitizer sees the order ---- */

struct pair {
	struct tdp_control control;
	uint64_t payload[64];
	unsigned count;
};

static void *odd_party(void *argument)
{
	struct pair *pair = argument;
	uint64_t word;

	for (unsigned i = 0; i < pair->count; i++) {
		while (tdp_word_steps(word = tdp_control_load(&pair->control)) % 2 == 0)
			(void)(tdp_control_sleep(&pair->control, word, LONG_MS) == 0);
		for (size_t k = 0; k < TDP_ARRAY_LENGTH(pair->payload); k++)
			pair->payload[k]++;
		if (!tdp_control_commit(&pair->control, &word))
			return (void *)1;
	}
	return NULL;
}

TT_TEST(control, what_was_written_is_seen, .timeout = 110)
{
	static struct pair pair;
	pthread_t thread;
	void *result;
	uint64_t word;

	pair.count = STEPS / 2;
	cr_assert_eq(pthread_create(&thread, NULL, odd_party, &pair), 0);
	for (uint64_t steps = 0; steps < STEPS; steps += 2) {
		cr_assert(tdp_control_begin(&pair.control, &word));
		for (size_t k = 0; k < TDP_ARRAY_LENGTH(pair.payload); k++) {
			cr_assert_eq(pair.payload[k], steps);
			pair.payload[k]++;
		}
		cr_assert(tdp_control_end(&pair.control, word));
		await_steps(&pair.control, steps + 2);
	}
	cr_assert_eq(pthread_join(thread, &result), 0);
	cr_expect_null(result);
	for (size_t k = 0; k < TDP_ARRAY_LENGTH(pair.payload); k++)
		cr_expect_eq(pair.payload[k], STEPS);
}

/* ---- torn reads ---- */

enum { CELLS = 512, SNAPSHOTS = 20000 };

static void update_for_ever(const struct segment *segment)
{
	struct tdp_control *control = map(segment, true);
	_Atomic uint64_t *cells =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, segment->write_fd, 0);
	uint64_t word = 0;

	for (uint64_t value = 1;; value++) {
		if (!tdp_control_begin(control, &word))
			_exit(3);
		for (size_t i = 0; i < CELLS; i++)
			atomic_store_explicit(&cells[i], value, memory_order_relaxed);
		if (!tdp_control_end(control, word))
			_exit(4);
	}
}

static bool snapshot_is_torn(const uint64_t *snapshot)
{
	for (size_t i = 1; i < CELLS; i++) {
		if (snapshot[i] != snapshot[0])
			return true;
	}
	return false;
}

/* Snapshots whose word was the same before and after; the torn ones among them. */
static unsigned count_torn(const struct segment *segment, unsigned snapshot_count)
{
	struct tdp_control *control = map(segment, false);
	uint64_t *cells = mmap(NULL, 4096, PROT_READ, MAP_SHARED, segment->read_fd, 0);
	uint64_t snapshot[CELLS];
	unsigned torn_count = 0;

	while (snapshot_count > 0) {
		uint64_t word = tdp_control_load(control);

		if (tdp_word_is_open(word))
			continue;
		memcpy(snapshot, cells, sizeof(snapshot));
		if (!tdp_control_is_unchanged(control, word))
			continue;
		snapshot_count--;
		torn_count += snapshot_is_torn(snapshot);
	}
	(void)munmap(cells, 4096);
	tdp_control_unmap(control);
	return torn_count;
}

TT_TEST(control, no_snapshot_of_bracketed_updates_is_torn, .timeout = 110)
{
	struct segment segment;
	pid_t child;
	int status;

	segment_init(&segment);
	child = fork();
	if (child == 0)
		update_for_ever(&segment);
	cr_expect_eq(count_torn(&segment, SNAPSHOTS), 0);
	cr_assert_eq(kill(child, SIGKILL), 0);
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_expect(WIFSIGNALED(status), "it ended by itself with %d", status);
	segment_deinit(&segment);
}

/* ---- waking ---- */

struct sleeper {
	const struct tdp_control *control;
	int result;
};

static void *sleeper_main(void *argument)
{
	struct sleeper *sleeper = argument;

	sleeper->result = tdp_control_sleep(sleeper->control, 0, LONG_MS);
	return NULL;
}

/* The kernel's word that a thread sleeps is its return from the futex, so wake until all are back.
 */
TT_TEST(control, a_stranger_wakes_all_by_descriptor)
{
	enum { SLEEPERS = 3 };
	struct segment segment;
	struct sleeper sleepers[SLEEPERS];
	pthread_t threads[SLEEPERS];
	struct tdp_control *control;

	segment_init(&segment);
	control = map(&segment, false);
	for (int i = 0; i < SLEEPERS; i++) {
		sleepers[i] = (struct sleeper){.control = control, .result = 1};
		cr_assert_eq(pthread_create(&threads[i], NULL, sleeper_main, &sleepers[i]), 0);
	}
	for (int i = 0; i < SLEEPERS; i++) {
		while (pthread_tryjoin_np(threads[i], NULL) != 0)
			tdp_control_wake_by_fd(segment.read_fd,
					       segment.geometry.control_offset_bytes);
		cr_expect_eq(sleepers[i].result, 0);
	}
	tdp_control_wake_by_fd(-1, 0);
	tdp_control_unmap(control);
	segment_deinit(&segment);
}

static void on_signal(int number)
{
	(void)number;
}

TT_TEST(control, a_signal_ends_the_sleep_whatever_its_flags)
{
	static const int flags[] = {0, SA_RESTART};

	for (size_t i = 0; i < TDP_ARRAY_LENGTH(flags); i++) {
		struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags[i]};
		struct tdp_control control = {0};
		struct sleeper sleeper = {.control = &control, .result = 1};
		pthread_t thread;

		cr_assert_eq(sigaction(SIGUSR1, &action, NULL), 0);
		cr_assert_eq(pthread_create(&thread, NULL, sleeper_main, &sleeper), 0);
		while (pthread_tryjoin_np(thread, NULL) != 0)
			(void)pthread_kill(thread, SIGUSR1);
		cr_expect_eq(sleeper.result, -EINTR);
	}
}
