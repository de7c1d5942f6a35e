/* SPDX-License-Identifier: Apache-2.0 */
/* An inspection for people: `key: value` lines, then tables, then sentences on protection. */
#include "client/ctl/inspect.h"

#include "client/ctl/out_table.h"
#include "client/ctl/text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { TABLE_INDENT = 2 };

#define TABLE_NEW(columns) ctl_table_new(columns, sizeof(columns) / sizeof((columns)[0]))

static const struct ctl_column tensor_columns[] = {
	{.title = "KEY"},
	{.title = "DTYPE"},
	{.title = "SHAPE"},
	{.title = "STRIDES"},
	{.title = "BYTES", .is_number = true},
	{.title = "OFFSET", .is_number = true},
	{.title = "SEGMENT", .is_number = true},
};

static const struct ctl_column segment_columns[] = {
	{.title = "ID", .is_number = true},
	{.title = "BYTES", .is_number = true},
	{.title = "HUGE", .is_number = true},
	{.title = "INODE", .is_number = true},
	{.title = "STEP"},
	{.title = "SEALS"},
};

static const struct ctl_column holder_columns[] = {
	{.title = "KIND"},
	{.title = "ATTACH"},
	{.title = "PID", .is_number = true},
	{.title = "UID", .is_number = true},
	{.title = "NAME"},
	{.title = "COMMAND"},
	{.title = "AGE", .is_number = true},
};

__attribute__((format(printf, 2, 3))) static void line_print(const char *key, const char *format,
							     ...)
{
	char *text = NULL;
	char *escaped;
	va_list arguments;
	int length;

	va_start(arguments, format);
	length = vasprintf(&text, format, arguments);
	va_end(arguments);
	ctl_text_checked(length < 0 ? NULL : text);
	escaped = ctl_text_escape(text);
	printf("%s: %s\n", key, escaped);
	free(escaped);
	free(text);
}

/* "uid 1000 (alice)", or the number alone where it has no name. */
static char *user_describe(uint32_t uid)
{
	char user[CTL_WORD_MAX];

	return ctl_text_user(uid, user) ? ctl_text_format("uid %" PRIu32 " (%s)", uid, user)
					: ctl_text_format("uid %" PRIu32, uid);
}

static void publisher_print(const struct tidl_process *publisher)
{
	char *user = user_describe(publisher->uid);

	line_print("publisher", "pid %" PRId64 ", %s, %s, %s", publisher->pid, user,
		   *publisher->name ? publisher->name : "without a name",
		   publisher->is_connected ? "connected" : "no longer connected");
	free(user);
	line_print("command", "%s", *publisher->command ? publisher->command : "-");
	if (*publisher->cgroup)
		line_print("cgroup", "%s", publisher->cgroup);
}

/* Generations before this one that can still be had by their number. */
static void kept_print(const struct tidl_inspect_info *info)
{
	char *text = NULL;
	size_t text_bytes = 0;
	FILE *out;

	if (info->kept_count == 0)
		return;
	out = ctl_text_checked(open_memstream(&text, &text_bytes));
	for (size_t i = 0; i < info->kept_count; i++)
		fprintf(out, "%s%" PRIu64, i > 0 ? " " : "", info->kept_generations[i]);
	fclose(out);
	ctl_text_checked(text);
	line_print("kept generations", "%s", text);
	free(text);
}

static void info_print(const struct tidl_inspect_info *info)
{
	char word[CTL_WORD_MAX];
	char *owner = user_describe(info->owner_uid);

	line_print("name", "%s", info->name);
	line_print("owner", "%s", owner);
	free(owner);
	publisher_print(&info->publisher);
	line_print("generation", "%" PRIu64, info->generation);
	line_print("access", "%s", tidl_access_name(info->access));
	line_print("retention", "%s", tidl_retention_name(info->retention));
	line_print("mode", "%s", ctl_text_mode(info->mode, word));
	line_print("group", "%" PRIu32, info->group);
	line_print("age", "%s", ctl_text_age(info->age_ms, word));
	if (info->left_ms >= 0)
		line_print("ends in", "%s", ctl_text_age((uint64_t)info->left_ms, word));
	kept_print(info);
	if (info->is_bundle)
		line_print("bundle", "tensors: %zu, segments: %zu", info->tensor_count,
			   info->segment_count);
	line_print("path", "%s", tidl_path_name(info->path));
	line_print("copied", "%s", info->path == TIDL_PATH_COPIED ? "yes" : "no");
	line_print("exposed bytes", "%" PRIu64, info->exposed_bytes);
	line_print("survives restart", "%s", info->survives_restart ? "yes" : "no");
	line_print("metadata", "%s", info->metadata ? info->metadata : "none");
}

static void tensor_add(struct ctl_table *table, const struct tidl_inspection *inspection,
		       const struct tidl_tensor_info *tensor)
{
	char dtype[CTL_WORD_MAX];
	char *shape = ctl_text_tuple(tensor->shape, tensor->ndim);
	char *strides = ctl_text_tuple(tensor->strides, tensor->ndim);
	const struct tidl_segment_info *segment = NULL;

	if (tensor->segment_index >= 0)
		segment = tidl_inspection_segment(inspection, (size_t)tensor->segment_index);
	ctl_table_add(table, "%s", *tensor->key ? tensor->key : "-");
	ctl_table_add(table, "%s", tidl_dtype_name(tensor->dtype, dtype, sizeof(dtype)));
	ctl_table_add(table, "%s", shape);
	ctl_table_add(table, "%s", strides);
	ctl_table_add(table, "%" PRIu64, tensor->nbytes);
	ctl_table_add(table, "%" PRIu64, tensor->byte_offset);
	if (segment)
		ctl_table_add(table, "%" PRIu64, segment->id);
	else
		ctl_table_add(table, "-");
	free(shape);
	free(strides);
}

