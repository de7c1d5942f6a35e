/* SPDX-License-Identifier: Apache-2.0 */
/* What goes in comes out: every field of the messages of administration, and the largest ones. */
#include "tests/unit/proto/codec_expect.h"

static void expect_process(const struct tdp_process *got, const struct tdp_process *sent)
{
	EXPECT(uid);
	EXPECT(gid);
	EXPECT(pid);
	EXPECT_TEXT(name);
	EXPECT_TEXT(command);
	EXPECT_TEXT(cgroup);
	EXPECT(is_connected);
}

TT_TEST(codec_admin, remove_and_list)
{
	struct tdp_message sample = tt_message_sample(TDP_MESSAGE_REMOVE), message;
	tdp_auto_arena arena;
	tdp_auto_arena second;

	travel(&sample, &arena, &message);
	cr_assert_str_eq(message.remove.name, sample.remove.name);
	cr_assert(message.remove.has_owner && message.remove.owner_uid == 1000);
	sample = tt_message_sample(TDP_MESSAGE_LIST);
	travel(&sample, &second, &message);
	{
		const struct tdp_list *sent = &sample.list, *got = &message.list;

		EXPECT(any_owner);
		EXPECT(has_owner);
		EXPECT(owner_uid);
		EXPECT_TEXT(pattern);
		EXPECT(cursor);
	}
}

static void expect_entry(const struct tdp_list_entry *got, const struct tdp_list_entry *sent)
{
	EXPECT(owner_uid);
	EXPECT_TEXT(name);
	EXPECT(generation);
	EXPECT(access);
	EXPECT(retention);
	EXPECT(mode);
	EXPECT(is_bundle);
	EXPECT(tensor_count);
	expect_dtype(got->dtype, sent->dtype);
	EXPECT(ndim);
	for (uint32_t i = 0; i < sent->ndim; i++)
		EXPECT(shape[i]);
	EXPECT(tensor_bytes);
	EXPECT(segment_bytes);
	EXPECT(holder_count);
	EXPECT(age_ms);
	EXPECT(publisher_pid);
}

TT_TEST(codec_admin, listing)
{
	struct tdp_message sample = tt_message_sample(TDP_MESSAGE_LISTING), message;
	tdp_auto_arena arena;

	travel(&sample, &arena, &message);
	cr_assert_eq(message.listing.entry_count, sample.listing.entry_count);
	cr_assert_eq(message.listing.next_cursor, sample.listing.next_cursor);
	for (size_t i = 0; i < sample.listing.entry_count; i++)
		expect_entry(&message.listing.entries[i], &sample.listing.entries[i]);
}

TT_TEST(codec_admin, inspect)
{
	struct tdp_message sample = tt_message_sample(TDP_MESSAGE_INSPECT), message;
	const struct tdp_inspect *sent = &sample.inspect, *got = &message.inspect;
	tdp_auto_arena arena;

	travel(&sample, &arena, &message);
	EXPECT_TEXT(name);
	EXPECT(has_owner);
	EXPECT(owner_uid);
	EXPECT(generation);
	EXPECT(tensor_cursor);
	EXPECT(holder_cursor);
	EXPECT(segment_cursor);
}

static void expect_holders(const struct tdp_inspection *inspection,
			   const struct tdp_inspection *sample)
{
	cr_assert_eq(inspection->holder_count, sample->holder_count);
	for (size_t i = 0; i < sample->holder_count; i++) {
		const struct tdp_holder *sent = &sample->holders[i];
		const struct tdp_holder *got = &inspection->holders[i];

		EXPECT(kind);
		EXPECT(attach);
		EXPECT(age_ms);
		EXPECT(left_ms);
		expect_process(&got->process, &sent->process);
	}
}

TT_TEST(codec_admin, inspection)
{
	struct tdp_message sample = tt_message_sample(TDP_MESSAGE_INSPECTION), message;
	const struct tdp_inspection *sent = &sample.inspection, *got = &message.inspection;
	tdp_auto_arena arena;

	travel(&sample, &arena, &message);
	EXPECT(owner_uid);
	EXPECT_TEXT(name);
	EXPECT(generation);
	EXPECT(access);
	EXPECT(retention);
	EXPECT(path);
	EXPECT(mode);
	EXPECT(gid);
	EXPECT(age_ms);
	EXPECT(exposed_bytes);
	EXPECT_TEXT(metadata);
	expect_process(&got->publisher, &sent->publisher);
	expect_segments(got->segment_count, got->segments, sent->segment_count, sent->segments);
	expect_tensors(got->tensor_count, got->tensors, sent->tensor_count, sent->tensors);
	expect_holders(got, sent);
	EXPECT(next_tensor_cursor);
	EXPECT(next_holder_cursor);
	EXPECT(next_segment_cursor);
	EXPECT(is_bundle);
	EXPECT(all_tensor_count);
	EXPECT(all_segment_count);
	EXPECT(survives_restart);
	EXPECT(is_write_protected);
	EXPECT(is_same_uid_write_protected);
	EXPECT(kept_count);
	for (size_t i = 0; i < sent->kept_count; i++)
		EXPECT(kept_generations[i]);
	EXPECT(has_left);
	EXPECT(left_ms);
}

TT_TEST(codec_admin, the_largest_pages_fit_into_a_packet)
{
	static const enum tdp_message_kind kinds[] = {TDP_MESSAGE_LISTING, TDP_MESSAGE_INSPECTION,
						      TDP_MESSAGE_GRANTED};

	for (size_t i = 0; i < TDP_ARRAY_LENGTH(kinds); i++) {
		struct tdp_message sample = tt_message_largest(kinds[i]), message;
		tdp_auto_arena arena;

		travel(&sample, &arena, &message);
	}
}

TT_TEST(codec_admin, what_does_not_fit_is_refused_by_code)
{
	struct tdp_message sample = tt_message_largest(TDP_MESSAGE_LISTING);
	struct tdp_list_entry *entries = calloc(100, sizeof(*entries));
	struct tdp_fault fault;
	size_t size = 7;

	for (size_t i = 0; i < 100; i++)
		entries[i] = sample.listing.entries[0];
	sample.listing.entries = entries;
	sample.listing.entry_count = 100;
	cr_assert_eq(tdp_message_pack(&sample, packet, sizeof(packet), &size, &fault),
		     TIDL_ERR_LIMIT);
	cr_assert_not_null(strstr(fault.text, "LISTING"));
	cr_assert_eq(size, 7);
	free(entries);

	sample = tt_message_sample(TDP_MESSAGE_HELLO);
	cr_assert_eq(tdp_message_pack(&sample, packet, 20, &size, &fault), TIDL_ERR_LIMIT);
}

TT_TEST(codec_admin, what_needs_too_much_memory_is_refused_by_code)
{
	static const struct tdp_list_entry entry = {.name = "x"};
	struct tdp_message sample = {.kind = TDP_MESSAGE_LISTING};
	struct tdp_list_entry *entries = calloc(20000, sizeof(entry));
	struct tdp_fault fault;
	size_t size;

	for (size_t i = 0; i < 20000; i++)
		entries[i] = entry;
	sample.listing = (struct tdp_listing){.entry_count = 20000, .entries = entries};
	cr_assert_eq(tdp_message_pack(&sample, packet, sizeof(packet), &size, &fault),
		     TIDL_ERR_NO_MEMORY);
	free(entries);
}
