/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of work. Part of the server. What work is, and when it is over, is said by those who do
 * it (work.c); nothing here looks at a clock.
 */
#include "daemon/turns.h"

#include "daemon/intake.h"
#include "daemon/limits.h"
#include "daemon/request.h"
#include "daemon/session.h"
#include "daemon/work.h"

void tdd_turns_init(struct tdd_turns *turns, bool is_private)
{
	/* Where there is one uid alone, its connections share among each other. */
	*turns = (struct tdd_turns){
		.turn = 1,
		.uid_steps = is_private ? UINT32_MAX : TDD_UID_TURN_STEPS,
	};
}

void tdd_turns_deinit(struct tdd_turns *turns)
{
	turns->spare = tdd_request_free(turns->spare);
}

static struct tdd_account *session_account(struct tdd_session *session)
{
	return &session->holder.account;
}

static struct tdd_account *session_uid(struct tdd_session *session)
{
	return tdd_holder_uid_account(&session->holder);
}

static struct tdd_ration turns_ration(const struct tdd_turns *turns, uint64_t steps)
{
	return (struct tdd_ration){.turn = turns->turn, .steps = steps};
}

void tdd_turns_charge(struct tdd_turns *turns, struct tdd_session *session, uint64_t steps)
{
	tdd_debt_charge(&session_account(session)->debt,
			turns_ration(turns, TDD_SESSION_TURN_STEPS), steps);
	tdd_debt_charge(&session_uid(session)->debt, turns_ration(turns, turns->uid_steps), steps);
}

static bool session_wants_much(const struct tdd_turns *turns, struct tdd_session *session)
{
	return session->request || tdd_debt_is_due(&session_account(session)->debt,
						   turns_ration(turns, TDD_SESSION_TURN_STEPS));
}

bool tdd_turns_must_wait(const struct tdd_turns *turns, struct tdd_session *session)
{
	return session_wants_much(turns, session) ||
	       tdd_debt_is_due(&session_uid(session)->debt, turns_ration(turns, turns->uid_steps));
}

void tdd_turns_wait(struct tdd_turns *turns, struct tdd_session *session)
{
	enum tdd_lane lane = session_wants_much(turns, session) ? TDD_LANE_MUCH : TDD_LANE_LITTLE;

	tdd_line_join(&turns->line, &session_uid(session)->queue, lane, &session->place);
}

/* Before the others of its uid. */
static void session_wait_first(struct tdd_turns *turns, struct tdd_session *session,
			       enum tdd_lane lane)
{
	tdd_line_join_first(&turns->line, &session_uid(session)->queue, lane, &session->place);
}

void tdd_turns_end(struct tdd_turns *turns, struct tdd_session *session)
{
	turns->ends.begun_count++;
	session_uid(session)->ends.begun_count++;
	tdd_line_leave(&turns->line, &session->place);
	tdd_line_join(&turns->line, &session_uid(session)->queue, TDD_LANE_END, &session->place);
}

void tdd_turns_leave(struct tdd_turns *turns, struct tdd_session *session)
{
	tdd_line_leave(&turns->line, &session->place);
	if (session->state != TDD_SESSION_CLOSING)
		return;
	turns->ends.done_count++;
	session_uid(session)->ends.done_count++;
}

bool tdd_turns_expect_quota(const struct tdd_turns *turns, const struct tdd_session *session,
			    bool is_broker)
{
	const struct tdd_ends *ends =
		is_broker ? &turns->ends : &session->holder.account.parent->ends;
	struct tdd_request *request = session->request;

	if (request->ends_awaited == 0)
		request->ends_awaited = ends->begun_count;
	return ends->done_count < request->ends_awaited;
}

/* Where somebody who has more to do goes on: before the others of his uid, who have not begun, so
 * that there is at most one who has; or behind them, if he would have to begin again. */
static void session_line_up(struct tdd_turns *turns, struct tdd_session *session)
{
	if (session->request->ends_awaited > 0 && !session->request->state)
		tdd_turns_wait(turns, session);
	else
		session_wait_first(turns, session, TDD_LANE_MUCH);
}

static uint64_t session_serve(struct tdd_turns *turns, struct tdd_session *session,
			      void (*end)(struct tdd_session *session))
{
	uint64_t steps;

	if (session->state != TDD_SESSION_CLOSING) {
		tdd_intake_go_on(session);
		if (session->request)
			session_line_up(turns, session);
		return tdd_work_done();
	}
	tdd_work_begin(TDD_SLICE_STEPS);
	if (!tdd_session_end_some(session)) {
		session_wait_first(turns, session, TDD_LANE_END);
		return tdd_work_done();
	}
	steps = tdd_work_done();
	end(session);
	return steps;
}

void tdd_turns_serve(struct tdd_turns *turns, void (*end)(struct tdd_session *session))
{
	uint64_t steps = 0;

	turns->is_serving = true;
	while (steps < TDD_LINE_STEPS) {
		struct tdd_place *place = tdd_line_next(&turns->line);

		if (!place)
			break;
		steps += session_serve(turns, TDP_CONTAINER_OF(place, struct tdd_session, place),
				       end);
	}
	turns->is_serving = false;
	tdd_work_begin(TDD_WORK_UNLIMITED);
	turns->turn++;
}
