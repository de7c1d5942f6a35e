/* SPDX-License-Identifier: Apache-2.0 */
/* What administrators and curious users ask: LIST, INSPECT, SHUTDOWN. */
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#include "daemon/clock.h"
#include "daemon/handlers/handlers.h"
#include "daemon/lease.h"
#include "daemon/limits.h"
#include "daemon/manifest.h"
#include "daemon/pin.h"
#include "daemon/publication.h"
#include "daemon/registry.h"
#include "daemon/server.h"
#include "daemon/work.h"
#include "proto/names.h"

static uint64_t age_ms(uint64_t since_ms)
{
	return tdd_clock_ms() - since_ms;
}

/* ---- LIST ---- */

static void fill_list_entry(const struct tdd_publication *publication, struct tdp_list_entry *entry)
{
	static const struct tdp_tensor none;
	const struct tdp_tensor *first =
		publication->tensor_count > 0 ? &publication->tensors[0] : &none;

	*entry = (struct tdp_list_entry){
		.owner_uid = publication->rights.owner_uid,
		.name = publication->name,
		.generation = publication->generation,
		.access = publication->access,
		.retention = publication->retention,
		.mode = publication->rights.mode,
		.is_bundle = publication->is_bundle,
		.tensor_count = (uint32_t)publication->tensor_count,
		.dtype = first->dtype,
		.ndim = first->ndim,
		.shape = first->shape,
		.tensor_bytes = publication->tensor_bytes,
		.segment_bytes = publication->segment_bytes,
		.holder_count = tdd_publication_holder_count(publication),
		.age_ms = age_ms(publication->since_ms),
		.publisher_pid = publication->publisher->pid,
	};
}

static bool list_matches(const struct tdd_session *session, const struct tdp_list *list,
			 const struct tdd_publication *publication)
{
	const struct tdd_rights *rights = &publication->rights;
	uint32_t owner_uid = tdd_lookup_owner(session, list->has_owner, list->owner_uid);

	if (!list->any_owner && rights->owner_uid != owner_uid)
		return false;
	return tdd_policy_may_see(&session->holder.subject, rights) &&
	       tdp_pattern_match(list->pattern, publication->name);
}

/* One page: a bounded look at what comes behind the cursor, whether anything matches or not. */
static void list_scan(const struct tdd_session *session, const struct tdp_list *list,
		      struct tdp_list_entry *entries, struct tdp_listing *ret_listing)
{
	const struct tdd_index *index = &session->server->registry.index;
	size_t position = tdd_index_after(index, list->cursor);
	size_t pattern_bytes = strlen(list->pattern);
	uint64_t cursor = list->cursor;
	uint64_t steps = 0;
	size_t count = 0;

	for (; position < index->slot_count; position++) {
		const struct tdd_publication *publication = index->slots[position].publication;

		if (count == TDP_LIST_PAGE_ROWS || steps >= TDD_LIST_STEPS)
			break;
		cursor = index->slots[position].generation;
		steps += TDD_LIST_STEPS / TDD_LIST_SCAN;
		if (!publication)
			continue;
		steps += pattern_bytes * strlen(publication->name);
		if (!list_matches(session, list, publication))
			continue;
		/* Holders are counted segment by segment. */
		steps += publication->segment_count;
		fill_list_entry(publication, &entries[count++]);
	}
	tdd_work_count(steps);
	ret_listing->entries = entries;
	ret_listing->entry_count = count;
	ret_listing->next_cursor = position < index->slot_count ? cursor : 0;
}

int tdd_handle_list(struct tdd_session *session, const struct tdp_message *request,
		    struct tdp_fault *fault)
{
	struct tdp_list_entry entries[TDP_LIST_PAGE_ROWS];
	struct tdp_message reply = {.kind = TDP_MESSAGE_LISTING, .request_id = request->request_id};
	int r = tdp_pattern_check(request->list.pattern, fault);

	if (r < 0)
		return r;
	list_scan(session, &request->list, entries, &reply.listing);
	/* Rows of the greatest rank with the longest names do not all fit: then fewer. */
	while (tdd_session_try_reply(session, &reply, NULL, 0) < 0) {
		size_t rows = reply.listing.entry_count / 2;

		if (rows == 0)
			return tdp_fault_code(fault, TIDL_ERR_LIMIT);
		reply.listing.entry_count = rows;
		reply.listing.next_cursor = entries[rows - 1].generation;
	}
	return 0;
}

