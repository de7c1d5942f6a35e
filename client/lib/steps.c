/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making steps: the control page of a segment, mapped late and on its own, and updates. Owned by
 * the segment. Does not wait; that is step_wait.c.
 */
#include "client/lib/steps.h"

#include <stdlib.h>

#include "client/lib/call.h"
#include "client/lib/client.h"
#include "client/lib/open.h"
#include "client/lib/tensor.h"
#include "include/tidl/pending.h"
#include "proto/mem/memfd.h"

/* The page must be one of the segment's and no part of its data, whatever the broker says. */
static int control_check(const struct tdp_segment *wire, struct tdp_fault *fault)
{
	uint64_t page_bytes = tdp_page_bytes();
	uint64_t begin = wire->control_offset_bytes;

	if (begin != 0 && begin % page_bytes == 0 && wire->size_bytes >= page_bytes &&
	    begin <= wire->size_bytes - page_bytes &&
	    (begin >= wire->data_offset_bytes + wire->data_size_bytes ||
	     begin + page_bytes <= wire->data_offset_bytes))
		return 0;
	return tdp_fault_set(fault, TIDL_ERR_SEGMENT_BAD,
			     "the broker announced a segment without a page for steps: check its "
			     "version");
}

/* NULL: the fault says why. */
static struct tdc_steps *steps_new(struct tidl_client *client, const struct tdc_lease *lease,
				   const struct tdc_segment *segment, struct tdp_fault *fault)
{
	tdc_auto_opened opened = TDC_OPENED_NONE;
	struct tdc_steps *steps;

	if (tdc_open(client, lease, segment, &opened, fault) < 0 ||
	    control_check(&opened.wire, fault) < 0)
		return NULL;
	steps = calloc(1, sizeof(*steps));
	if (steps == NULL) {
		(void)tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
		return NULL;
	}
	atomic_init(&steps->is_writable, opened.write_fd >= 0);
	if (tdp_control_map(opened.write_fd >= 0 ? opened.write_fd : opened.read_fd,
			    opened.wire.control_offset_bytes, opened.write_fd >= 0, &steps->control,
			    fault) < 0) {
		free(steps);
		return NULL;
	}
	return steps;
}

static struct tdc_steps *steps_find(struct tidl_client *client, const struct tdc_lease *lease,
				    struct tdc_segment *segment, struct tdp_fault *fault)
{
	struct tdc_steps *steps;
	struct tdc_steps *mine;

	tdc_client_lock(client);
	steps = segment->steps;
	tdc_client_unlock(client);
	if (steps != NULL)
		return steps;
	mine = steps_new(client, lease, segment, fault);
	if (mine == NULL)
		return NULL;
	tdc_client_lock(client);
	steps = segment->steps;
	if (steps == NULL)
		segment->steps = mine;
	tdc_client_unlock(client);
	if (steps == NULL)
		return mine;
	/* Another thread was faster. */
	(void)tdc_steps_free(mine);
	return steps;
}

struct tdc_steps *tdc_steps_find(const struct tidl_tensor *tensor, struct tdp_fault *fault)
{
	if (tensor->segment == NULL) {
		(void)tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT,
				    "a tensor without elements has no memory to count steps in: "
				    "use one with elements");
		return NULL;
	}
	return steps_find(tensor->origin->client, tensor->origin->lease, tensor->segment, fault);
}

int tdc_steps_prepare(struct tidl_client *client, struct tdc_segment *segment,
		      struct tdp_fault *fault)
{
	const struct tdc_lease lease = {
		.kind = TDC_LEASE_ALLOCATION, .id = segment->key.id, .era = segment->key.era};

	return steps_find(client, &lease, segment, fault) == NULL ? fault->code : 0;
}

struct tdc_steps *tdc_steps_free(struct tdc_steps *steps)
{
	if (steps == NULL)
		return NULL;
	/* First, since its end wakes the page's waiters. */
	tidl_pending_free(steps->watch);
	(void)tdp_control_unmap(steps->control);
	free(steps);
	return NULL;
}

