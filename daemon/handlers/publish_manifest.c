/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of a PUBLISH that came as a manifest. The descriptor may be anything: it is asked for
 * its seals before all else, and only what can never change is kept and read. What is not taken
 * here is closed by whoever received it.
 */
#include <stdlib.h>

#include "daemon/access.h"
#include "daemon/handlers/publish.h"
#include "daemon/limits.h"
#include "daemon/manifest.h"
#include "daemon/server.h"
#include "daemon/work.h"
#include "proto/mem/sealed.h"

/* Before anybody asks whether it takes too long. */
enum { BYTES_PER_READ = 128 << 10 };

/* What is no manifest breaks the protocol. */
static int manifest_refuse(struct tdp_fault *fault)
{
	struct tdp_fault reason = *fault;

	return tdp_fault_set(fault, TIDL_ERR_PROTOCOL, "%s", reason.text);
}

static int manifest_check_form(const struct tdp_publish *publish, struct tdp_fault *fault)
{
	if (publish->is_bundle && publish->segment_count == 0 && publish->tensor_count == 0 &&
	    publish->empty_mapping_count == 0)
		return 0;
	return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT,
			     "\"%s\" has a manifest and is no bundle, or has lists beside it: send "
			     "the lists in one place",
			     publish->name);
}

/* Before it is kept: closing what is no memory could hang. */
int tdd_manifest_arrive(struct tdd_session *session, struct tdp_fault *fault)
{
	struct tdp_fdset *received = &session->server->received_fds;
	size_t size_bytes;
	int r = tdp_sealed_verify(received->fds[0], TDP_MANIFEST_MAX_BYTES, &size_bytes, fault);

	if (r < 0)
		return manifest_refuse(fault);
	r = tdd_request_take_fd(session->request, received->fds[0],
				tdd_holder_uid_account(&session->holder), fault);
	if (r == 0)
		(void)tdp_fdset_steal(received, 0);
	return r;
}

/* Room for all of it, and none of it yet. */
static int manifest_make_room(struct tdd_draft *draft, struct tdp_fault *fault)
{
	int r = tdp_sealed_verify(draft->session->request->fd, TDP_MANIFEST_MAX_BYTES,
				  &draft->manifest_size_bytes, fault);

	if (r < 0)
		return manifest_refuse(fault);
	draft->read_bytes = 0;
	draft->manifest_bytes = malloc(draft->manifest_size_bytes);
	return draft->manifest_bytes ? 0 : tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
}

static int manifest_read(struct tdd_draft *draft, struct tdp_fault *fault)
{
	while (draft->read_bytes < draft->manifest_size_bytes) {
		size_t at = draft->read_bytes;
		size_t left = draft->manifest_size_bytes - at;
		size_t count = left < BYTES_PER_READ ? left : BYTES_PER_READ;
		int r = tdp_sealed_read(draft->session->request->fd, draft->manifest_bytes + at,
					count, at, fault);

		if (r < 0)
			return manifest_refuse(fault);
		draft->read_bytes += count;
		tdd_work_count(count / TDD_BYTES_PER_READ_STEP);
		if (tdd_work_is_over())
			return TDD_WORK_LEFT;
	}
	return 0;
}

static int manifest_begin_rows(struct tdd_draft *draft, struct tdp_fault *fault)
{
	struct tdd_request *request = draft->session->request;
	struct tdp_manifest counts;
	int r = tdp_manifest_count(draft->manifest_bytes, draft->manifest_size_bytes, &counts,
				   fault);

	if (r == 0)
		r = tdd_draft_begin_rows(draft, &counts, fault);
	if (r < 0)
		return r;
	r = tdd_manifest_new(request->fd, draft->manifest_size_bytes, &counts, &draft->manifest);
	if (r < 0)
		return tdp_fault_code(fault, r);
	(void)tdd_request_steal_fd(request);
	tdd_work_count(TDD_LOOK_STEPS *
		       (counts.segment_count + tdd_manifest_row_count(draft->manifest)));
	tdp_manifest_reader_init(&draft->reader, draft->manifest_bytes, draft->manifest_size_bytes);
	return 0;
}

