/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CLIENT_FAKE_STORE_H
#define TT_CLIENT_FAKE_STORE_H

#include "proto/wire/manifest.h"
#include "tests/unit/client/support/fake_broker.h"

/*
 * What a fake broker keeps: segments that were allocated and one bundle that was published, under
 * whatever name. `tt_store_serve` answers ALLOCATE, PUBLISH, GET, GET_MORE and counts RELEASE. The
 * test's thread looks at it before and after, not during a call.
 */
enum { TT_STORE_SEGMENTS = 1024, TT_STORE_LEASE = 41 };

struct tt_store {
	/* How it answers. */
	size_t part_limit; /* segments in a packet; 0: as many as descriptors fit */
	bool has_manifest; /* also for short lists */
	int fail_publish;  /* TIDL_ERR_*, to be answered */
	/* Change rows or an answer before it is sent; NULL: be honest. In the server's thread. */
	void (*bend_rows)(struct tt_store *store, struct tdp_tensor *rows, size_t count);
	void (*bend)(struct tt_store *store, struct tdp_message *message);
	int replaced_manifest_fd; /* sent in its place; 0: none */
	void *context;

	/* What happened. */
	size_t allocate_count;
	size_t publish_count;
	size_t manifest_count;
	size_t get_count;
	size_t more_count;
	size_t released_leases;
	size_t released_segments;
	struct tdp_publish published; /* numbers only */

	size_t segment_count;
	struct tdp_segment segments[TT_STORE_SEGMENTS];
	int write_fds[TT_STORE_SEGMENTS];
	int read_fds[TT_STORE_SEGMENTS];
	unsigned char *manifest;
	size_t manifest_bytes;
	size_t next_part; /* segments sent so far */
};

void tt_store_init(struct tt_store *store);
void tt_store_deinit(struct tt_store *store);
void tt_store_serve(struct tt_fake *fake, int fd);

#endif
