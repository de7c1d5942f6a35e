/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for steps, asleep on the control page. A sleeper hears nothing of the socket, so the
 * broker is asked once, and without waiting, to tell when a writer goes: its answer comes with a
 * wake-up of the page. A wake-up can come just before the sleep begins, and the broker can be
 * killed, so sleeps are short and each end of one looks into the socket: what is told by the
 * wake-up at once is found then at the latest. Steps need no such luck: they change the word.
 */
#include "client/lib/step_wait.h"

#include <errno.h>
#include <sched.h>
#include <stdbool.h>

#include "client/lib/call.h"
#include "client/lib/client.h"
#include "client/lib/deadline.h"
#include "client/lib/pending.h"
#include "client/lib/steps.h"
#include "client/lib/tensor.h"
#include "proto/tensor/layout.h"

/* How long one sleep lasts at most: short enough for a person who waits, long enough to cost
 * nothing. The first one comes without a look into the socket, which costs as much as the wake-up
 * that most waits end with, and is shorter for that. */
enum { SLEEP_MS = 250, FIRST_SLEEP_MS = 10 };

/* One wait. */
struct step_wait {
	const struct tidl_tensor *tensor;
	struct tidl_client *client;
	struct tdc_steps *steps;
	int64_t deadline;
	int64_t ask_at;	     /* when to ask the interrupt handler although no signal was seen */
	uint64_t told_count; /* losses before this wait, which it is not to be told of */
	bool is_unwatched;   /* the broker cannot be asked; the deadline ends the wait */
	bool is_first;	     /* sleep; and the broker was asked before */
};

static int step_wait_init(struct step_wait *wait, const struct tidl_tensor *tensor,
			  int64_t timeout_ms, struct tdp_fault *fault)
{
	struct tdc_steps *steps = tdc_steps_find(tensor, fault);

	*wait = (struct step_wait){
		.tensor = tensor,
		.client = tensor->origin->client,
		.steps = steps,
		.deadline = tdc_deadline_after(timeout_ms),
		.ask_at = tdc_deadline_after(SLEEP_MS),
	};
	if (steps == NULL)
		return fault->code;
	tdc_client_lock(wait->client);
	wait->told_count = steps->told_count;
	wait->is_first = steps->watch != NULL;
	tdc_client_unlock(wait->client);
	return 0;
}

/* Without the broker nobody tells of a writer that goes: only a wait that ends by itself goes on.
 */
static int wait_unwatched(struct step_wait *wait, int code)
{
	wait->is_unwatched = true;
	return wait->deadline == TDC_DEADLINE_NEVER ? code : 0;
}

/* Can the broker be asked about this segment? Client locked. */
static int wait_check_connection(const struct step_wait *wait, struct tdp_fault *fault)
{
	if (wait->client->state != TDC_CLIENT_STATE_OPEN)
		return tdc_client_refuse(wait->client, fault);
	if (wait->client->era != wait->tensor->segment->key.era)
		return tdp_fault_set(fault, TIDL_ERR_RELEASED,
				     "the tensor came over another connection, before a fork() for "
				     "example, so that nobody tells when its writer goes: get it "
				     "again here, or wait with a time-out");
	return 0;
}

/* Ask, unless it is asked already. */
static int wait_watch(struct step_wait *wait, struct tdp_fault *fault)
{
	struct tdp_message request = {
		.kind = TDP_MESSAGE_WATCH_WRITER,
		.watch_writer = {.segment_id = wait->tensor->segment->key.id, .wait = true},
	};
	struct tdc_steps *steps = wait->steps;
	struct tidl_pending *watch = NULL;
	bool is_watched;
	int r;

	tdc_client_lock(wait->client);
	r = wait_check_connection(wait, fault);
	is_watched = steps->watch != NULL;
	tdc_client_unlock(wait->client);
	if (r == 0 && is_watched)
		return 0;
	if (r == 0)
		r = tdc_pending_begin(wait->client, &request, TDP_MESSAGE_DONE, &watch, fault);
	if (r < 0)
		return wait_unwatched(wait, r);
	tdc_client_lock(wait->client);
	tdc_pending_wakes(watch, steps->control);
	if (steps->watch == NULL) {
		steps->watch = watch;
		watch = NULL;
	}
	tdc_client_unlock(wait->client);
	/* Another thread was faster. */
	tidl_pending_free(watch);
	return 0;
}

/* What the broker has answered, if it has. A loss is kept for all who wait. */
static int wait_take_answer(struct step_wait *wait, struct tdp_fault *fault)
{
	struct tdc_steps *steps = wait->steps;
	struct tidl_pending *answered = NULL;
	int r = 0;

	tdc_client_lock(wait->client);
	if (steps->watch != NULL)
		r = tdc_pending_peek(steps->watch, fault);
	if (r < 0) {
		answered = steps->watch;
		steps->watch = NULL;
	}
	if (r == TIDL_ERR_WRITER_GONE) {
		steps->loss_count++;
		steps->loss = *fault;
	}
	if (steps->loss_count != wait->told_count) {
		*fault = steps->loss;
		r = fault->code;
	} else if (r == TIDL_ERR_CANCELLED) {
		r = 0; /* it went with an older connection */
	}
	tdc_client_unlock(wait->client);
	tidl_pending_free(answered);
	return r;
}

/* Is there a reason to wait no longer? */
static int wait_look(struct step_wait *wait, struct tdp_fault *fault)
{
	int r;

	if (!wait->is_first)
		tdc_call_look(wait->client);
	r = wait_take_answer(wait, fault);
	if (r < 0 && r != TIDL_ERR_WRITER_GONE)
		r = wait_unwatched(wait, r);
	if (r == 0 && !wait->is_unwatched)
		r = wait_watch(wait, fault);
	return r;
}

