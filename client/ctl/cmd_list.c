/* SPDX-License-Identifier: Apache-2.0 */
/* tidlctl list: one line for each published name. */
#include "client/ctl/command.h"
#include "client/ctl/out_json.h"
#include "client/ctl/out_table.h"
#include "client/ctl/text.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>

static const struct ctl_column columns[] = {
	{.title = "NAME"},
	{.title = "DTYPE"},
	{.title = "SHAPE"},
	{.title = "BYTES", .is_number = true},
	{.title = "ACCESS"},
	{.title = "RETENTION"},
	{.title = "HOLDERS", .is_number = true},
	{.title = "AGE", .is_number = true},
	{.title = "PID", .is_number = true},
	{.title = "GENERATION", .is_number = true},
};

static void table_add_name(struct ctl_table *table, const struct ctl_context *context,
			   const struct tidl_list_entry *entry)
{
	char owner[CTL_WORD_MAX];

	if (ctl_context_is_mine(context, entry->owner_uid))
		ctl_table_add(table, "%s", entry->name);
	else
		ctl_table_add(table, "%s:%s", ctl_text_owner(entry->owner_uid, owner), entry->name);
}

/* DTYPE and SHAPE: those of the tensor, or the number of tensors of a bundle. */
static void table_add_tensor(struct ctl_table *table, const struct tidl_list_entry *entry)
{
	char dtype[CTL_WORD_MAX];
	char *shape;

	if (entry->is_bundle) {
		ctl_table_add(table, "bundle");
		ctl_table_add(table, "%" PRIu32 " tensor%s", entry->tensor_count,
			      entry->tensor_count == 1 ? "" : "s");
		return;
	}
	shape = ctl_text_tuple(entry->shape, entry->ndim);
	ctl_table_add(table, "%s", tidl_dtype_name(entry->dtype, dtype, sizeof(dtype)));
	ctl_table_add(table, "%s", shape);
	free(shape);
}

static void table_add_entry(struct ctl_table *table, const struct ctl_context *context,
			    const struct tidl_list_entry *entry)
{
	char age[CTL_WORD_MAX];

	table_add_name(table, context, entry);
	table_add_tensor(table, entry);
	ctl_table_add(table, "%" PRIu64, entry->tensor_bytes);
	ctl_table_add(table, "%s", tidl_access_name(entry->access));
	ctl_table_add(table, "%s", tidl_retention_name(entry->retention));
	ctl_table_add(table, "%" PRIu32, entry->holder_count);
	ctl_table_add(table, "%s", ctl_text_age(entry->age_ms, age));
	ctl_table_add(table, "%" PRId64, entry->publisher_pid);
	ctl_table_add(table, "%" PRIu64, entry->generation);
}

static void listing_print_table(const struct ctl_context *context,
				const struct tidl_listing *listing)
{
	struct ctl_table *table = ctl_table_new(columns, sizeof(columns) / sizeof(columns[0]));

	for (size_t i = 0; i < tidl_listing_count(listing); i++)
		table_add_entry(table, context, tidl_listing_entry(listing, i));
	ctl_table_print(table, 0, stdout);
	ctl_table_free(table);
}

/* Of the first tensor; null where a bundle has none. */
static void entry_add_tensor(json_t *object, const struct tidl_list_entry *entry)
{
	char dtype[CTL_WORD_MAX];
	bool is_empty = entry->tensor_count == 0;

	ctl_json_set(object, "dtype",
		     is_empty ? json_null()
			      : ctl_json_text(tidl_dtype_name(entry->dtype, dtype, sizeof(dtype))));
	ctl_json_set(object, "shape",
		     is_empty ? json_null() : ctl_json_tuple(entry->shape, entry->ndim));
}

static json_t *entry_to_json(const struct tidl_list_entry *entry)
{
	json_t *object = json_object();

	ctl_json_set(object, "name", ctl_json_text(entry->name));
	ctl_json_set(object, "owner", ctl_json_user(entry->owner_uid));
	ctl_json_set(object, "generation", ctl_json_number(entry->generation));
	ctl_json_set(object, "access", ctl_json_text(tidl_access_name(entry->access)));
	ctl_json_set(object, "retention", ctl_json_text(tidl_retention_name(entry->retention)));
	ctl_json_set(object, "mode", ctl_json_mode(entry->mode));
	ctl_json_set(object, "tensors", ctl_json_number(entry->tensor_count));
	ctl_json_set(object, "bundle", json_boolean(entry->is_bundle));
	entry_add_tensor(object, entry);
	ctl_json_set(object, "tensor_bytes", ctl_json_number(entry->tensor_bytes));
	ctl_json_set(object, "segment_bytes", ctl_json_number(entry->segment_bytes));
	ctl_json_set(object, "holders", ctl_json_number(entry->holder_count));
	ctl_json_set(object, "age_ms", ctl_json_number(entry->age_ms));
	ctl_json_set(object, "pid", json_integer(entry->publisher_pid));
	return object;
}

static void listing_print_json(const struct tidl_listing *listing)
{
	json_t *document = ctl_json_document();
	json_t *publications = json_array();

	for (size_t i = 0; i < tidl_listing_count(listing); i++)
		ctl_json_append(publications, entry_to_json(tidl_listing_entry(listing, i)));
	ctl_json_set(document, "publications", publications);
	ctl_json_print(document);
}

int ctl_list_run(struct ctl_context *context, int argument_count, char **arguments)
{
	struct tidl_listing *listing = NULL;
	int r = tidl_list(context->client, argument_count > 0 ? arguments[0] : NULL, &listing);

	if (r < 0)
		return ctl_context_fail(context, r);
	if (context->is_json)
		listing_print_json(listing);
	else
		listing_print_table(context, listing);
	tidl_listing_free(listing);
	return CTL_EXIT_OK;
}