/* What somebody who wants to make steps can do who has attached the tensor for reading. */
static const char *reader_advice(enum tidl_access access)
{
	switch (access) {
	case TIDL_ACCESS_LIVE:
		return "it is live, so wait for those of its producer";
	case TIDL_ACCESS_IMMUTABLE:
		return "it is immutable, so read it as it is";
	default:
		return "attach it for writing";
	}
}

static struct tdc_steps *steps_find_writable(const struct tidl_tensor *tensor,
					     struct tdp_fault *fault)
{
	struct tdc_steps *steps;

	if (tensor->segment != NULL && tensor->segment->attach != TIDL_ATTACH_WRITE) {
		(void)tdp_fault_set(fault, TIDL_ERR_READ_ONLY,
				    "this tensor was attached for reading, and only who can write "
				    "one makes steps: %s",
				    reader_advice(tidl_tensor_access(tensor)));
		return NULL;
	}
	steps = tdc_steps_find(tensor, fault);
	if (steps != NULL && !atomic_load(&steps->is_writable)) {
		(void)tdp_fault_set(fault, TIDL_ERR_READ_ONLY,
				    "the tensor is immutable by now, so it makes no steps");
		return NULL;
	}
	return steps;
}

static int update_busy(const char *who, struct tdp_fault *fault)
{
	return tdp_fault_set(fault, TIDL_ERR_BUSY,
			     "an update is open in %s: wait for its step, then begin", who);
}

/* An update was left open. By somebody who can still close it? */
static int update_ask_for_writer(const struct tidl_tensor *tensor, struct tdp_fault *fault)
{
	struct tdp_message request = {
		.kind = TDP_MESSAGE_WATCH_WRITER,
		.watch_writer = {.segment_id = tensor->segment->key.id},
	};
	tdc_auto_reply *reply = NULL;
	int r = tdc_call(tensor->origin->client, &request, TDC_ANSWER_DUE, TDP_MESSAGE_DONE, &reply,
			 fault);

	if (r == 0)
		return update_busy("another process that can write this tensor", fault);
	return r == TIDL_ERR_WRITER_GONE ? 0 : r;
}

int tdc_update_begin(const struct tidl_tensor *tensor, bool takes_over, struct tdp_fault *fault)
{
	struct tdc_steps *steps = steps_find_writable(tensor, fault);
	uint64_t none = 0;
	uint64_t word;

	if (steps == NULL)
		return fault->code;
	if (atomic_load(&steps->open_word) != 0)
		return update_busy("this process already", fault);
	if (!tdp_control_begin(steps->control, &word) && !takes_over) {
		int r = update_ask_for_writer(tensor, fault);

		if (r < 0)
			return r;
	}
	if (!atomic_compare_exchange_strong(&steps->open_word, &none, word))
		return update_busy("another thread of this process", fault);
	return 0;
}

int tdc_update_end(const struct tidl_tensor *tensor, uint64_t *ret_step, struct tdp_fault *fault)
{
	struct tdc_steps *steps = steps_find_writable(tensor, fault);
	uint64_t word;

	if (steps == NULL)
		return fault->code;
	word = atomic_exchange(&steps->open_word, 0);
	if (word == 0)
		return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT,
				     "no update is open in this process: begin one first");
	if (!tdp_control_end(steps->control, word))
		return tdp_fault_set(fault, TIDL_ERR_BUSY,
				     "another process has taken this update over: agree on who "
				     "writes");
	*ret_step = tdp_word_steps(word + 1);
	return 0;
}

int tdc_commit(const struct tidl_tensor *tensor, uint64_t *ret_step, struct tdp_fault *fault)
{
	struct tdc_steps *steps = steps_find_writable(tensor, fault);
	uint64_t word;

	if (steps == NULL)
		return fault->code;
	if (!tdp_control_commit(steps->control, &word))
		return update_busy("this process or another one", fault);
	*ret_step = tdp_word_steps(word);
	return 0;
}

int tdc_step(const struct tidl_tensor *tensor, uint64_t *ret_step, struct tdp_fault *fault)
{
	const struct tdc_steps *steps = tdc_steps_find(tensor, fault);

	if (steps == NULL)
		return fault->code;
	*ret_step = tdp_word_steps(tdp_control_load(steps->control));
	return 0;
}
