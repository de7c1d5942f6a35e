/* SPDX-License-Identifier: Apache-2.0 */
/* What goes in comes out: every field of the messages about waiting, pins and events. */
#include "tests/support/bytes.h"
#include "tests/unit/proto/codec_expect.h"

TT_TEST(codec_events, pin)
{
	struct tdp_message sample = tt_message_sample(TDP_MESSAGE_PIN), message;
	const struct tdp_pin *sent = &sample.pin, *got = &message.pin;
	tdp_auto_arena arena;

	travel(&sample, &arena, &message);
	EXPECT_TEXT(name);
	EXPECT(has_owner);
	EXPECT(owner_uid);
	EXPECT(generation);
}

TT_TEST(codec_events, wait)
{
	struct tdp_message sample = tt_message_sample(TDP_MESSAGE_WAIT), message;
	const struct tdp_wait *sent = &sample.wait, *got = &message.wait;
	tdp_auto_arena arena;

	travel(&sample, &arena, &message);
	EXPECT_TEXT(name);
	EXPECT(has_owner);
	EXPECT(owner_uid);
	EXPECT(newer_than);
	EXPECT(released);
	EXPECT(generation);
}

TT_TEST(codec_events, waited)
{
	struct tdp_message sample = tt_message_sample(TDP_MESSAGE_WAITED), message;
	const struct tdp_waited *sent = &sample.waited, *got = &message.waited;
	tdp_auto_arena arena;

	travel(&sample, &arena, &message);
	EXPECT(generation);
	EXPECT(owner_uid);
}

TT_TEST(codec_events, watch)
{
	struct tdp_message sample = tt_message_sample(TDP_MESSAGE_WATCH), message;
	const struct tdp_watch *sent = &sample.watch, *got = &message.watch;
	tdp_auto_arena arena;
	tdp_auto_arena second;

	travel(&sample, &arena, &message);
	EXPECT_TEXT(pattern);
	EXPECT(any_owner);
	EXPECT(has_owner);
	EXPECT(owner_uid);
	EXPECT(kinds);
	sample.watch.kinds = 0;
	travel(&sample, &second, &message);
	cr_assert_eq(message.watch.kinds, 0, "none is not the same as absent");
}

TT_TEST(codec_events, watch_means_all_kinds_where_none_are_named)
{
	static struct tt_bytes body, envelope;
	struct tdp_message message;
	struct tdp_fault fault;
	tdp_auto_arena arena;

	tt_bytes_text(&body, 1, "**");
	tt_bytes_envelope(&envelope, 5, 64, &body);
	tdp_arena_init(&arena, TDP_UNPACK_MAX_BYTES);
	cr_assert_eq(tdp_message_unpack(&arena, envelope.bytes, envelope.size, &message, &fault),
		     0);
	cr_assert_eq(message.watch.kinds, TDP_EVENT_KINDS_ALL);
	for (int kind = TDP_EVENT_PUBLISHED; kind < TDP_EVENT_KIND_COUNT; kind++)
		cr_assert(message.watch.kinds & 1u << kind);
}

TT_TEST(codec_events, watching_and_unwatch)
{
	struct tdp_message sample = tt_message_sample(TDP_MESSAGE_WATCHING), message;
	tdp_auto_arena arena;
	tdp_auto_arena second;

	travel(&sample, &arena, &message);
	cr_assert_eq(message.watching.watch_id, sample.watching.watch_id);
	sample = tt_message_sample(TDP_MESSAGE_UNWATCH);
	travel(&sample, &second, &message);
	cr_assert_eq(message.unwatch.watch_id, sample.unwatch.watch_id);
}

static void expect_event(const struct tdp_event *event)
{
	struct tdp_message sample = {.kind = TDP_MESSAGE_EVENT, .event = *event}, message;
	const struct tdp_event *sent = event, *got = &message.event;
	tdp_auto_arena arena;

	travel(&sample, &arena, &message);
	EXPECT(watch_id);
	EXPECT(kind);
	EXPECT(owner_uid);
	if (sent->name != NULL)
		EXPECT_TEXT(name);
	else
		cr_assert_str_eq(got->name, "");
	EXPECT(generation);
	EXPECT(has_holder);
	EXPECT(holder_uid);
	EXPECT(holder_pid);
	if (sent->has_holder)
		EXPECT(attach);
}

TT_TEST(codec_events, events_of_each_shape)
{
	struct tdp_message sample = tt_message_sample(TDP_MESSAGE_EVENT);

	expect_event(&sample.event);
	expect_event(&(struct tdp_event){
		.watch_id = 1, .kind = TDP_EVENT_REMOVED, .name = "x", .generation = 3});
	expect_event(&(struct tdp_event){.watch_id = 1, .kind = TDP_EVENT_LOST});
}

TT_TEST(codec_events, damaged_events_are_refused)
{
	struct tdp_message sample = tt_message_sample(TDP_MESSAGE_EVENT), message;

	sample.event.kind = TDP_EVENT_KIND_COUNT;
	cr_assert_eq(unpack(packet, pack(&sample), &message), TIDL_ERR_PROTOCOL);
	sample.event.kind = TDP_EVENT_PUBLISHED;
	sample.event.name = "a\nb";
	cr_assert_eq(unpack(packet, pack(&sample), &message), TIDL_ERR_PROTOCOL);
	sample.event.name = "a";
	sample.event.attach = 4;
	cr_assert_eq(unpack(packet, pack(&sample), &message), TIDL_ERR_PROTOCOL);
}

TT_TEST(codec_events, goodbye)
{
	struct tdp_message sample = tt_message_sample(TDP_MESSAGE_GOODBYE), message;
	tdp_auto_arena arena;

	travel(&sample, &arena, &message);
}
