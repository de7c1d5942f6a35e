/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Publications. One is a single block of memory: the struct, its uses, its tensors and empty
 * mappings, their shapes and strides, and all texts, in this order; the rows of a manifest stay in
 * the manifest. Names and order are the registry's business.
 */
#include "daemon/publication.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/clock.h"
#include "daemon/lease.h"
#include "daemon/limits.h"
#include "daemon/manifest.h"
#include "daemon/pin.h"
#include "daemon/registry.h"
#include "daemon/waiter.h"
#include "daemon/work.h"
#include "proto/tensor/layout.h"

/* Hands out the parts of the block; sizes are those of one packet, so nothing overflows. */
struct layout {
	size_t uses_at;
	size_t tensors_at;
	size_t mappings_at;
	size_t numbers_at;
	size_t texts_at;
	size_t size_bytes;
};

static size_t text_bytes(const char *text)
{
	return text ? strlen(text) + 1 : 0;
}

/* Tensors that are remembered here. */
static size_t spec_row_count(const struct tdd_publication_spec *spec)
{
	return spec->manifest && spec->tensor_count > 1 ? 1 : spec->tensor_count;
}

static struct layout layout_plan(const struct tdd_publication_spec *spec)
{
	struct layout layout;
	size_t number_count = 0;
	size_t key_bytes = 0;

	for (size_t i = 0; i < spec_row_count(spec); i++) {
		number_count += 2 * (size_t)spec->tensors[i].ndim;
		key_bytes += text_bytes(spec->tensors[i].key);
	}
	for (size_t i = 0; i < spec->empty_mapping_count; i++)
		key_bytes += text_bytes(spec->empty_mappings[i].key);
	layout.uses_at = sizeof(struct tdd_publication);
	layout.tensors_at = layout.uses_at + spec->segment_count * sizeof(struct tdd_segment_use);
	layout.mappings_at = layout.tensors_at + spec_row_count(spec) * sizeof(struct tdp_tensor);
	layout.numbers_at =
		layout.mappings_at + spec->empty_mapping_count * sizeof(struct tdp_empty_mapping);
	layout.texts_at = layout.numbers_at + number_count * sizeof(int64_t);
	layout.size_bytes =
		layout.texts_at + key_bytes + text_bytes(spec->name) + text_bytes(spec->metadata);
	return layout;
}

static const char *put_text(char **cursor, const char *text)
{
	char *copy = *cursor;

	if (!text)
		return NULL;
	*cursor = stpcpy(copy, text) + 1;
	return copy;
}

static const int64_t *put_numbers(int64_t **cursor, const int64_t *numbers, uint32_t count)
{
	int64_t *copy = *cursor;

	if (count > 0)
		memcpy(copy, numbers, count * sizeof(*numbers));
	*cursor += count;
	return copy;
}

static void publication_fill_rows(struct tdd_publication *publication, const struct layout *layout,
				  const struct tdd_publication_spec *spec, char *texts)
{
	char *block = (char *)publication;
	int64_t *numbers = (int64_t *)(void *)(block + layout->numbers_at);

	publication->tensors = (struct tdp_tensor *)(void *)(block + layout->tensors_at);
	publication->empty_mappings =
		(struct tdp_empty_mapping *)(void *)(block + layout->mappings_at);
	publication->tensor_count = spec->tensor_count;
	publication->empty_mapping_count = spec->empty_mapping_count;
	for (size_t i = 0; i < spec_row_count(spec); i++) {
		struct tdp_tensor *tensor = &publication->tensors[i];

		*tensor = spec->tensors[i];
		tensor->key = put_text(&texts, tensor->key);
		tensor->shape = put_numbers(&numbers, tensor->shape, tensor->ndim);
		tensor->strides = put_numbers(&numbers, tensor->strides, tensor->ndim);
		/* The others speak of one export, not of the memory. */
		tensor->flags &= TDP_LAYOUT_SUBBYTE_PADDED;
	}
	for (size_t i = 0; i < spec->empty_mapping_count; i++) {
		publication->empty_mappings[i] = spec->empty_mappings[i];
		publication->empty_mappings[i].key = put_text(&texts, spec->empty_mappings[i].key);
	}
}

static void publication_fill(struct tdd_publication *publication, const struct layout *layout,
			     const struct tdd_publication_spec *spec)
{
	char *block = (char *)publication;
	char *texts = block + layout->texts_at;

	publication->name = put_text(&texts, spec->name);
	publication->rights = spec->rights;
	publication->access = spec->access;
	publication->retention = spec->retention;
	publication->ttl_ms = spec->ttl_ms;
	publication->path = spec->path;
	publication->tensor_bytes = spec->tensor_bytes;
	publication->metadata = put_text(&texts, spec->metadata);
	publication->is_bundle = spec->is_bundle;
	publication->uses = (struct tdd_segment_use *)(void *)(block + layout->uses_at);
	publication_fill_rows(publication, layout, spec, texts);
}

static void publication_use_segments(struct tdd_publication *publication,
				     const struct tdd_publication_spec *spec)
{
	publication->segment_count = spec->segment_count;
	for (size_t i = 0; i < spec->segment_count; i++) {
		struct tdd_segment_use *use = &publication->uses[i];

		use->segment = spec->segments[i];
		use->publication = publication;
		DL_APPEND(use->segment->uses, use);
		publication->segment_bytes += use->segment->geometry.size_bytes;
		publication->exposed_bytes += use->segment->geometry.data_size_bytes;
	}
}

