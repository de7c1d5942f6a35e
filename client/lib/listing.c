/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listings: the broker's pages put together. Owns the answers, since names and shapes stay in
 * them; the public records point there.
 */
#include "client/lib/listing.h"

#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "client/lib/call.h"

/* More pages than any broker can have, so that one which never ends is noticed. */
enum { LISTING_MAX_PAGES = 1 << 16 };

struct tidl_listing {
	size_t count;
	struct tidl_list_entry *entries;
	struct tdc_reply *pages;
};

static struct tidl_list_entry entry_convert(const struct tdp_list_entry *wire)
{
	return (struct tidl_list_entry){
		.owner_uid = wire->owner_uid,
		.name = wire->name,
		.generation = wire->generation,
		.access = wire->access,
		.retention = wire->retention,
		.mode = wire->mode,
		.tensor_count = wire->tensor_count,
		.is_bundle = wire->is_bundle,
		.dtype = wire->dtype,
		.ndim = wire->ndim,
		.shape = wire->shape,
		.tensor_bytes = wire->tensor_bytes,
		.segment_bytes = wire->segment_bytes,
		.holder_count = wire->holder_count,
		.age_ms = wire->age_ms,
		.publisher_pid = wire->publisher_pid,
	};
}

/* Takes the page over on success. */
static int listing_add_page(struct tidl_listing *listing, struct tdc_reply *page,
			    struct tdp_fault *fault)
{
	const struct tdp_listing *wire = &page->message.listing;
	struct tidl_list_entry *grown = listing->entries;

	if (wire->entry_count > 0)
		grown = reallocarray(listing->entries, listing->count + wire->entry_count,
				     sizeof(*grown));
	if (wire->entry_count > 0 && grown == NULL)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	listing->entries = grown;
	for (size_t i = 0; i < wire->entry_count; i++)
		listing->entries[listing->count++] = entry_convert(&wire->entries[i]);
	LL_PREPEND(listing->pages, page);
	return 0;
}

static int listing_fetch(struct tidl_client *client, const struct tdc_name *pattern,
			 uint64_t cursor, struct tidl_listing *listing, uint64_t *ret_next_cursor,
			 struct tdp_fault *fault)
{
	struct tdp_message request = {
		.kind = TDP_MESSAGE_LIST,
		.list = {.any_owner = pattern->any_owner,
			 .has_owner = pattern->has_owner,
			 .owner_uid = pattern->owner_uid,
			 .pattern = pattern->path,
			 .cursor = cursor},
	};
	struct tdc_reply *page = NULL;
	uint64_t next_cursor;
	int r = tdc_call(client, &request, TDC_ANSWER_DUE, TDP_MESSAGE_LISTING, &page, fault);

	if (r < 0)
		return r;
	next_cursor = page->message.listing.next_cursor;
	r = listing_add_page(listing, page, fault);
	if (r < 0)
		(void)tdc_reply_free(page);
	else
		*ret_next_cursor = next_cursor;
	return r;
}

/* By name, of one name the newest generation first. */
static int entry_compare(const void *a, const void *b)
{
	const struct tidl_list_entry *x = *(const struct tidl_list_entry *const *)a;
	const struct tidl_list_entry *y = *(const struct tidl_list_entry *const *)b;
	int order = strcmp(x->name, y->name);

	if (x->owner_uid != y->owner_uid)
		return x->owner_uid < y->owner_uid ? -1 : 1;
	if (order != 0)
		return order;
	return x->generation > y->generation ? -1 : x->generation < y->generation;
}

/* Take entries without a generation out. */
static void listing_squeeze(struct tidl_listing *listing)
{
	size_t kept = 0;

	for (size_t i = 0; i < listing->count; i++) {
		if (listing->entries[i].generation != 0)
			listing->entries[kept++] = listing->entries[i];
	}
	listing->count = kept;
}

/* What was replaced between two pages came twice: only its newest generation is published. */
static int listing_drop_replaced(struct tidl_listing *listing, struct tdp_fault *fault)
{
	struct tidl_list_entry **sorted;
	const struct tidl_list_entry *newest = NULL;

	if (listing->count == 0)
		return 0;
	sorted = reallocarray(NULL, listing->count, sizeof(struct tidl_list_entry *));
	if (sorted == NULL)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	for (size_t i = 0; i < listing->count; i++)
		sorted[i] = &listing->entries[i];
	qsort(sorted, listing->count, sizeof(struct tidl_list_entry *), entry_compare);
	for (size_t i = 0; i < listing->count; i++) {
		if (newest != NULL && sorted[i]->owner_uid == newest->owner_uid &&
		    strcmp(sorted[i]->name, newest->name) == 0)
			sorted[i]->generation = 0;
		else
			newest = sorted[i];
	}
	free(sorted);
	listing_squeeze(listing);
	return 0;
}

int tdc_list(struct tidl_client *client, const struct tdc_name *pattern,
	     struct tidl_listing **ret_listing, struct tdp_fault *fault)
{
	struct tidl_listing *listing = calloc(1, sizeof(*listing));
	uint64_t cursor = 0;
	int r;

	if (listing == NULL)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	for (int pages = 0;; pages++) {
		r = pages == LISTING_MAX_PAGES
			    ? tdp_fault_set(fault, TIDL_ERR_PROTOCOL,
					    "the broker's listing does not end: check its version")
			    : listing_fetch(client, pattern, cursor, listing, &cursor, fault);
		if (r < 0 || cursor == 0)
			break;
	}
	if (r == 0)
		r = listing_drop_replaced(listing, fault);
	if (r < 0) {
		tidl_listing_free(listing);
		return r;
	}
	*ret_listing = listing;
	return 0;
}

size_t tidl_listing_count(const struct tidl_listing *listing)
{
	return listing->count;
}

const struct tidl_list_entry *tidl_listing_entry(const struct tidl_listing *listing, size_t index)
{
	return index < listing->count ? &listing->entries[index] : NULL;
}

void tidl_listing_free(struct tidl_listing *listing)
{
	struct tdc_reply *page;
	struct tdc_reply *following;

	if (listing == NULL)
		return;
	LL_FOREACH_SAFE (listing->pages, page, following)
		(void)tdc_reply_free(page);
	free(listing->entries);
	free(listing);
}