/* ---- INSPECT ---- */

/* One page: room for it, and how far it came. */
struct inspection_page {
	size_t tensor_limit;
	size_t holder_limit;
	size_t segment_limit;
	size_t holder_count;
	bool has_more_holders;
	uint64_t last_holder;
	struct tdp_holder holders[TDP_HOLDER_PAGE_ROWS];
	struct tdp_segment segments[TDP_SEGMENT_PAGE_ROWS];
	uint64_t kept_generations[TDP_KEEP_MAX];
	struct tdp_manifest_row rows[TDP_TENSOR_PAGE_ROWS];
	struct tdp_tensor tensors[TDP_TENSOR_PAGE_ROWS]; /* in rows */
};

/* Allocations come before leases and these before pins, those by segment, each kind by serial: one
 * number that grows. Serials would need a decade at a million a second to reach the upper bits. */
enum { HOLDER_SERIAL_BITS = 49, HOLDER_KIND_BITS = 62 };

static uint64_t holder_cursor(enum tidl_holder_kind kind, size_t segment, uint64_t serial)
{
	static const uint64_t places[] = {
		[TIDL_HOLDER_ALLOCATION] = 0,
		[TIDL_HOLDER_LEASE] = 1,
		[TIDL_HOLDER_PIN] = 2,
	};

	return places[kind] << HOLDER_KIND_BITS | (uint64_t)segment << HOLDER_SERIAL_BITS | serial;
}

static void page_add_holder(struct inspection_page *page, uint64_t cursor,
			    const struct tdp_holder *holder)
{
	if (page->holder_count == page->holder_limit) {
		page->has_more_holders = true;
		return;
	}
	page->last_holder = cursor;
	page->holders[page->holder_count++] = *holder;
}

static void page_add_holders(struct inspection_page *page, const struct tdd_hold *holds,
			     size_t segment, uint64_t cursor)
{
	const struct tdd_hold *hold;

	DL_FOREACH (holds, hold) {
		uint64_t place = holder_cursor(hold->kind, segment, hold->serial);
		struct tdp_holder holder = {
			.kind = hold->kind,
			.attach = hold->attach,
			.age_ms = age_ms(hold->since_ms),
			.process = tdd_process_view(hold->holder->process),
		};

		if (place > cursor)
			page_add_holder(page, place, &holder);
		if (page->has_more_holders)
			return;
	}
}

static void page_add_pins(struct inspection_page *page, const struct tdd_pin *pins, uint64_t cursor)
{
	const struct tdd_pin *pin;

	DL_FOREACH (pins, pin) {
		uint64_t place = holder_cursor(TIDL_HOLDER_PIN, 0, pin->serial);
		struct tdp_holder holder = {
			.kind = TIDL_HOLDER_PIN,
			.attach = TIDL_ATTACH_READ,
			.age_ms = age_ms(pin->since_ms),
			.left_ms = tdd_deadline_left_ms(&pin->deadline, tdd_clock_ms()),
			.process = tdd_process_view(pin->process),
		};

		if (place > cursor)
			page_add_holder(page, place, &holder);
		if (page->has_more_holders)
			return;
	}
}

/* Behind the cursor, or a little before. */
static const struct tdd_hold *first_lease(const struct tdd_publication *publication,
					  uint64_t cursor)
{
	uint64_t serial = cursor & (((uint64_t)1 << HOLDER_SERIAL_BITS) - 1);
	const struct tdd_hold *lease = NULL;

	if (cursor >= holder_cursor(TIDL_HOLDER_PIN, 0, 0))
		return NULL;
	if (cursor >= holder_cursor(TIDL_HOLDER_LEASE, 0, 0))
		lease = tdd_milestones_find(&publication->milestones, serial);
	return lease ? lease : publication->leases;
}

static void inspect_holders(const struct tdd_publication *publication, uint64_t cursor,
			    struct inspection_page *page, struct tdp_inspection *inspection)
{
	size_t first = cursor >> HOLDER_SERIAL_BITS;