static void tensors_print(const struct tidl_inspection *inspection, size_t count)
{
	struct ctl_table *table;

	if (count == 0) {
		puts("tensors: none");
		return;
	}
	table = TABLE_NEW(tensor_columns);
	for (size_t i = 0; i < count; i++)
		tensor_add(table, inspection, tidl_inspection_tensor(inspection, i));
	puts("tensors:");
	ctl_table_print(table, TABLE_INDENT, stdout);
	ctl_table_free(table);
}

static char *seals_to_words(uint32_t seals)
{
	char buffer[CTL_WORD_MAX];
	char *text = NULL;
	size_t text_bytes = 0;
	const char *word;
	const char *gap = "";
	FILE *out = ctl_text_checked(open_memstream(&text, &text_bytes));

	if (seals == 0)
		fputs("none", out);
	while ((word = ctl_text_next_seal(&seals, buffer))) {
		fprintf(out, "%s%s", gap, word);
		gap = " ";
	}
	fclose(out);
	return ctl_text_checked(text);
}

static void segments_print(const struct tidl_inspection *inspection, size_t count)
{
	struct ctl_table *table;

	if (count == 0) {
		puts("segments: none");
		return;
	}
	table = TABLE_NEW(segment_columns);
	for (size_t i = 0; i < count; i++) {
		const struct tidl_segment_info *segment = tidl_inspection_segment(inspection, i);
		char *seals = seals_to_words(segment->seals);

		ctl_table_add(table, "%" PRIu64, segment->id);
		ctl_table_add(table, "%" PRIu64, segment->size_bytes);
		ctl_table_add(table, "%" PRIu64, segment->huge_bytes);
		ctl_table_add(table, "%" PRIu64, segment->inode);
		ctl_table_add(table, "%" PRIu64 "%s", segment->step,
			      segment->is_updating ? ", updating" : "");
		ctl_table_add(table, "%s", seals);
		free(seals);
	}
	puts("segments:");
	ctl_table_print(table, TABLE_INDENT, stdout);
	ctl_table_free(table);
}

static void holder_add(struct ctl_table *table, const struct tidl_holder *holder)
{
	char age[CTL_WORD_MAX];

	if (holder->kind == TIDL_HOLDER_PIN)
		ctl_table_add(table, "%s, %s left", ctl_text_holder_kind(holder->kind),
			      ctl_text_age(holder->left_ms, age));
	else
		ctl_table_add(table, "%s", ctl_text_holder_kind(holder->kind));
	ctl_table_add(table, "%s", tidl_attach_name(holder->attach));
	ctl_table_add(table, "%" PRId64, holder->process.pid);
	ctl_table_add(table, "%" PRIu32, holder->process.uid);
	ctl_table_add(table, "%s", *holder->process.name ? holder->process.name : "-");
	ctl_table_add(table, "%s", *holder->process.command ? holder->process.command : "-");
	ctl_table_add(table, "%s", ctl_text_age(holder->age_ms, age));
}

static void holders_print(const struct tidl_inspection *inspection, size_t count)
{
	struct ctl_table *table;

	if (count == 0) {
		puts("holders: none");
		return;
	}
	table = TABLE_NEW(holder_columns);
	for (size_t i = 0; i < count; i++)
		holder_add(table, tidl_inspection_holder(inspection, i));
	puts("holders:");
	ctl_table_print(table, TABLE_INDENT, stdout);
	ctl_table_free(table);
}

/* What the kernel keeps whom from. */
static void protection_print(const struct tidl_inspect_info *info)
{
	puts("protection:");
	if (info->access == TIDL_ACCESS_IMMUTABLE && info->is_same_uid_write_protected) {
		puts("  Sealed for good: nobody can write, not even its producer or processes of "
		     "the "
		     "broker's own user.");
		return;
	}
	if (info->access == TIDL_ACCESS_LIVE && info->is_same_uid_write_protected) {
		puts("  Sealed for good: its producer can write, through the memory that it has "
		     "mapped.");
		puts("  Nobody else can, not even processes of the broker's own user.");
		return;
	}
	puts(info->is_write_protected
		     ? "  Processes of other users can write only after the broker granted it."
		     : "  Nothing keeps processes of other users from writing.");
	puts(info->is_same_uid_write_protected
		     ? "  Processes of the broker's own user can write only after the broker "
		       "granted it."
		     : "  Nothing keeps processes of the broker's own user from writing: only the "
		       "seals hold.");
}

void ctl_inspect_print_text(const struct tidl_inspection *inspection)
{
	const struct tidl_inspect_info *info = tidl_inspection_info(inspection);

	info_print(info);
	tensors_print(inspection, info->tensor_count);
	segments_print(inspection, info->segment_count);
	holders_print(inspection, info->holder_count);
	protection_print(info);
}