static void publication_free(struct tdd_publication *publication)
{
	tdd_work_count(TDD_DROP_STEPS + TDD_PART_STEPS * publication->segment_count);
	if (publication->registry)
		tdd_index_remove(&publication->registry->alive, publication->generation);
	tdd_deadline_deinit(&publication->deadline);
	tdd_milestones_deinit(&publication->milestones);
	for (size_t i = 0; i < publication->segment_count; i++) {
		struct tdd_segment_use *use = &publication->uses[i];

		DL_DELETE(use->segment->uses, use);
		tdd_segment_settle(use->segment);
	}
	tdd_charge_deinit(&publication->count);
	tdd_charge_deinit(&publication->rows);
	tdd_charge_deinit(&publication->bytes);
	tdd_charge_deinit(&publication->descriptors);
	tdd_manifest_free(publication->manifest);
	tdd_process_unref(publication->publisher);
	free(publication);
}

/* Its time is over, or its owner has been dead for the grace period. */
static void publication_expired(struct tdd_deadline *deadline)
{
	struct tdd_publication *publication =
		TDP_CONTAINER_OF(deadline, struct tdd_publication, deadline);

	if (tdd_waiters_wake_more(publication->registry, publication->entry))
		tdd_registry_unlist(publication->registry, publication);
	else
		tdd_deadline_set(deadline, deadline->at_ms);
}

/* Room for the end that it may have by itself. */
static int publication_reserve_deadline(struct tdd_publication *publication,
					const struct tdd_publication_spec *spec,
					struct tdp_fault *fault)
{
	if (spec->retention != TIDL_RETENTION_SECONDS && spec->retention != TIDL_RETENTION_OWNER)
		return 0;
	if (tdd_deadline_init(&publication->deadline, spec->timeline, publication_expired) < 0)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	return 0;
}

static uint64_t spec_charged_rows(const struct tdd_publication_spec *spec)
{
	return spec->tensor_count +
	       (spec->manifest ? spec->manifest->empty_mapping_count : spec->empty_mapping_count);
}

static int publication_charge(struct tdd_publication *publication, struct tdd_account *account,
			      uint64_t size_bytes, const struct tdd_publication_spec *spec,
			      struct tdp_fault *fault)
{
	int r = tdd_charge_init(&publication->count, account, TDD_QUOTA_PUBLICATIONS, 1, fault);

	if (r == 0)
		r = tdd_charge_init(&publication->rows, account, TDD_QUOTA_TENSORS,
				    spec_charged_rows(spec), fault);
	if (r == 0 && spec->manifest) {
		size_bytes += tdd_manifest_memory_bytes(spec->manifest);
		r = tdd_charge_init(&publication->descriptors, account, TDD_QUOTA_DESCRIPTORS, 1,
				    fault);
	}
	if (r == 0)
		r = tdd_charge_init(&publication->bytes, account, TDD_QUOTA_BYTES, size_bytes,
				    fault);
	return r;
}

int tdd_publication_new(const struct tdd_publication_spec *spec, struct tdd_holder *publisher,
			struct tdd_publication **ret_publication, struct tdp_fault *fault)
{
	struct layout layout = layout_plan(spec);
	struct tdd_account *account = tdd_holder_uid_account(publisher);
	struct tdd_publication *publication = calloc(1, layout.size_bytes);
	int r;

	if (!publication)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	r = publication_charge(publication, account, layout.size_bytes, spec, fault);
	if (r == 0)
		r = publication_reserve_deadline(publication, spec, fault);
	if (r < 0) {
		publication_free(publication);
		return r;
	}
	publication_fill(publication, &layout, spec);
	publication->since_ms = tdd_clock_ms();
	publication->publisher = tdd_process_ref(publisher->process);
	publication_use_segments(publication, spec);
	publication->manifest = spec->manifest;
	*ret_publication = publication;
	return 0;
}

bool tdd_publication_is_current(const struct tdd_publication *publication)
{
	return publication->entry && publication->entry->current == publication;
}

bool tdd_publication_is_orphaned(const struct tdd_publication *publication)
{
	return publication->retention == TIDL_RETENTION_OWNER && publication->entry &&
	       (!publication->owner || publication->owner->is_ending);
}

void tdd_publication_settle(struct tdd_publication *publication)
{
	struct tdd_account *heir;

	if (tdd_publication_is_listed(publication))
		return;
	if (publication->reader_count == 0 && !publication->pins) {
		publication_free(publication);
		return;
	}
	/* Somebody who makes a lease on it has none yet: it stays as it is for that moment. */
	if (!publication->leases && !publication->pins)
		return;
	heir = publication->leases ? tdd_holder_uid_account(publication->leases->holder)
				   : publication->pins->charge.account;
	tdd_charge_force(&publication->count, heir);
	tdd_charge_force(&publication->rows, heir);
	tdd_charge_force(&publication->bytes, heir);
	if (publication->manifest)
		tdd_charge_force(&publication->descriptors, heir);
	for (size_t i = 0; i < publication->segment_count; i++)
		tdd_segment_settle(publication->uses[i].segment);
}

bool tdd_publication_shares_segment(const struct tdd_publication *a,
				    const struct tdd_publication *b)
{
	uint64_t mark = tdd_segment_new_mark();

	for (size_t i = 0; i < a->segment_count; i++)
		a->uses[i].segment->mark = mark;
	for (size_t i = 0; i < b->segment_count; i++) {
		if (b->uses[i].segment->mark == mark)
			return true;
	}
	return false;
}

uint32_t tdd_publication_holder_count(const struct tdd_publication *publication)
{
	uint32_t count = publication->lease_count;
	const struct tdd_pin *pin;

	DL_FOREACH (publication->pins, pin)
		count++;
	for (size_t i = 0; i < publication->segment_count; i++) {
		struct tdd_hold *allocation;

		DL_FOREACH (publication->uses[i].segment->allocations, allocation)
			count++;
	}
	return count;
}
