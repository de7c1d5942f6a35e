/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "daemon/deadline.h"
#include "daemon/limits.h"
#include "daemon/work.h"
#include "tests/support/leak.h"

struct thing {
	struct tdd_deadline deadline;
	int ended;
};

static uint64_t last_end_ms;
static int end_count;

static void thing_end(struct tdd_deadline *deadline)
{
	struct thing *thing = TDP_CONTAINER_OF(deadline, struct thing, deadline);

	thing->ended++;
	end_count++;
	cr_assert_geq(deadline->at_ms, last_end_ms, "ends come in order");
	last_end_ms = deadline->at_ms;
}

static void things_init(struct tdd_timeline *timeline, struct thing *things, size_t count)
{
	last_end_ms = 0;
	end_count = 0;
	for (size_t i = 0; i < count; i++)
		cr_assert_eq(tdd_deadline_init(&things[i].deadline, timeline, thing_end), 0);
}

TT_TEST(deadline, ends_come_in_order_and_once)
{
	static struct thing things[1000];
	struct tdd_timeline timeline = {0};

	things_init(&timeline, things, 1000);
	srandom(3);
	for (size_t i = 0; i < 1000; i++)
		tdd_deadline_set(&things[i].deadline, (uint64_t)random() % 500);
	for (uint64_t now_ms = 0; now_ms < 500; now_ms += 7) {
		tdd_timeline_expire(&timeline, now_ms);
		for (size_t i = 0; i < 1000; i++)
			cr_assert_eq(things[i].ended, things[i].deadline.at_ms <= now_ms);
		cr_assert_gt(tdd_timeline_next_ms(&timeline), now_ms);
	}
	tdd_timeline_expire(&timeline, 500);
	cr_assert_eq(end_count, 1000);
	cr_assert_eq(tdd_timeline_next_ms(&timeline), UINT64_MAX);
	for (size_t i = 0; i < 1000; i++)
		tdd_deadline_deinit(&things[i].deadline);
	tdd_timeline_deinit(&timeline);
}

/* Against what a search through all of them says. */
TT_TEST(deadline, set_moved_and_cleared_at_random)
{
	static struct thing things[64];
	struct tdd_timeline timeline = {0};

	things_init(&timeline, things, 64);
	srandom(5);
	for (int round = 0; round < 20000; round++) {
		struct tdd_deadline *deadline = &things[random() % 64].deadline;
		uint64_t next_ms = UINT64_MAX;

		if (random() % 3 == 0)
			tdd_deadline_clear(deadline);
		else
			tdd_deadline_set(deadline, (uint64_t)random() % 1000);
		for (size_t i = 0; i < 64; i++) {
			if (tdd_deadline_is_set(&things[i].deadline) &&
			    things[i].deadline.at_ms < next_ms)
				next_ms = things[i].deadline.at_ms;
		}
		cr_assert_eq(tdd_timeline_next_ms(&timeline), next_ms);
	}
	for (size_t i = 0; i < 64; i++)
		tdd_deadline_deinit(&things[i].deadline);
	cr_assert_eq(timeline.count, 0);
	tdd_timeline_deinit(&timeline);
}

TT_TEST(deadline, only_so_many_at_a_time)
{
	static struct thing things[10];
	struct tdd_timeline timeline = {0};

	things_init(&timeline, things, 10);
	for (size_t i = 0; i < 10; i++)
		tdd_deadline_set(&things[i].deadline, i);
	tdd_work_begin((uint64_t)4 * TDD_DROP_STEPS);
	tdd_timeline_expire(&timeline, 100);
	cr_expect_eq(end_count, 4);
	cr_expect_eq(tdd_timeline_next_ms(&timeline), 4, "it is over, and its turn comes");
	tdd_work_begin(TDD_WORK_UNLIMITED);
	tdd_timeline_expire(&timeline, 100);
	cr_expect_eq(end_count, 10);
	for (size_t i = 0; i < 10; i++)
		tdd_deadline_deinit(&things[i].deadline);
	tdd_timeline_deinit(&timeline);
}

TT_TEST(deadline, setting_never_needs_memory)
{
	enum { MANY = 5000 };
	struct thing *things = calloc(MANY, sizeof(*things));
	struct tdd_timeline timeline = {0};
	size_t capacity;

	things_init(&timeline, things, MANY);
	capacity = timeline.capacity;
	cr_assert_geq(capacity, MANY);
	for (size_t i = 0; i < MANY; i++)
		tdd_deadline_set(&things[i].deadline, MANY - i);
	cr_assert_eq(timeline.capacity, capacity);
	for (size_t i = 0; i < MANY; i++)
		tdd_deadline_deinit(&things[i].deadline);
	cr_assert_lt(timeline.capacity, 200, "and what is not needed is given back");
	tdd_timeline_deinit(&timeline);
	free(things);
}

TT_TEST(deadline, what_is_left_and_what_is_far_away)
{
	struct thing thing = {0};
	struct tdd_timeline timeline = {0};

	tdd_deadline_deinit(&thing.deadline);
	cr_expect_not(tdd_deadline_is_set(&thing.deadline));
	things_init(&timeline, &thing, 1);
	cr_expect_eq(tdd_deadline_left_ms(&thing.deadline, 0), 0);
	tdd_deadline_set(&thing.deadline, 100);
	cr_expect_eq(tdd_deadline_left_ms(&thing.deadline, 40), 60);
	cr_expect_eq(tdd_deadline_left_ms(&thing.deadline, 101), 0);
	cr_expect_eq(tdd_deadline_after(40, 60), 100);
	cr_expect_eq(tdd_deadline_after(40, UINT64_MAX), UINT64_MAX);
	tdd_deadline_set(&thing.deadline, UINT64_MAX);
	tdd_timeline_expire(&timeline, UINT64_MAX - 1);
	cr_expect_eq(thing.ended, 0);
	tdd_deadline_deinit(&thing.deadline);
	tdd_timeline_deinit(&timeline);
}
