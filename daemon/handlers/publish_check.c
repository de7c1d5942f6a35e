/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a PUBLISH may be: name, options, rights, segments. Nothing is changed here. */
#include <inttypes.h>

#include "daemon/access.h"
#include "daemon/handlers/publish.h"
#include "daemon/lease.h"
#include "daemon/metadata.h"
#include "daemon/policy.h"
#include "daemon/registry.h"
#include "daemon/server.h"
#include "proto/names.h"

static int check_is_built(const struct tdp_publish *publish, struct tdp_fault *fault)
{
	const char *what = NULL;

	if (publish->has_unbuilt)
		what = "something that this publish asks for is";
	if (!what)
		return 0;
	return tdp_fault_set(fault, TIDL_ERR_UNSUPPORTED,
			     "%s not built in this version, so \"%s\" was not published", what,
			     publish->name);
}

static int check_rights(const struct tdd_session *session, const struct tdp_publish *publish,
			struct tdd_rights *ret_rights, struct tdp_fault *fault)
{
	const struct tdd_subject *subject = &session->holder.subject;
	uint32_t gid = publish->has_gid ? publish->gid : subject->gid;

	if (publish->mode & ~(uint32_t)TDD_MODE_MASK)
		return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT,
				     "mode %04o of \"%s\" has bits other than read and write: "
				     "choose from 0666",
				     publish->mode, publish->name);
	if (subject->uid != 0 && !tdd_subject_is_in_group(subject, gid))
		return tdp_fault_set(fault, TIDL_ERR_PERMISSION,
				     "you are not in group %" PRIu32
				     ", so \"%s\" cannot be published for it",
				     gid, publish->name);
	*ret_rights =
		(struct tdd_rights){.owner_uid = subject->uid, .gid = gid, .mode = publish->mode};
	return 0;
}

int tdd_draft_check_segment(const struct tdd_draft *draft, const struct tdp_segment *asked,
			    struct tdd_segment **ret_segment, struct tdp_fault *fault)
{
	const struct tdd_holder *holder = &draft->session->holder;
	struct tdd_segment *segment;
	int r;

	if (asked->kind != TDP_SEGMENT_MEMFD)
		return tdp_fault_set(
			fault, TIDL_ERR_UNSUPPORTED,
			"device memory is not built in this version, so \"%s\" was not "
			"published: copy it to the host",
			draft->spec.name);
	segment = tdd_segment_find(draft->session->server->registry.segments, asked->id);
	if (!segment || segment->creator_uid != holder->subject.uid ||
	    !tdd_holder_has_segment(holder, segment))
		return tdp_fault_set(fault, TIDL_ERR_PERMISSION,
				     "segment %" PRIu64 " is not this connection's to publish: "
				     "allocate it or attach it here, under its creator's uid, or "
				     "publish a copy",
				     asked->id);
	r = tdd_access_check(segment, draft->spec.access, draft->spec.name,
			     draft->publish->check_only, fault);
	if (r == 0)
		*ret_segment = segment;
	return r;
}

/* Who may read only because of wider mode bits should not get more than the tensors. */
static int check_exposure(struct tdd_draft *draft, struct tdp_fault *fault)
{
	uint64_t exposed_bytes = 0;
	uint64_t covered_bytes = 0;
	size_t position = 0;

	if (!draft->is_exposing)
		return 0;
	tdd_exposure_sort(&draft->exposure);
	for (size_t i = 0; i < draft->spec.segment_count; i++) {
		uint64_t data_bytes = draft->segments[i]->geometry.data_size_bytes;
		uint64_t bytes =
			tdd_exposure_covered_bytes(&draft->exposure, (uint32_t)i, &position);

		exposed_bytes += data_bytes;
		covered_bytes += bytes < data_bytes ? bytes : data_bytes;
	}
	if (covered_bytes == exposed_bytes)
		return 0;
	return tdp_fault_set(
		fault, TIDL_ERR_COPY_NEEDED,
		"mode %04o of \"%s\" would show %" PRIu64 " bytes to others, while the "
		"tensor has %" PRIu64 ": publish a copy, or ask to expose all",
		draft->publish->mode, draft->spec.name, exposed_bytes, draft->spec.tensor_bytes);
}

static int check_retention(const struct tdd_session *session, const struct tdp_publish *publish,
			   enum tidl_retention *ret_retention, struct tdp_fault *fault)
{
	if (publish->retention == TIDL_RETENTION_UNTIL_IDLE)
		return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT,
				     "retention \"until-idle\" of \"%s\" cannot be asked for: ask "
				     "for \"persist\"",
				     publish->name);
	if (publish->retention == TIDL_RETENTION_SECONDS && publish->ttl_ms == 0)
		return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT,
				     "\"%s\" was to live for some seconds, but not told how many: "
				     "give it a time above 0",
				     publish->name);
	if (publish->retention != TIDL_RETENTION_SECONDS && publish->ttl_ms != 0)
		return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT,
				     "a time to live was given for \"%s\", but another retention: "
				     "ask for retention in seconds, or leave the time out",
				     publish->name);
	if (publish->keep > TDP_KEEP_MAX)
		return tdp_fault_set(
			fault, TIDL_ERR_LIMIT,
			"\"%s\" was to keep %u generations and may keep %d: keep fewer, "
			"or publish under several names",
			publish->name, publish->keep, TDP_KEEP_MAX);
	if (publish->retention == TIDL_RETENTION_OWNER ||
	    publish->retention == TIDL_RETENTION_SECONDS)
		*ret_retention = publish->retention;
	else if (session->server->config.is_private)
		*ret_retention = TIDL_RETENTION_UNTIL_IDLE;
	else
		*ret_retention = TIDL_RETENTION_PERSIST;
	return 0;
}

static int check_all_but_rows(struct tdd_draft *draft, struct tdp_fault *fault)
{
	const struct tdp_publish *publish = draft->publish;
	struct tdd_publication_spec *spec = &draft->spec;
	int r = tdp_name_check(publish->name, fault);

	if (r == 0)
		r = check_is_built(publish, fault);
	if (r == 0)
		r = check_retention(draft->session, publish, &spec->retention, fault);
	if (r == 0)
		r = check_rights(draft->session, publish, &spec->rights, fault);
	if (r == 0)
		r = tdd_metadata_check(publish->metadata, fault);
	return r;
}

int tdd_draft_check(struct tdd_draft *draft, struct tdp_fault *fault)
{
	int r = 0;

	if (draft->stage == TDD_DRAFT_DONE)
		return 0;
	if (draft->stage == TDD_DRAFT_BEGIN)
		r = check_all_but_rows(draft, fault);
	if (r == 0)
		r = draft->publish->has_manifest ? tdd_draft_take_manifest(draft, fault)
						 : tdd_draft_take_rows(draft, fault);
	if (r == 0)
		r = check_exposure(draft, fault);
	if (r == 0)
		draft->stage = TDD_DRAFT_DONE;
	return r;
}