	page->holder_count = 0;
	page->has_more_holders = false;
	for (size_t i = first; i < publication->segment_count && !page->has_more_holders; i++)
		page_add_holders(page, publication->uses[i].segment->allocations, i, cursor);
	page_add_holders(page, first_lease(publication, cursor), 0, cursor);
	page_add_pins(page, publication->pins, cursor);
	inspection->holders = page->holders;
	inspection->holder_count = page->holder_count;
	inspection->next_holder_cursor = page->has_more_holders ? page->last_holder : 0;
}

/* Rows that are not at hand, from the manifest. */
static int page_read_tensors(const struct tdd_publication *publication, size_t first, size_t count,
			     struct inspection_page *page, struct tdp_fault *fault)
{
	int r = tdd_manifest_read_rows(publication->manifest, first, count, page->rows, fault);

	for (size_t i = 0; i < count && r == 0; i++)
		page->tensors[i] = page->rows[i].tensor;
	return r;
}

static int inspect_tensors(const struct tdd_publication *publication, uint64_t cursor,
			   struct inspection_page *page, struct tdp_inspection *inspection,
			   struct tdp_fault *fault)
{
	size_t all = publication->tensor_count;
	size_t left = cursor < all ? all - cursor : 0;
	size_t count = left < page->tensor_limit ? left : page->tensor_limit;

	inspection->tensors = publication->tensors + (publication->manifest ? 0 : all - left);
	if (publication->manifest) {
		int r = page_read_tensors(publication, all - left, count, page, fault);

		if (r < 0)
			return r;
		inspection->tensors = page->tensors;
	}
	inspection->tensor_count = count;
	inspection->next_tensor_cursor = count < left ? cursor + count : 0;
	return 0;
}

static int inspect_segments(const struct tdd_publication *publication, uint64_t cursor,
			    struct inspection_page *page, struct tdp_inspection *inspection,
			    struct tdp_fault *fault)
{
	size_t all = publication->segment_count;
	size_t left = cursor < all ? all - cursor : 0;
	size_t count = left < page->segment_limit ? left : page->segment_limit;

	for (size_t i = 0; i < count; i++) {
		int r = tdd_segment_examine(publication->uses[all - left + i].segment,
					    &page->segments[i], fault);

		if (r < 0)
			return r;
	}
	inspection->segments = page->segments;
	inspection->segment_count = count;
	inspection->next_segment_cursor = count < left ? cursor + count : 0;
	return 0;
}

/* All of a publication's segments have the same access, and so the same seals. */
static int inspect_protection(const struct tdd_publication *publication,
			      struct tdp_inspection *inspection, struct tdp_fault *fault)
{
	bool is_protected = true;

	if (publication->segment_count > 0) {
		struct tdp_segment segment;
		int r = tdd_segment_examine(publication->uses[0].segment, &segment, fault);

		if (r < 0)
			return r;
		is_protected = (segment.seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0;
	}
	/* Other uids cannot even re-open the read-only descriptor for writing: the file is 0400. */
	inspection->is_write_protected = true;
	inspection->is_same_uid_write_protected = is_protected;
	return 0;
}

static void inspect_time(const struct tdd_publication *publication, struct inspection_page *page,
			 struct tdp_inspection *inspection)
{
	const struct tdd_publication *kept = publication->entry ? publication->entry->kept : NULL;

	inspection->has_left = tdd_deadline_is_set(&publication->deadline);
	inspection->left_ms = tdd_deadline_left_ms(&publication->deadline, tdd_clock_ms());
	inspection->kept_generations = page->kept_generations;
	DL_FOREACH2(kept, kept, kept_next)
	page->kept_generations[inspection->kept_count++] = kept->generation;
}

static void inspect_head(const struct tdd_publication *publication,
			 struct tdp_inspection *inspection)
{
	*inspection = (struct tdp_inspection){
		.owner_uid = publication->rights.owner_uid,
		.name = publication->name,
		.generation = publication->generation,
		.access = publication->access,
		.retention = publication->retention,
		.path = publication->path,
		.mode = publication->rights.mode,
		.gid = publication->rights.gid,
		.age_ms = age_ms(publication->since_ms),
		.exposed_bytes = publication->exposed_bytes,
		.metadata = publication->metadata,
		.publisher = tdd_process_view(publication->publisher),
		.is_bundle = publication->is_bundle,
		.all_tensor_count = (uint32_t)publication->tensor_count,
		.all_segment_count = (uint32_t)publication->segment_count,
	};
}

/* NULL: the fault says why. */
static struct tdd_publication *inspect_find(const struct tdd_session *session,
					    const struct tdp_inspect *inspect,
					    struct tdp_fault *fault)
{
	uint32_t owner_uid = tdd_lookup_owner(session, inspect->has_owner, inspect->owner_uid);
	struct tdd_publication *publication;

