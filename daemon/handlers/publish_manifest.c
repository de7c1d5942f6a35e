/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of a PUBLISH that came as a manifest. The descriptor may be anything: it is asked for
 * its seals before all else, and only what can never change is read. What is not taken here is
 * closed by whoever received it.
 */
#include <stdlib.h>

#include "daemon/handlers/publish.h"
#include "daemon/manifest.h"
#include "daemon/server.h"
#include "proto/mem/sealed.h"

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

static int manifest_receive(struct tdd_draft *draft, struct tdp_manifest *ret_counts,
			    struct tdp_fault *fault)
{
	struct tdp_fdset *received = &draft->session->server->received_fds;
	size_t size_bytes;
	int r = tdp_sealed_verify(received->fds[0], TDP_MANIFEST_MAX_BYTES, &size_bytes, fault);

	if (r < 0)
		return manifest_refuse(fault);
	draft->manifest_bytes = malloc(size_bytes);
	if (!draft->manifest_bytes)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	r = tdp_sealed_read(received->fds[0], draft->manifest_bytes, size_bytes, 0, fault);
	if (r < 0)
		return manifest_refuse(fault);
	r = tdp_manifest_count(draft->manifest_bytes, size_bytes, ret_counts, fault);
	if (r == 0)
		r = tdd_draft_begin_rows(draft, ret_counts, fault);
	if (r < 0)
		return r;
	r = tdd_manifest_new(received->fds[0], size_bytes, ret_counts, &draft->manifest);
	if (r < 0)
		return tdp_fault_code(fault, r);
	(void)tdp_fdset_steal(received, 0);
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
	size_t position = draft->spec.tensor_count;

	if (row->kind == TDP_MANIFEST_SEGMENT)
		return tdd_draft_add_segment(draft, &row->segment, fault);
	if (row->kind == TDP_MANIFEST_EMPTY_MAPPING)
		return tdd_draft_add_empty_mapping(draft, &row->empty_mapping, row->raw_key, fault);
	if (position == 0)
		keep_first(draft, row);
	draft->manifest->row_offsets[position] = (uint32_t)row->offset_bytes;
	draft->manifest->row_offsets[position + 1] = (uint32_t)row->end_bytes;
	return tdd_draft_add_tensor(draft, &row->tensor, row->raw_key, fault);
}

int tdd_draft_take_manifest(struct tdd_draft *draft, struct tdp_fault *fault)
{
	struct tdp_manifest_reader reader;
	struct tdp_manifest_row row;
	struct tdp_manifest counts;
	int r = manifest_check_form(draft->publish, fault);

	if (r == 0)
		r = manifest_receive(draft, &counts, fault);
	if (r < 0)
		return r;
	tdp_manifest_reader_init(&reader, draft->manifest_bytes, draft->manifest->size_bytes);
	for (;;) {
		r = tdp_manifest_next(&reader, &row, fault);
		if (r < 0)
			return r;
		if (row.kind == TDP_MANIFEST_END)
			break;
		r = add_row(draft, &row, fault);
		if (r < 0)
			return r;
	}
	draft->spec.manifest = draft->manifest;
	return tdd_draft_end_rows(draft, fault);
}
