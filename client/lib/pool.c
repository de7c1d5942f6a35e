/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies into pages that are there. A tensor that is published again and again costs one copy at
 * the speed of memory then, without fresh pages, without a map and without a round trip for the
 * allocation. Owned by the client. Starts with the second copy of a size, so that who publishes
 * once keeps nothing.
 */
#include "client/lib/pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <utlist.h>

#include "client/lib/client.h"
#include "client/lib/huge.h"
#include "proto/base/checked.h"
#include "proto/mem/memfd.h"
#include "proto/tensor/layout.h"

static struct tdc_pooled *pooled_unmap(struct tdc_pooled *pooled)
{
	if (pooled->base != NULL)
		(void)munmap(pooled->base, pooled->size_bytes);
	free(pooled);
	return NULL;
}

struct tdc_pooled *tdc_pooled_free(struct tidl_client *client, struct tdc_pooled *pooled)
{
	struct tdc_lease *lease;

	if (pooled == NULL)
		return NULL;
	lease = pooled->lease;
	/* Unmap first: once it is given up, the broker may promise others that nobody writes. */
	(void)pooled_unmap(pooled);
	tdc_lease_end(client, lease);
	return NULL;
}

/* ---- what to keep ---- */

/* Has a copy of this size been made lately? Client locked. */
static bool pool_note_size(struct tdc_pool *pool, uint64_t size_bytes)
{
	for (size_t i = 0; i < TDC_POOL_SIZES; i++) {
		if (pool->sizes[i] == size_bytes)
			return true;
	}
	pool->sizes[pool->next_size] = size_bytes;
	pool->next_size = (pool->next_size + 1) % TDC_POOL_SIZES;
	return false;
}

static bool pool_has_room(const struct tdc_pool *pool, uint64_t size_bytes)
{
	uint64_t total = size_bytes;
	const struct tdc_pooled *pooled;
	size_t count = 1;

	DL_FOREACH (pool->entries, pooled) {
		total += pooled->size_bytes;
		count++;
	}
	return size_bytes <= TDC_POOL_MAX_BYTES && total <= TDC_POOL_MAX_BYTES &&
	       count <= TDC_POOL_MAX_SEGMENTS;
}

/* One that is in the way of another size: free, or published for so long that nobody waits for it.
 * Taken out. Client locked. */
static struct tdc_pooled *pool_take_surplus(struct tdc_pool *pool)
{
	struct tdc_pooled *pooled;

	DL_FOREACH (pool->entries, pooled) {
		if (!pooled->is_lent || pool->publish_count - pooled->since > TDC_POOL_PATIENCE) {
			DL_DELETE(pool->entries, pooled);
			return pooled;
		}
	}
	return NULL;
}

static struct tdc_pooled *pool_take_free(struct tdc_pool *pool, uint64_t size_bytes)
{
	struct tdc_pooled *pooled;

	DL_FOREACH (pool->entries, pooled) {
		if (!pooled->is_lent && pooled->size_bytes == size_bytes) {
			DL_DELETE(pool->entries, pooled);
			return pooled;
		}
	}
	return NULL;
}

/* Room for one more of this size, at the cost of others. */
static bool pool_make_room(struct tidl_client *client, uint64_t size_bytes)
{
	struct tdc_pool *pool = &client->pool;
	struct tdc_pooled *surplus;
	bool has_room;

	do {
		surplus = NULL;
		tdc_client_lock(client);
		has_room = pool_has_room(pool, size_bytes);
		if (!has_room && size_bytes <= TDC_POOL_MAX_BYTES)
			surplus = pool_take_surplus(pool);
		tdc_client_unlock(client);
		(void)tdc_pooled_free(client, surplus);
	} while (surplus != NULL);
	return has_room;
}

/* ---- new ones ---- */

static int pooled_map(struct tidl_client *client, struct tdc_pooled *pooled,
		      const struct tdc_allocation *allocation, struct tdp_fault *fault)
{
	bool is_huge = tdc_huge_is_allowed(allocation->wire.data_size_bytes);
	void *base;
	int r = is_huge ? 0 : tdc_allocation_reserve(client, allocation, fault);

	if (r < 0)
		return r;
	base = mmap(NULL, allocation->wire.data_size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
		    allocation->fd, (off_t)allocation->wire.data_offset_bytes);
	if (base == MAP_FAILED)
		return tdp_fault_errno(fault, errno, "cannot map %llu bytes to copy into",
				       (unsigned long long)allocation->wire.data_size_bytes);
	pooled->base = base;
	pooled->size_bytes = allocation->wire.data_size_bytes;
	pooled->data_offset_bytes = allocation->wire.data_offset_bytes;
	return is_huge ? tdc_huge_reserve(client, base, pooled->size_bytes, fault) : 0;
}

