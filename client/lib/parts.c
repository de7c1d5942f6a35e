/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The segments of a grant, which may come in several packets. Each is checked, verified and mapped
 * as it comes, so that no more descriptors are open than one packet has. Knows no tensors, and does
 * not ask for more itself.
 */
#include "client/lib/parts.h"

#include "client/lib/client.h"

/* What one packet brought. */
struct part {
	size_t count;
	const struct tdp_segment *segments;
	size_t number_count; /* 0: they go on where the last part ended */
	const uint32_t *numbers;
	const int *fds;
	uint64_t next_cursor;
};

static int part_refuse(const char *why, struct tdp_fault *fault)
{
	return tdp_fault_set(fault, TIDL_ERR_PROTOCOL,
			     "the broker granted something impossible (%s): check its version",
			     why);
}

/* The segment, mapped now or before. */
static int segment_attach(struct tidl_client *client, const struct tdc_segment_spec *spec,
			  struct tdc_segment **ret_segment, struct tdp_fault *fault)
{
	struct tdc_segment *segment = tdc_segment_find(client, spec->wire, spec->era, spec->attach);
	int r;

	if (segment != NULL && atomic_load(&segment->access) == (int)spec->access) {
		*ret_segment = segment;
		return 0;
	}
	/* What was mapped before it was known to be published is verified now. */
	r = tdc_segment_verify(spec->wire, spec->fd, spec->access, fault);
	if (segment == NULL)
		return r < 0 ? r : tdc_segment_map(client, spec, ret_segment, fault);
	if (r < 0) {
		(void)tdc_segment_unref(client, segment);
		return r;
	}
	atomic_store(&segment->access, (int)spec->access);
	*ret_segment = segment;
	return 0;
}

static int part_take_one(struct tdc_parts *parts, const struct part *part, size_t index,
			 struct tdp_fault *fault)
{
	struct tdc_origin *origin = parts->origin;
	size_t number = part->number_count > 0 ? part->numbers[index] : parts->next_number++;
	struct tdc_segment_spec spec = {
		.wire = &part->segments[index],
		.fd = part->fds[index],
		.era = parts->era,
		.attach = origin->attach,
		.owner_uid = parts->owner_uid,
		.access = origin->access,
	};
	int r;

	if (number >= origin->segment_count || origin->segments[number] != NULL)
		return part_refuse("a segment that no tensor lies in", fault);
	r = tdc_segment_check(spec.wire, fault);
	if (r < 0)
		return r;
	return segment_attach(origin->client, &spec, &origin->segments[number], fault);
}

static int part_take(struct tdc_parts *parts, const struct part *part, struct tdp_fault *fault)
{
	if (part->number_count > 0)
		parts->is_selection = true;
	for (size_t i = 0; i < part->count; i++) {
		int r = part_take_one(parts, part, i, fault);

		if (r < 0)
			return r;
	}
	parts->cursor = part->next_cursor;
	return 0;
}

static int part_of_granted(const struct tdc_reply *reply, struct part *ret_part,
			   struct tdp_fault *fault)
{
	const struct tdp_granted *granted = &reply->message.granted;
	size_t before = granted->has_manifest ? 1 : 0;

	if (reply->fds.count != before + granted->segment_count)
		return part_refuse("descriptors that are not one for each segment", fault);
	*ret_part = (struct part){
		.count = granted->segment_count,
		.segments = granted->segments,
		.number_count = granted->segment_number_count,
		.numbers = granted->segment_numbers,
		.fds = reply->fds.fds + before,
		.next_cursor = granted->next_cursor,
	};
	return 0;
}

static int part_of_more(const struct tdc_reply *reply, struct part *ret_part,
			struct tdp_fault *fault)
{
	const struct tdp_more *more = &reply->message.more;

	if (reply->fds.count != more->segment_count || more->segment_count == 0)
		return part_refuse("descriptors that are not one for each segment", fault);
	*ret_part = (struct part){
		.count = more->segment_count,
		.segments = more->segments,
		.number_count = more->segment_number_count,
		.numbers = more->segment_numbers,
		.fds = reply->fds.fds,
		.next_cursor = more->next_cursor,
	};
	return 0;
}

int tdc_parts_begin(struct tdc_parts *parts, struct tdc_origin *origin, struct tdc_reply *granted,
		    struct tdp_fault *fault)
{
	struct part part;
	int r;

	*parts = (struct tdc_parts){
		.origin = origin,
		.era = granted->era,
		.owner_uid = granted->message.granted.segment_owner_uid,
	};
	r = part_of_granted(granted, &part, fault);
	if (r == 0)
		r = part_take(parts, &part, fault);
	tdp_fdset_deinit(&granted->fds);
	return r;
}

struct tdp_message tdc_parts_request(const struct tdc_parts *parts)
{
	return (struct tdp_message){
		.kind = TDP_MESSAGE_GET_MORE,
		.get_more = {.cursor = parts->cursor},
	};
}

int tdc_parts_more(struct tdc_parts *parts, struct tdc_reply *more, struct tdp_fault *fault)
{
	struct part part;
	int r;

	if (more->era != parts->era)
		return tdp_fault_set(fault, TIDL_ERR_BROKER_GONE,
				     "the connection was replaced while a bundle was coming: get "
				     "it again");
	r = part_of_more(more, &part, fault);
	if (r == 0)
		r = part_take(parts, &part, fault);
	tdp_fdset_deinit(&more->fds);
	return r;
}

int tdc_parts_finish(const struct tdc_parts *parts, struct tdp_fault *fault)
{
	if (!parts->is_selection && parts->next_number != parts->origin->segment_count)
		return part_refuse("a segment that did not come", fault);
	return 0;
}