/* Signals may come between two sleeps, or while the word changes too fast to sleep at all. */
static int wait_check_signals(struct step_wait *wait, int sleep_result, struct tdp_fault *fault)
{
	if (sleep_result != -EINTR && tdc_now_ms() < wait->ask_at)
		return 0;
	wait->ask_at = tdc_deadline_after(SLEEP_MS);
	if (tdc_interrupt_is_asked(&wait->client->interrupt))
		return tdp_fault_code(fault, TIDL_ERR_INTERRUPTED);
	return 0;
}

static int wait_expired(uint64_t step, uint64_t word, struct tdp_fault *fault)
{
	return tdp_fault_set(fault, TIDL_ERR_TIMEOUT,
			     "step %llu was not reached in time, %llu %s complete%s: wait longer, "
			     "or check that the writer runs",
			     (unsigned long long)step, (unsigned long long)tdp_word_steps(word),
			     tdp_word_steps(word) == 1 ? "is" : "are",
			     tdp_word_is_open(word) ? " and an update is open" : "");
}

/* Sleep once while the word is @word. */
static int wait_sleep(struct step_wait *wait, uint64_t step, uint64_t word, struct tdp_fault *fault)
{
	int64_t sleep_ms = wait->is_first ? FIRST_SLEEP_MS : SLEEP_MS;

	wait->is_first = false;
	if (wait->deadline != TDC_DEADLINE_NEVER) {
		int64_t left_ms = wait->deadline - tdc_now_ms();

		if (left_ms <= 0)
			return wait_expired(step, word, fault);
		if (left_ms < sleep_ms)
			sleep_ms = left_ms;
	}
	return wait_check_signals(wait, tdp_control_sleep(wait->steps->control, word, sleep_ms),
				  fault);
}

/* The caller is told of the loss, so that the next one is not told of it again. */
static int wait_tell(const struct step_wait *wait, int code)
{
	if (code != TIDL_ERR_WRITER_GONE)
		return code;
	tdc_client_lock(wait->client);
	wait->steps->told_count = wait->steps->loss_count;
	tdc_client_unlock(wait->client);
	return code;
}

/* Until @step is complete; @ret_word is what the word said then. */
static int wait_until(struct step_wait *wait, uint64_t step, uint64_t *ret_word,
		      struct tdp_fault *fault)
{
	const struct tdp_control *control = wait->steps->control;
	int r = 0;

	for (;;) {
		uint64_t word = tdp_control_load(control);

		if (tdp_word_steps(word) >= step) {
			*ret_word = word;
			return 0;
		}
		/* The writer may have made the step and gone: what it did counts first. */
		if (r < 0)
			return wait_tell(wait, r);
		r = wait_look(wait, fault);
		if (r == 0)
			r = wait_sleep(wait, step, word, fault);
	}
}

static int wait_check_access(const struct tidl_tensor *tensor, struct tdp_fault *fault)
{
	if (atomic_load(&tensor->segment->access) != TIDL_ACCESS_IMMUTABLE)
		return 0;
	return tdp_fault_set(fault, TIDL_ERR_ACCESS,
			     "the tensor is immutable, so nobody makes steps: read it as it is");
}

int tdc_wait_step(const struct tidl_tensor *tensor, uint64_t step, int64_t timeout_ms,
		  uint64_t *ret_step, struct tdp_fault *fault)
{
	struct step_wait wait;
	uint64_t word;
	int r = step_wait_init(&wait, tensor, timeout_ms, fault);

	if (r < 0)
		return r;
	word = tdp_control_load(wait.steps->control);
	if (tdp_word_steps(word) < step) {
		r = wait_check_access(tensor, fault);
		if (r == 0)
			r = wait_until(&wait, step, &word, fault);
	}
	if (r == 0)
		*ret_step = tdp_word_steps(word);
	return r;
}

/* ---- snapshots ---- */

static int snapshot_retry(struct step_wait *wait, struct tdp_fault *fault)
{
	if (wait->deadline != TDC_DEADLINE_NEVER && tdc_now_ms() >= wait->deadline)
		return tdp_fault_set(fault, TIDL_ERR_TIMEOUT,
				     "the tensor was updated while it was copied, each time: copy "
				     "it between two steps, or wait longer");
	/* The writer may need this core. */
	(void)sched_yield();
	return wait_check_signals(wait, 0, fault);
}

int tdc_snapshot(const struct tidl_tensor *tensor, void *buffer, int64_t timeout_ms,
		 uint64_t *ret_step, struct tdp_fault *fault)
{
	const struct tdp_layout layout = {
		.dtype = tensor->dtype,
		.ndim = tensor->ndim,
		.shape = tensor->shape,
		.strides = tensor->strides,
		.flags = tensor->flags,
	};
	struct step_wait wait;
	int r = step_wait_init(&wait, tensor, timeout_ms, fault);

	while (r == 0) {
		uint64_t word = tdp_control_load(wait.steps->control);

		if (tdp_word_is_open(word)) {
			r = wait_until(&wait, tdp_word_steps(word) + 1, &word, fault);
			continue;
		}
		tdp_layout_gather(&layout, tensor->data, buffer);
		if (tdp_control_is_unchanged(wait.steps->control, word)) {
			*ret_step = tdp_word_steps(word);
			return 0;
		}
		r = snapshot_retry(&wait, fault);
	}
	return r;
}