static int pooled_new(struct tidl_client *client, uint64_t size_bytes,
		      struct tdc_pooled **ret_pooled, struct tdp_fault *fault)
{
	struct tdc_pooled *pooled = calloc(1, sizeof(*pooled));
	struct tdc_allocation allocation;
	int r;

	if (pooled == NULL)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	r = tdc_allocate(client, size_bytes, &allocation, fault);
	if (r == 0) {
		r = pooled_map(client, pooled, &allocation, fault);
		if (r == 0) {
			pooled->lease = allocation.lease;
			allocation.lease = NULL;
		}
		tdc_allocation_deinit(client, &allocation);
	}
	if (r < 0) {
		(void)pooled_unmap(pooled);
		return r;
	}
	*ret_pooled = pooled;
	return 0;
}

int tdc_pool_take(struct tidl_client *client, uint64_t size_bytes, struct tdc_pooled **ret_pooled,
		  struct tdp_fault *fault)
{
	struct tdc_pooled *pooled = NULL;
	uint64_t rounded_bytes;
	bool is_repeated;

	*ret_pooled = NULL;
	if (!tdp_round_up_u64(size_bytes, tdp_page_bytes(), &rounded_bytes))
		return 0;
	tdc_client_lock(client);
	is_repeated = pool_note_size(&client->pool, rounded_bytes);
	if (is_repeated)
		pooled = pool_take_free(&client->pool, rounded_bytes);
	tdc_client_unlock(client);
	if (pooled != NULL) {
		*ret_pooled = pooled;
		return 0;
	}
	if (!is_repeated || !pool_make_room(client, rounded_bytes))
		return 0;
	return pooled_new(client, size_bytes, ret_pooled, fault);
}

/* ---- filling ---- */

static void part_copy(const struct tdc_pack_part *part, unsigned char *base)
{
	if (part->gathered != NULL)
		tdp_layout_gather(part->gathered, part->source, base + part->offset_bytes);
	else
		memcpy(base + part->offset_bytes, part->source, part->size_bytes);
}

void tdc_pooled_fill(const struct tdc_pooled *pooled, const struct tdc_pack *pack)
{
	uint64_t done = 0;

	/* Parts come in the order in which they lie. */
	for (size_t i = 0; i < pack->part_count; i++) {
		const struct tdc_pack_part *part = &pack->parts[i];

		memset(pooled->base + done, 0, part->offset_bytes - done);
		part_copy(part, pooled->base);
		done = part->offset_bytes + part->size_bytes;
	}
	memset(pooled->base + done, 0, pooled->size_bytes - done);
}

/* ---- what became of it ---- */

void tdc_pool_lend(struct tidl_client *client, struct tdc_pooled *pooled)
{
	tdc_client_lock(client);
	pooled->is_lent = true;
	pooled->since = client->pool.publish_count++;
	DL_APPEND(client->pool.entries, pooled);
	tdc_client_unlock(client);
}

static struct tdc_pooled *pool_find(const struct tdc_pool *pool, uint64_t segment_id)
{
	struct tdc_pooled *pooled;

	DL_FOREACH (pool->entries, pooled) {
		if (pooled->lease->id == segment_id)
			return pooled;
	}
	return NULL;
}

/* It is an allocation of this client again. One that is not found was given up meanwhile, and the
 * broker will read of that. */
static void pool_return(struct tidl_client *client, uint64_t segment_id)
{
	struct tdc_pooled *pooled;

	tdc_client_lock(client);
	pooled = pool_find(&client->pool, segment_id);
	if (pooled != NULL)
		pooled->is_lent = false;
	tdc_client_unlock(client);
}

static void pool_drop(struct tidl_client *client, uint64_t segment_id)
{
	struct tdc_pooled *pooled;

	tdc_client_lock(client);
	pooled = pool_find(&client->pool, segment_id);
	if (pooled != NULL)
		DL_DELETE(client->pool.entries, pooled);
	tdc_client_unlock(client);
	if (pooled == NULL)
		return;
	pooled->lease = tdc_lease_forget(pooled->lease);
	(void)pooled_unmap(pooled);
}

void tdc_pool_settle(struct tidl_client *client, const struct tdp_published *published)
{
	for (size_t i = 0; i < published->returned_count; i++)
		pool_return(client, published->returned_ids[i]);
	for (size_t i = 0; i < published->dropped_count; i++)
		pool_drop(client, published->dropped_ids[i]);
}

void tdc_pool_forget(struct tdc_pool *pool)
{
	struct tdc_pooled *pooled;
	struct tdc_pooled *next;

	DL_FOREACH_SAFE (pool->entries, pooled, next) {
		DL_DELETE(pool->entries, pooled);
		(void)tdc_lease_forget(pooled->lease);
		(void)pooled_unmap(pooled);
	}
}
