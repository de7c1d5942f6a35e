/* SPDX-License-Identifier: Apache-2.0 */
/* Who is next, and who has had enough for now. */
#include <criterion/criterion.h>

#include "daemon/limits.h"
#include "daemon/line.h"
#include "daemon/work.h"

enum { UIDS = 3, EACH = 4 };

struct crowd {
	struct tdd_line line;
	struct tdd_queue queues[UIDS];
	struct tdd_place places[UIDS][EACH];
};

static void expect_next(struct crowd *crowd, int uid, int number)
{
	cr_expect_eq(tdd_line_next(&crowd->line), &crowd->places[uid][number], "not %d of %d",
		     number, uid);
}

Test(line, one_of_each_uid_in_turn)
{
	struct crowd crowd = {0};

	/* Many of the first, who came first. */
	for (int i = 0; i < EACH; i++)
		tdd_line_join(&crowd.line, &crowd.queues[0], TDD_LANE_MUCH, &crowd.places[0][i]);
	tdd_line_join(&crowd.line, &crowd.queues[1], TDD_LANE_MUCH, &crowd.places[1][0]);
	expect_next(&crowd, 0, 0);
	tdd_line_join(&crowd.line, &crowd.queues[2], TDD_LANE_MUCH, &crowd.places[2][0]);
	expect_next(&crowd, 1, 0);
	expect_next(&crowd, 0, 1);
	expect_next(&crowd, 2, 0);
	expect_next(&crowd, 0, 2);
	expect_next(&crowd, 0, 3);
	cr_expect(tdd_line_is_empty(&crowd.line));
	cr_expect_null(tdd_line_next(&crowd.line));
}

Test(line, those_who_want_little_pass_those_who_want_much)
{
	struct crowd crowd = {0};
	struct tdd_queue *queue = &crowd.queues[0];

	for (int i = 0; i < 3; i++)
		tdd_line_join(&crowd.line, queue, TDD_LANE_MUCH, &crowd.places[0][i]);
	tdd_line_join(&crowd.line, queue, TDD_LANE_LITTLE, &crowd.places[1][0]);
	tdd_line_join(&crowd.line, queue, TDD_LANE_LITTLE, &crowd.places[1][1]);
	tdd_line_join(&crowd.line, queue, TDD_LANE_END, &crowd.places[2][0]);
	expect_next(&crowd, 1, 0);
	expect_next(&crowd, 0, 0);
	expect_next(&crowd, 2, 0);
	expect_next(&crowd, 1, 1);
	expect_next(&crowd, 0, 1);
	expect_next(&crowd, 0, 2);
	cr_expect(tdd_line_is_empty(&crowd.line));
}

Test(line, whoever_goes_on_is_first_and_whoever_leaves_is_gone)
{
	struct crowd crowd = {0};
	struct tdd_queue *queue = &crowd.queues[0];

	for (int i = 0; i < 3; i++)
		tdd_line_join(&crowd.line, queue, TDD_LANE_MUCH, &crowd.places[0][i]);
	tdd_line_join(&crowd.line, queue, TDD_LANE_LITTLE, &crowd.places[0][2]);
	cr_expect_eq(crowd.places[0][2].lane, TDD_LANE_MUCH, "he is in line already");
	expect_next(&crowd, 0, 0);
	tdd_line_join_first(&crowd.line, queue, TDD_LANE_MUCH, &crowd.places[0][0]);
	expect_next(&crowd, 0, 0);
	tdd_line_leave(&crowd.line, &crowd.places[0][1]);
	tdd_line_leave(&crowd.line, &crowd.places[0][1]);
	cr_expect_not(tdd_place_is_waiting(&crowd.places[0][1]));
	expect_next(&crowd, 0, 2);
	cr_expect(tdd_line_is_empty(&crowd.line));
}

Test(line, debts_are_paid_back_turn_by_turn)
{
	struct tdd_debt debt = {0};
	struct tdd_ration ration = {.turn = 7, .steps = 100};

	cr_expect_not(tdd_debt_is_due(&debt, ration));
	tdd_debt_charge(&debt, ration, 99);
	cr_expect_not(tdd_debt_is_due(&debt, ration), "what a turn grants is free");
	tdd_debt_charge(&debt, ration, 251);
	cr_expect(tdd_debt_is_due(&debt, ration));
	ration.turn += 2;
	cr_expect(tdd_debt_is_due(&debt, ration));
	ration.turn++;
	cr_expect_not(tdd_debt_is_due(&debt, ration));
	cr_expect_eq(debt.owed_steps, 50);
	ration.turn = UINT64_MAX;
	cr_expect_not(tdd_debt_is_due(&debt, ration));
	cr_expect_eq(debt.owed_steps, 0);
}

Test(line, debts_have_a_limit)
{
	struct tdd_debt debt = {0};
	struct tdd_ration ration = {.turn = 1, .steps = 100};

	tdd_debt_charge(&debt, ration, UINT32_MAX);
	ration.turn += TDD_DEBT_TURNS - 1;
	cr_expect(tdd_debt_is_due(&debt, ration));
	ration.turn++;
	cr_expect_not(tdd_debt_is_due(&debt, ration));
}

Test(line, work_is_over_when_its_steps_are_done)
{
	tdd_work_begin(100);
	tdd_work_count(99);
	cr_expect_not(tdd_work_is_over());
	tdd_work_count(5);
	cr_expect(tdd_work_is_over());
	cr_expect_eq(tdd_work_done(), 104);
	tdd_work_begin(TDD_WORK_UNLIMITED);
	cr_expect_eq(tdd_work_done(), 0);
	tdd_work_count(UINT32_MAX);
	cr_expect_not(tdd_work_is_over());
}
