/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_POOL_H
#define TDC_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/lib/allocation.h"
#include "client/lib/lease.h"
#include "client/lib/packing.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"
#include "proto/wire/message.h"

struct tidl_client;

/* Memory that a client keeps mapped to copy into, whether it is free or published just now. */
#define TDC_POOL_MAX_BYTES (UINT64_C(256) << 20)
enum { TDC_POOL_MAX_SEGMENTS = 8 };

/* Sizes that were copied lately, to see which come again. */
enum { TDC_POOL_SIZES = 8 };

/* Publishes after which what is still published is given up, so that something else has room. */
enum { TDC_POOL_PATIENCE = 64 };

/*
 * A segment that this process has mapped for writing, to copy tensors into it. Writes go there only
 * while it is taken: then it is an allocation, and nobody else has it. Owned by the pool, or by
 * whoever took it.
 */
struct tdc_pooled {
	struct tdc_lease *lease; /* so that it can be given up without asking for memory */
	unsigned char *base;
	uint64_t data_offset_bytes;
	uint64_t size_bytes;
	bool is_lent;	/* published; the broker says when it is free again */
	uint64_t since; /* publishes of the pool before it was lent */
	struct tdc_pooled *prev, *next;
};

/* Guarded by the client's lock. */
struct tdc_pool {
	struct tdc_pooled *entries;
	uint64_t publish_count;
	uint64_t sizes[TDC_POOL_SIZES];
	size_t next_size;
};

/*
 * Memory for a pack, mapped, if sizes like that come again and again; NULL in @ret_pooled if this
 * is a copy to be made once. Blocks for one round trip when it is new.
 */
int tdc_pool_take(struct tidl_client *client, uint64_t size_bytes, struct tdc_pooled **ret_pooled,
		  struct tdp_fault *fault) TDP_MUST_CHECK;

/* Fill it. What no part covers is zeroed: it may have somebody's older bytes. */
void tdc_pooled_fill(const struct tdc_pooled *pooled, const struct tdc_pack *pack);

/* It was published; what the broker says of others is done. */
void tdc_pool_lend(struct tidl_client *client, struct tdc_pooled *pooled);
void tdc_pool_settle(struct tidl_client *client, const struct tdp_published *published);

/* Unmap it and give it up, whatever the broker has made of it. NULL is allowed. Returns NULL. */
struct tdc_pooled *tdc_pooled_free(struct tidl_client *client, struct tdc_pooled *pooled);

/* The same with all. Client locked, or the only one who knows it: a lease is given up by nobody
 * here, since the connection ends, or is the parent's. */
void tdc_pool_forget(struct tdc_pool *pool);

#endif