/* The listing shows it, so it stays at hand. */
static void keep_first(struct tdd_draft *draft, const struct tdp_manifest_row *row)
{
	draft->first = *row;
	draft->first.tensor.key = draft->first.key;
	draft->first.tensor.shape = draft->first.shape;
	draft->first.tensor.strides = draft->first.strides;
	draft->spec.tensors = &draft->first.tensor;
}

static int add_row(struct tdd_draft *draft, const struct tdp_manifest_row *row,
		   struct tdp_fault *fault)
{
	size_t position = draft->spec.tensor_count + draft->empty_mapping_count;

	if (row->kind == TDP_MANIFEST_SEGMENT)
		return tdd_draft_add_segment(draft, &row->segment, fault);
	draft->manifest->row_offsets[position] = (uint32_t)row->offset_bytes;
	draft->manifest->row_offsets[position + 1] = (uint32_t)row->end_bytes;
	if (row->kind == TDP_MANIFEST_EMPTY_MAPPING)
		return tdd_draft_add_empty_mapping(draft, &row->empty_mapping, row->raw_key, fault);
	if (draft->spec.tensor_count == 0)
		keep_first(draft, row);
	return tdd_draft_add_tensor(draft, &row->tensor, row->raw_key, fault);
}

/* All segments come first and are marked as long as nobody else marks any, hence in one turn. */
static bool draft_may_pause(struct tdd_draft *draft, const struct tdp_manifest_row *row)
{
	if (row->kind == TDP_MANIFEST_SEGMENT || !tdd_work_is_over())
		return false;
	draft->has_paused = true;
	return true;
}

static int draft_add_rows(struct tdd_draft *draft, struct tdp_fault *fault)
{
	struct tdp_manifest_row row;

	for (;;) {
		int r = tdp_manifest_next(&draft->reader, &row, fault);

		if (r < 0)
			return r;
		if (row.kind == TDP_MANIFEST_END)
			break;
		r = add_row(draft, &row, fault);
		if (r < 0)
			return r;
		tdd_work_count((uint64_t)2 * TDD_ROW_STEPS);
		if (draft_may_pause(draft, &row))
			return TDD_WORK_LEFT;
	}
	draft->spec.manifest = draft->manifest;
	return tdd_draft_end_rows(draft, fault);
}

static int draft_compare_keys(struct tdd_draft *draft, struct tdp_fault *fault)
{
	int r;

	while ((r = tdd_draft_check_keys(draft, fault)) == TDD_WORK_LEFT) {
		if (!tdd_work_is_over())
			continue;
		draft->has_paused = true;
		break;
	}
	return r;
}

/* Others may have published the same memory meanwhile. */
static int draft_check_access_again(const struct tdd_draft *draft, struct tdp_fault *fault)
{
	for (size_t i = 0; i < draft->spec.segment_count; i++) {
		int r = tdd_access_check(draft->segments[i], draft->spec.access, draft->spec.name,
					 draft->publish->check_only, fault);

		if (r < 0)
			return r;
	}
	return 0;
}

/* On to the next stage, unless there is more to do in this one or something is wrong. */
static int draft_pass(struct tdd_draft *draft, enum tdd_draft_stage next, int r)
{
	if (r == 0)
		draft->stage = next;
	return r;
}

static int draft_begin(struct tdd_draft *draft, struct tdp_fault *fault)
{
	int r = manifest_check_form(draft->publish, fault);

	return r < 0 ? r : manifest_make_room(draft, fault);
}

static int draft_read(struct tdd_draft *draft, struct tdp_fault *fault)
{
	int r = manifest_read(draft, fault);

	return r != 0 ? r : manifest_begin_rows(draft, fault);
}

int tdd_draft_take_manifest(struct tdd_draft *draft, struct tdp_fault *fault)
{
	int r = 0;

	if (draft->stage == TDD_DRAFT_BEGIN)
		r = draft_pass(draft, TDD_DRAFT_READ, draft_begin(draft, fault));
	if (r == 0 && draft->stage == TDD_DRAFT_READ)
		r = draft_pass(draft, TDD_DRAFT_ROWS, draft_read(draft, fault));
	if (r == 0 && draft->stage == TDD_DRAFT_ROWS)
		r = draft_pass(draft, TDD_DRAFT_KEYS, draft_add_rows(draft, fault));
	if (r == 0)
		r = draft_compare_keys(draft, fault);
	if (r == 0 && draft->has_paused)
		r = draft_check_access_again(draft, fault);
	return r;
}
