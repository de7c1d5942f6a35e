/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A segment as this process has it mapped: its data part only, never the control page behind it.
 * Shared by all tensors over it, and unmapped with the last. Believes the broker nothing: numbers
 * are checked before, and the descriptor by the kernel's word. Knows neither leases nor messages.
 */
#include "client/lib/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "client/lib/client.h"
#include "client/lib/steps.h"
#include "include/tidl/publish.h"
#include "proto/base/checked.h"
#include "proto/base/kernel.h"
#include "proto/mem/memfd.h"

int tdc_segment_check(const struct tdp_segment *wire, struct tdp_fault *fault)
{
	uint64_t page_mask = tdp_page_bytes() - 1;
	uint64_t data_end;

	if (wire->kind != TDP_SEGMENT_MEMFD)
		return tdp_fault_set(fault, TIDL_ERR_UNSUPPORTED,
				     "the memory lies on a device, which this version cannot "
				     "attach: update tidl");
	if (wire->id == 0 || wire->data_size_bytes == 0 ||
	    (wire->data_offset_bytes & page_mask) != 0 ||
	    (wire->data_size_bytes & page_mask) != 0 ||
	    !tdp_add_u64(wire->data_offset_bytes, wire->data_size_bytes, &data_end) ||
	    data_end > wire->size_bytes || wire->size_bytes > INT64_MAX ||
	    wire->data_size_bytes > PTRDIFF_MAX)
		return tdp_fault_set(fault, TIDL_ERR_SEGMENT_BAD,
				     "the broker announced a segment that cannot be: %llu bytes, "
				     "data from %llu on for %llu; check its version",
				     (unsigned long long)wire->size_bytes,
				     (unsigned long long)wire->data_offset_bytes,
				     (unsigned long long)wire->data_size_bytes);
	return 0;
}

/* One of these seals has to be there. */
static uint32_t access_seals(enum tidl_access access)
{
	switch (access) {
	case TIDL_ACCESS_LIVE:
		return F_SEAL_FUTURE_WRITE | F_SEAL_WRITE;
	case TIDL_ACCESS_IMMUTABLE:
		return F_SEAL_WRITE;
	case TIDL_ACCESS_SHARED:
		break;
	}
	return 0;
}

int tdc_segment_verify(const struct tdp_segment *wire, int fd, enum tidl_access access,
		       struct tdp_fault *fault)
{
	uint32_t wanted = access_seals(access);
	uint32_t seals;
	int r = tdp_memfd_verify(fd, wire->size_bytes, fault);

	if (r < 0 || wanted == 0)
		return r;
	r = tdp_memfd_seals(fd, &seals, fault);
	if (r < 0 || (seals & wanted) != 0)
		return r;
	return tdp_fault_set(
		fault, TIDL_ERR_SEGMENT_BAD,
		"the received memory is announced as %s and not sealed for that: check "
		"that both sides are tidl of the same version",
		tidl_access_name(access));
}

static void *segment_mmap_as(const struct tdc_segment_spec *spec, int protection, int flags)
{
	return mmap(NULL, spec->wire->data_size_bytes, protection, flags, spec->fd,
		    (off_t)spec->wire->data_offset_bytes);
}

static bool segment_wants_private(const struct tdc_segment_spec *spec)
{
	return spec->access == TIDL_ACCESS_IMMUTABLE && spec->attach == TIDL_ATTACH_READ &&
	       !tdp_kernel_has(TDP_KERNEL_SEALED_SHARED_MAP);
}

static int segment_mmap(const struct tdc_segment_spec *spec, void **ret_base,
			struct tdp_fault *fault)
{
	int protection = spec->attach == TIDL_ATTACH_READ ? PROT_READ : PROT_READ | PROT_WRITE;
	int flags = spec->attach == TIDL_ATTACH_COPY_ON_WRITE ? MAP_PRIVATE : MAP_SHARED;
	void *base = MAP_FAILED;

	if (!segment_wants_private(spec))
		base = segment_mmap_as(spec, protection, flags);
	/* Where nobody writes both kinds of map show the same. */
	if (base == MAP_FAILED && spec->access == TIDL_ACCESS_IMMUTABLE &&
	    spec->attach == TIDL_ATTACH_READ) {
		base = segment_mmap_as(spec, protection, MAP_PRIVATE);
		if (base != MAP_FAILED)
			tdp_kernel_forget(TDP_KERNEL_SEALED_SHARED_MAP);
	}
	if (base != MAP_FAILED) {
		*ret_base = base;
		return 0;
	}
	if (errno == EACCES || errno == EPERM)
		return tdp_fault_set(fault, TIDL_ERR_SEGMENT_BAD,
				     "the broker granted more than its descriptor allows: get the "
				     "tensor again, and report this if it happens twice");
	return tdp_fault_errno(fault, errno, "cannot map %llu bytes",
			       (unsigned long long)spec->wire->data_size_bytes);
}

static struct tdc_segment *segment_new(const struct tdc_segment_spec *spec)
{
	struct tdc_segment *segment = calloc(1, sizeof(*segment));

