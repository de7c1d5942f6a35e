/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moved memory from its beginning to its end. The parts' segments are in the client's table, so
 * that every tensor over them is recognised; their maps belong to whoever allocated the memory, and
 * are never unmapped here. Knows no names (uses.c).
 */
#include "client/lib/inplace/moved.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <utlist.h>

#include "client/lib/allocation.h"
#include "client/lib/client.h"
#include "client/lib/inplace/provisions.h"
#include "client/lib/inplace/retreat.h"
#include "client/lib/inplace/uses.h"
#include "proto/base/fd.h"

static struct tdc_moved *moved_free(struct tdc_moved *moved)
{
	if (moved == NULL)
		return NULL;
	tdc_uses_free(moved);
	for (size_t i = 0; i < moved->source_count; i++)
		(void)tdc_source_unref(moved->sources[i]);
	(void)tdp_fd_close(moved->fd);
	free(moved->sources);
	free(moved);
	return NULL;
}

static struct tdc_moved *moved_new(const struct tdc_move_order *order, struct tdp_fault *fault)
{
	struct tdc_moved *moved =
		calloc(1, sizeof(*moved) + order->range_count * sizeof(struct tdc_moved_part));

	if (moved != NULL) {
		moved->fd = -1;
		moved->sources = calloc(order->source_count + 1, sizeof(struct tdc_source *));
	}
	if (moved == NULL || moved->sources == NULL) {
		(void)tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
		return moved_free(moved);
	}
	moved->is_busy = true;
	moved->part_count = order->range_count;
	for (size_t i = 0; i < order->range_count; i++)
		moved->parts[i].range = order->ranges[i];
	for (; moved->source_count < order->source_count; moved->source_count++)
		moved->sources[moved->source_count] =
			tdc_source_ref(order->sources[moved->source_count]);
	return moved;
}

static uint64_t order_size_bytes(const struct tdc_move_order *order)
{
	uint64_t size_bytes = 0;

	for (size_t i = 0; i < order->range_count; i++)
		size_bytes += order->ranges[i].size_bytes;
	return size_bytes;
}

/* The parts' places in the segment, one behind the other. */
static int moved_lay_out(struct tdc_moved *moved, const struct tdc_allocation *allocation,
			 bool nobody_writes, struct tdp_fault *fault)
{
	struct tdc_backing backing = {
		.fd = allocation->fd,
		.offset_bytes = allocation->wire.data_offset_bytes,
		.nobody_writes = nobody_writes,
	};
	int r = tdc_backing_identify(&backing, fault);

	if (r < 0)
		return r;
	for (size_t i = 0; i < moved->part_count; i++) {
		struct tdc_moved_part *part = &moved->parts[i];

		part->backing = backing;
		backing.offset_bytes += part->range.size_bytes;
		backing.file.offset_bytes = backing.offset_bytes;
	}
	return 0;
}

static int moved_make_segments(struct tidl_client *client, struct tdc_moved *moved,
			       const struct tdc_allocation *allocation, struct tdp_fault *fault)
{
	uint32_t uid;
	int r = tdc_client_lock_open(client, fault);

	if (r < 0)
		return r;
	uid = client->broker.uid;
	tdc_client_unlock(client);
	for (size_t i = 0; i < moved->part_count; i++) {
		struct tdc_moved_part *part = &moved->parts[i];
		struct tdc_segment_place place = {
			.id = allocation->wire.id,
			.era = allocation->lease->era,
			.owner_uid = uid,
			.base = part->range.begin,
			.size_bytes = part->range.size_bytes,
			.offset_bytes = part->backing.offset_bytes,
			.moved = moved,
		};

		part->segment = tdc_segment_place(&place);
		if (part->segment == NULL)
			return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	}
	return 0;
}

/* Other threads may have moved some of it since it was looked at. */
static int moved_check(const struct tdc_moved *moved, struct tdp_fault *fault)
{
	struct tdc_maps maps;
	int r = tdc_maps_load(&maps, fault);

	if (r < 0)
		return r;
	for (size_t i = 0; i < moved->part_count && r == 0; i++)
		r = tdc_range_check(&maps, &moved->parts[i].range, fault);
	tdc_maps_deinit(&maps);
	return r;
}

static void moved_take_back(struct tdc_moved *moved)
{
	for (size_t i = 0; i < moved->part_count; i++)
		tdc_move_undo(&moved->parts[i].range, &moved->parts[i].backing);
}

