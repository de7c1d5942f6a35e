/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The segments of a grant, which may come in several packets. Each is checked, verified and mapped
 * as it comes, so that no more descriptors are open than one packet has. Knows no tensors.
 */
#include "client/lib/parts.h"

#include "client/lib/call.h"
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

/* What all of them have in common, and how far they got. */
struct collecting {
	struct tdc_origin *origin;
	uint64_t era;
	uint32_t owner_uid;
	size_t next_number;
	bool is_selection; /* not all segments are to come */
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

static int part_take_one(struct collecting *collecting, const struct part *part, size_t index,
			 struct tdp_fault *fault)
{
	struct tdc_origin *origin = collecting->origin;
	size_t number = part->number_count > 0 ? part->numbers[index] : collecting->next_number++;
	struct tdc_segment_spec spec = {
		.wire = &part->segments[index],
		.fd = part->fds[index],
		.era = collecting->era,
		.attach = origin->attach,
		.owner_uid = collecting->owner_uid,
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

static int part_take(struct collecting *collecting, const struct part *part,
		     struct tdp_fault *fault)
{
	if (part->number_count > 0)
		collecting->is_selection = true;
	for (size_t i = 0; i < part->count; i++) {
		int r = part_take_one(collecting, part, i, fault);

		if (r < 0)
			return r;
	}
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

/* One more packet of them. @cursor moves on. */
static int collect_more(struct collecting *collecting, uint64_t *cursor, struct tdp_fault *fault)
{
	struct tidl_client *client = collecting->origin->client;
	struct tdp_message request = {
		.kind = TDP_MESSAGE_GET_MORE,
		.get_more = {.cursor = *cursor},
	};
	tdc_auto_reply *reply = NULL;
	struct part part;
	int r = tdc_call(client, &request, TDC_ANSWER_DUE, TDP_MESSAGE_MORE, &reply, fault);

	if (r < 0)
		return r;
	if (reply->era != collecting->era)
		return tdp_fault_set(fault, TIDL_ERR_BROKER_GONE,
				     "the connection was replaced while a bundle was coming: get "
				     "it again");
	r = part_of_more(reply, &part, fault);
	if (r == 0)
		r = part_take(collecting, &part, fault);
	if (r == 0)
		*cursor = part.next_cursor;
	return r;
}

int tdc_parts_collect(struct tdc_origin *origin, struct tdc_reply *reply, struct tdp_fault *fault)
{
	struct collecting collecting = {
		.origin = origin,
		.era = reply->era,
		.owner_uid = reply->message.granted.segment_owner_uid,
	};
	struct part part;
	uint64_t cursor;
	int r = part_of_granted(reply, &part, fault);

	if (r == 0)
		r = part_take(&collecting, &part, fault);
	tdp_fdset_deinit(&reply->fds);
	if (r < 0)
		return r;
	cursor = part.next_cursor;
	while (cursor != 0) {
		r = collect_more(&collecting, &cursor, fault);
		if (r < 0)
			return r;
	}
	if (!collecting.is_selection && collecting.next_number != origin->segment_count)
		return part_refuse("a segment that did not come", fault);
	return 0;
}