	if (segment == NULL)
		return NULL;
	segment->refs = 1;
	segment->key.id = spec->wire->id;
	segment->key.era = spec->era;
	segment->key.attach = spec->attach;
	segment->attach = spec->attach;
	segment->owner_uid = spec->owner_uid;
	segment->is_allocated = spec->is_allocated;
	atomic_init(&segment->access, (int)spec->access);
	atomic_init(&segment->is_readonly, spec->attach == TIDL_ATTACH_READ);
	segment->map_bytes = spec->wire->data_size_bytes;
	segment->data_offset_bytes = spec->wire->data_offset_bytes;
	return segment;
}

struct tdc_segment *tdc_segment_place(const struct tdc_segment_place *place)
{
	struct tdc_segment *segment = calloc(1, sizeof(*segment));

	if (segment == NULL)
		return NULL;
	segment->refs = 1;
	segment->key.id = place->id;
	segment->key.era = place->era;
	segment->key.attach = TIDL_ATTACH_WRITE;
	segment->attach = TIDL_ATTACH_WRITE;
	segment->owner_uid = place->owner_uid;
	segment->is_allocated = true;
	segment->base = place->base;
	segment->map_bytes = place->size_bytes;
	segment->data_offset_bytes = place->offset_bytes;
	segment->moved = place->moved;
	return segment;
}

static struct tdc_segment *segment_free(struct tdc_segment *segment)
{
	if (segment == NULL)
		return NULL;
	(void)tdc_steps_free(segment->steps);
	if (segment->base != NULL && segment->moved == NULL)
		(void)munmap(segment->base, segment->map_bytes);
	free(segment);
	return NULL;
}

static bool segment_matches(const struct tdc_segment *segment, const struct tdp_segment *wire)
{
	return segment->map_bytes == wire->data_size_bytes &&
	       segment->data_offset_bytes == wire->data_offset_bytes;
}

/* Enter a segment into the tables, or take one reference to what another thread entered first. */
static int segment_link(struct tidl_client *client, const struct tdp_segment *wire,
			struct tdc_segment *segment, struct tdc_segment **ret_linked,
			struct tdp_fault *fault)
{
	struct tdc_segment *linked;
	int r = 0;

	tdc_client_lock(client);
	linked = tdc_segtable_find(&client->segments, segment->key.id, segment->key.era,
				   segment->attach);
	if (linked == NULL) {
		linked = segment;
		if (tdc_segtable_link(&client->segments, segment) < 0)
			r = tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	} else if (segment_matches(linked, wire)) {
		linked->refs++;
	} else {
		r = tdp_fault_set(fault, TIDL_ERR_SEGMENT_BAD,
				  "the broker announced segment %llu with two different sizes: "
				  "check its version",
				  (unsigned long long)wire->id);
	}
	tdc_client_unlock(client);
	if (r == 0)
		*ret_linked = linked;
	return r;
}

int tdc_segment_map(struct tidl_client *client, const struct tdc_segment_spec *spec,
		    struct tdc_segment **ret_segment, struct tdp_fault *fault)
{
	struct tdc_segment *segment = segment_new(spec);
	struct tdc_segment *linked = NULL;
	int r;

	if (segment == NULL)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	r = segment_mmap(spec, &segment->base, fault);
	if (r == 0)
		r = segment_link(client, spec->wire, segment, &linked, fault);
	if (linked != segment)
		(void)segment_free(segment);
	if (r == 0)
		*ret_segment = linked;
	return r;
}

struct tdc_segment *tdc_segment_find(struct tidl_client *client, const struct tdp_segment *wire,
				     uint64_t era, enum tidl_attach attach)
{
	struct tdc_segment *segment;

	tdc_client_lock(client);
	segment = tdc_segtable_find(&client->segments, wire->id, era, attach);
	if (segment != NULL && segment_matches(segment, wire))
		segment->refs++;
	else
		segment = NULL;
	tdc_client_unlock(client);
	return segment;
}

struct tdc_segment *tdc_segment_find_range(struct tidl_client *client, uintptr_t begin,
					   uintptr_t end)
{
	struct tdc_segment *segment;

	tdc_client_lock(client);
	segment = tdc_segtable_find_range(&client->segments, begin, end);
	if (segment != NULL && segment->is_leaving)
		segment = NULL;
	if (segment != NULL)
		segment->refs++;
	tdc_client_unlock(client);
	return segment;
}

struct tdc_segment *tdc_segment_ref(struct tidl_client *client, struct tdc_segment *segment)
{
	tdc_client_lock(client);
	segment->refs++;
	tdc_client_unlock(client);
	return segment;
}

struct tdc_segment *tdc_segment_unref(struct tidl_client *client, struct tdc_segment *segment)
{
	bool is_last;

	if (segment == NULL)
		return NULL;
	tdc_client_lock(client);
	is_last = --segment->refs == 0;
	if (is_last && segment->is_linked)
		tdc_segtable_unlink(&client->segments, segment);
	tdc_client_unlock(client);
	/* Unmapping a large segment takes time, so not under the lock. */
	return is_last ? segment_free(segment) : NULL;
}