static int moved_link(struct tidl_client *client, struct tdc_moved *moved, struct tdp_fault *fault)
{
	size_t linked = 0;
	int r = 0;

	tdc_client_lock(client);
	for (; linked < moved->part_count; linked++) {
		if (tdc_segtable_link(&client->segments, moved->parts[linked].segment) < 0)
			break;
	}
	if (linked < moved->part_count) {
		while (linked-- > 0)
			tdc_segtable_unlink(&client->segments, moved->parts[linked].segment);
		r = tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	} else {
		DL_APPEND(client->moved, moved);
	}
	tdc_client_unlock(client);
	return r;
}

/* Descriptors are given out from the lowest number on, so this one's tells how many are left. */
static bool fd_is_spare(int fd)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_NOFILE, &limit) == 0 && (rlim_t)fd < limit.rlim_cur / 2;
}

/* With the segment's descriptor the way back needs nothing else (retreat.c). Moves locked. */
static void moved_keep_fd(struct tdc_moved *moved, struct tdc_allocation *allocation)
{
	if (fd_is_spare(allocation->fd))
		moved->fd = tdp_fd_steal(&allocation->fd);
	for (size_t i = 0; i < moved->part_count; i++)
		moved->parts[i].backing.fd = moved->fd;
}

static int moved_move(struct tidl_client *client, struct tdc_moved *moved,
		      struct tdc_allocation *allocation, struct tdp_fault *fault)
{
	int r;

	tdc_moves_lock();
	tdc_provisions_take();
	r = moved_check(moved, fault);
	for (size_t i = 0; i < moved->part_count && r == 0; i++)
		r = tdc_move(&moved->parts[i].range, &moved->parts[i].backing, fault);
	if (r == 0)
		r = moved_link(client, moved, fault);
	if (r == 0) {
		moved_keep_fd(moved, allocation);
	} else {
		moved_take_back(moved);
		tdc_provisions_give_back();
	}
	tdc_moves_unlock();
	return r;
}

/* Nothing of it is in any table. */
static void moved_discard(struct tidl_client *client, struct tdc_moved *moved)
{
	for (size_t i = 0; i < moved->part_count; i++)
		free(moved->parts[i].segment);
	tdc_lease_end(client, moved->lease);
	(void)moved_free(moved);
}

int tdc_moved_make(struct tidl_client *client, const struct tdc_move_order *order,
		   struct tdc_moved **ret_moved, struct tdp_fault *fault)
{
	struct tdc_allocation allocation;
	struct tdc_moved *moved = moved_new(order, fault);
	int r;

	if (moved == NULL)
		return fault->code;
	r = tdc_allocate(client, order_size_bytes(order), &allocation, fault);
	if (r < 0) {
		(void)moved_free(moved);
		return r;
	}
	r = moved_lay_out(moved, &allocation, order->nobody_writes, fault);
	if (r == 0)
		r = moved_make_segments(client, moved, &allocation, fault);
	if (r == 0)
		r = moved_move(client, moved, &allocation, fault);
	moved->lease = allocation.lease;
	allocation.lease = NULL;
	tdc_allocation_deinit(client, &allocation);
	if (r < 0)
		moved_discard(client, moved);
	else
		*ret_moved = moved;
	return r;
}

/* ---- the end ---- */

/* Whoever finds a part by its address keeps it; then it cannot end. Client locked. */
static bool moved_is_alone(const struct tdc_moved *moved)
{
	for (size_t i = 0; i < moved->part_count; i++) {
		if (moved->parts[i].segment->refs > 1)
			return false;
	}
	return true;
}

/* Client locked. */
static bool moved_is_used(const struct tdc_moved *moved)
{
	const struct tdc_moved_use *use;

	DL_FOREACH (moved->uses, use) {
		if (!use->is_dropped)
			return true;
	}
	return false;
}

static int moved_claim(struct tidl_client *client, struct tdc_moved *moved, struct tdp_fault *fault)
{
	int r = 0;

	tdc_client_lock(client);
	if (!moved_is_used(moved) && moved_is_alone(moved)) {
		for (size_t i = 0; i < moved->part_count; i++)
			moved->parts[i].segment->is_leaving = true;
	} else {
		r = tdp_fault_set(fault, TIDL_ERR_BUSY,
				  "another thread is publishing this memory: wait until it is "
				  "done");
	}
	tdc_client_unlock(client);
	return r;
}

