/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watches of writers, linked to the segment and to whoever watches. The watching process sleeps on
 * the segment's control page, not on its socket. So its answer is queued first and then the page's
 * waiters are woken, who look into their sockets: nothing else here ever maps a client's memory,
 * and of this page nothing is read.
 */
#include "daemon/writer_watch.h"

#include <inttypes.h>
#include <stdlib.h>

#include "daemon/lease.h"
#include "daemon/segment.h"
#include "proto/mem/control.h"

int tdd_writer_check(const struct tdd_segment *segment, const struct tdd_holder *holder,
		     struct tdp_fault *fault)
{
	const struct tdd_departure *last = &segment->last_departure;

	if (tdd_segment_other_writer(segment, holder))
		return 0;
	if (!last->has_happened)
		return tdp_fault_set(fault, TIDL_ERR_WRITER_GONE,
				     "nobody else can write the tensor yet");
	return tdp_fault_set(fault, TIDL_ERR_WRITER_GONE,
			     "nobody else can write the tensor any more; process %" PRId64
			     ", the last that could, has %s",
			     last->pid, last->is_death ? "ended" : "let go of it");
}

int tdd_writer_watch_park(struct tdd_holder *holder, const struct tdd_writer_watch_spec *spec,
			  struct tdp_fault *fault)
{
	struct tdd_segment *segment = spec->segment;
	struct tdd_writer_watch *watch;
	int r = segment->last_departure.has_happened ? tdd_writer_check(segment, holder, fault) : 0;

	if (r < 0)
		return r;
	watch = calloc(1, sizeof(*watch));
	if (!watch)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	watch->request_id = spec->request_id;
	watch->holder = holder;
	watch->segment = segment;
	watch->answer = spec->answer;
	watch->context = spec->context;
	r = tdd_charge_init(&watch->charge, &holder->account, TDD_QUOTA_WAITS, 1, fault);
	if (r < 0) {
		free(watch);
		return r;
	}
	DL_APPEND(segment->writer_watches, watch);
	DL_APPEND2(holder->writer_watches, watch, sibling_prev, sibling_next);
	return 0;
}

struct tdd_writer_watch *tdd_writer_watch_free(struct tdd_writer_watch *watch)
{
	if (!watch)
		return NULL;
	DL_DELETE(watch->segment->writer_watches, watch);
	DL_DELETE2(watch->holder->writer_watches, watch, sibling_prev, sibling_next);
	tdd_charge_deinit(&watch->charge);
	free(watch);
	return NULL;
}

void tdd_writer_wake(const struct tdd_segment *segment)
{
	tdp_control_wake_by_fd(segment->read_fd, segment->geometry.control_offset_bytes);
}

static void watch_end(struct tdd_writer_watch *watch, const struct tdp_fault *reason)
{
	struct tdd_writer_watch ended = *watch;

	tdd_writer_watch_free(watch);
	ended.answer(ended.context, ended.request_id, reason);
}

struct tdd_writer_watch *tdd_writer_watch_find(const struct tdd_holder *holder, uint64_t request_id)
{
	struct tdd_writer_watch *watch;

	DL_FOREACH2(holder->writer_watches, watch, sibling_next)
	{
		if (watch->request_id == request_id)
			return watch;
	}
	return NULL;
}

void tdd_writer_left(struct tdd_segment *segment, const struct tdd_holder *holder)
{
	bool is_death = holder->is_ending && !holder->said_goodbye;
	struct tdd_writer_watch *watch, *next;
	struct tdp_fault fault;
	bool is_somebody_told = false;

	segment->last_departure = (struct tdd_departure){
		.has_happened = true,
		.is_death = is_death,
		.pid = holder->process->pid,
	};
	DL_FOREACH_SAFE (segment->writer_watches, watch, next) {
		if (tdd_writer_check(segment, watch->holder, &fault) == 0) {
			/* Others can go on. But who died may have been in the middle of a step. */
			if (!is_death)
				continue;
			tdp_fault_set(&fault, TIDL_ERR_WRITER_GONE,
				      "process %" PRId64 ", which could write the tensor, has "
				      "ended; others can still write it",
				      holder->process->pid);
		}
		watch_end(watch, &fault);
		is_somebody_told = true;
	}
	if (is_somebody_told)
		tdd_writer_wake(segment);
}

void tdd_writer_watches_cancel(struct tdd_segment *segment, const struct tdd_holder *holder)
{
	struct tdd_writer_watch *watch, *next;
	struct tdp_fault fault;

	tdp_fault_code(&fault, TIDL_ERR_CANCELLED);
	DL_FOREACH_SAFE (segment->writer_watches, watch, next) {
		if (watch->holder == holder)
			watch_end(watch, &fault);
	}
}