	if (tdp_name_check(inspect->name, fault) < 0)
		return NULL;
	publication = tdd_lookup_generation(session, owner_uid, inspect->name, inspect->generation);
	if (!publication && inspect->generation != 0)
		tdp_fault_set(fault, TIDL_ERR_GENERATION_GONE,
			      "generation %" PRIu64
			      " of \"%s\" is neither published nor held (any more): inspect it "
			      "again without a number",
			      inspect->generation, inspect->name);
	else if (!publication)
		tdd_lookup_not_found(session, owner_uid, inspect->name, fault);
	return publication;
}

/* The rows of one page. A page that goes on with one list leaves the others out. */
static int inspect_rows(const struct tdd_publication *publication,
			const struct tdp_inspect *inspect, struct inspection_page *page,
			struct tdp_inspection *inspection, struct tdp_fault *fault)
{
	bool is_first = inspect->holder_cursor == 0 && inspect->tensor_cursor == 0 &&
			inspect->segment_cursor == 0;
	int r = 0;

	if (is_first || inspect->holder_cursor != 0)
		inspect_holders(publication, inspect->holder_cursor, page, inspection);
	if (is_first || inspect->tensor_cursor != 0)
		r = inspect_tensors(publication, inspect->tensor_cursor, page, inspection, fault);
	if (r == 0 && (is_first || inspect->segment_cursor != 0))
		r = inspect_segments(publication, inspect->segment_cursor, page, inspection, fault);
	return r;
}

static size_t at_most(size_t value, size_t limit)
{
	return value < limit ? value : limit;
}

int tdd_handle_inspect(struct tdd_session *session, const struct tdp_message *request,
		       struct tdp_fault *fault)
{
	const struct tdp_inspect *inspect = &request->inspect;
	struct tdp_message reply = {.kind = TDP_MESSAGE_INSPECTION,
				    .request_id = request->request_id};
	struct inspection_page page;
	struct tdd_publication *publication = inspect_find(session, inspect, fault);
	int r;

	if (!publication)
		return fault->code;
	inspect_head(publication, &reply.inspection);
	inspect_time(publication, &page, &reply.inspection);
	r = inspect_protection(publication, &reply.inspection, fault);
	/* Long texts or high ranks may not all fit: then fewer rows. */
	for (size_t rows = TDP_HOLDER_PAGE_ROWS; rows > 0 && r == 0; rows /= 2) {
		page.holder_limit = rows;
		page.tensor_limit = at_most(rows, TDP_TENSOR_PAGE_ROWS);
		page.segment_limit = at_most(rows, TDP_SEGMENT_PAGE_ROWS);
		r = inspect_rows(publication, inspect, &page, &reply.inspection, fault);
		if (r == 0 && tdd_session_try_reply(session, &reply, NULL, 0) == 0)
			return 0;
	}
	return r < 0 ? r : tdp_fault_code(fault, TIDL_ERR_LIMIT);
}

/* ---- SHUTDOWN ---- */

int tdd_handle_shutdown(struct tdd_session *session, const struct tdp_message *request,
			struct tdp_fault *fault)
{
	struct tdd_server *server = session->server;

	if (!tdd_policy_may_shut_down(&session->holder.subject, server->uid))
		return tdp_fault_set(fault, TIDL_ERR_PERMISSION,
				     "this broker belongs to uid %" PRIu32
				     ": only that user and root may stop it",
				     server->uid);
	tdd_session_reply_done(session, request->request_id);
	tdd_server_stop(server);
	return 0;
}