/* All parts, whatever becomes of one; ascending, so that the maps are read once. Moves locked. */
static int moved_unmove_parts(struct tdc_moved *moved, struct tdp_fault *fault)
{
	struct tdp_fault one;
	int r = 0;

	for (size_t i = 0; i < moved->part_count; i++) {
		struct tdc_moved_part *part = &moved->parts[i];

		/* Who made it read-only has ended all writing, and the kernel watches no such map.
		 */
		if (atomic_load(&part->segment->is_readonly))
			part->backing.nobody_writes = true;
		if (tdc_unmove(&part->range, &part->backing, &one) == 0)
			continue;
		/* Freed by its owner: nothing is left to do. */
		if (one.code == TIDL_ERR_RELEASED) {
			part->range.shared_bytes = 0;
			continue;
		}
		*fault = one;
		r = one.code;
	}
	return r;
}

static int moved_unmove(struct tdc_moved *moved, struct tdp_fault *fault)
{
	int r;

	tdc_moves_lock();
	r = moved_unmove_parts(moved, fault);
	if (r == 0)
		tdc_provisions_give_back();
	tdc_moves_unlock();
	return r;
}

/* What is still shared as a whole can be published again. Client locked. */
static void moved_keep(struct tdc_moved *moved)
{
	for (size_t i = 0; i < moved->part_count; i++) {
		const struct tdc_range *range = &moved->parts[i].range;

		if (range->shared_bytes == range->size_bytes && !range->is_apart)
			moved->parts[i].segment->is_leaving = false;
	}
}

/* It is in no list any more. */
static void moved_release(struct tidl_client *client, struct tdc_moved *moved)
{
	for (size_t i = 0; i < moved->part_count; i++)
		(void)tdc_segment_unref(client, moved->parts[i].segment);
	tdc_lease_end(client, moved->lease);
}

int tdc_moved_end(struct tidl_client *client, struct tdc_moved *moved, struct tdp_fault *fault)
{
	int r = moved_claim(client, moved, fault);

	if (r == 0)
		r = moved_unmove(moved, fault);
	tdc_client_lock(client);
	moved->is_busy = false;
	if (r == 0)
		DL_DELETE(client->moved, moved);
	else
		moved_keep(moved);
	tdc_client_unlock(client);
	if (r < 0)
		return r;
	moved_release(client, moved);
	(void)moved_free(moved);
	return 0;
}

/* Can their owners free what has not become private? What is left to be kept for it is not any
 * more. */
static bool moved_save_headers(struct tdc_moved *moved, uint64_t *ret_left_bytes)
{
	struct tdp_fault one;
	bool is_saved = true;

	*ret_left_bytes = 0;
	tdc_moves_lock();
	for (size_t i = 0; i < moved->part_count; i++) {
		struct tdc_moved_part *part = &moved->parts[i];

		*ret_left_bytes += part->range.shared_bytes;
		if (tdc_unmove_header(&part->range, &part->backing, &one) < 0 &&
		    one.code != TIDL_ERR_RELEASED)
			is_saved = false;
	}
	tdc_provisions_give_back();
	tdc_moves_unlock();
	return is_saved;
}

/* A block that others could break is never freed. Guarded by the moves' lock. */
static struct tdc_moved *held_for_ever;

static void moved_hold(struct tdc_moved *moved)
{
	tdc_uses_free(moved);
	moved->fd = tdp_fd_close(moved->fd);
	tdc_moves_lock();
	DL_APPEND(held_for_ever, moved);
	tdc_moves_unlock();
}

int tdc_moved_end_last(struct tidl_client *client, struct tdc_moved *moved,
		       uint64_t *ret_left_bytes, struct tdp_fault *fault)
{
	int r = moved_unmove(moved, fault);
	bool can_free = r == 0 || moved_save_headers(moved, ret_left_bytes);

	tdc_client_lock(client);
	DL_DELETE(client->moved, moved);
	tdc_client_unlock(client);
	/* In a forked child threads that it does not have may have found them. */
	for (size_t i = 0; i < moved->part_count; i++)
		tdc_moved_disown(client, moved->parts[i].segment);
	moved_release(client, moved);
	if (can_free)
		(void)moved_free(moved);
	else
		moved_hold(moved);
	return r;
}

bool tdc_moved_is_there(const struct tdc_segment *segment, const struct tdc_maps *maps)
{
	const struct tdc_moved *moved = segment->moved;

	for (size_t i = 0; i < moved->part_count; i++) {
		const struct tdc_moved_part *part = &moved->parts[i];

		if (part->segment == segment)
			return tdc_range_left_bytes(maps, &part->range, part->range.size_bytes,
						    &part->backing.file) == part->range.size_bytes;
	}
	return false;
}

void tdc_moved_disown(struct tidl_client *client, struct tdc_segment *segment)
{
	tdc_client_lock(client);
	if (segment->is_linked)
		tdc_segtable_unlink(&client->segments, segment);
	tdc_client_unlock(client);
}
