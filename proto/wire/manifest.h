/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDP_WIRE_MANIFEST_H
#define TDP_WIRE_MANIFEST_H

#include <stddef.h>
#include <stdint.h>

#include "proto/base/arena.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"
#include "proto/wire/limits.h"
#include "proto/wire/message.h"

/*
 * The lists of a bundle that are too long for a packet, as the content of a sealed memfd: one
 * protobuf Manifest. They are read without protobuf-c, row by row and without memory of their own,
 * since the broker has one thread and a row costs protobuf-c several allocations.
 *
 * Reading checks what tdp_message_unpack() checks: encoding, ranges, lengths, texts. Keys, layouts
 * and segment indexes are for the reader to check.
 */
struct tdp_manifest {
	size_t segment_count;
	const struct tdp_segment *segments;
	size_t tensor_count;
	const struct tdp_tensor *tensors;
	size_t empty_mapping_count;
	const struct tdp_empty_mapping *empty_mappings;
};

/*
 * The size of the lists when packed. Beyond TDP_INLINE_ROWS_MAX_BYTES a Publish must have a
 * manifest. Strides of NULL count as the compact ones.
 */
size_t tdp_manifest_packed_bytes(const struct tdp_manifest *manifest);

/* Pack into tdp_manifest_packed_bytes() of @buffer. */
void tdp_manifest_pack(const struct tdp_manifest *manifest, void *buffer);

/*
 * Unpack all of it into @arena, whose cap should allow for TDP_MANIFEST_UNPACK_MAX_BYTES.
 * Returns 0, TIDL_ERR_PROTOCOL (malformed, out of range, more rows than allowed) or
 * TIDL_ERR_NO_MEMORY.
 */
int tdp_manifest_unpack(struct tdp_arena *arena, const void *bytes, size_t size_bytes,
			struct tdp_manifest *ret_manifest, struct tdp_fault *fault) TDP_MUST_CHECK;

/* How many rows of each kind there are, without a look into them: 0, or TIDL_ERR_PROTOCOL. */
int tdp_manifest_count(const void *bytes, size_t size_bytes, struct tdp_manifest *ret_counts,
		       struct tdp_fault *fault) TDP_MUST_CHECK;

/* Rows of the highest rank with the longest keys do not all fit into a manifest. */
enum { TDP_MANIFEST_UNPACK_MAX_BYTES = 24 << 20 };

/* ---- row by row ---- */

enum tdp_manifest_kind {
	TDP_MANIFEST_END,
	TDP_MANIFEST_SEGMENT,
	TDP_MANIFEST_TENSOR,
	TDP_MANIFEST_EMPTY_MAPPING,
};

/* One row, with room for what it points to: valid until the next one is read. */
struct tdp_manifest_row {
	enum tdp_manifest_kind kind;
	size_t offset_bytes; /* where it begins in the manifest */
	size_t end_bytes;    /* and ends */
	struct tdp_segment segment;
	struct tdp_tensor tensor;
	struct tdp_empty_mapping empty_mapping;
	const char *raw_key; /* the key inside the manifest's own bytes, not terminated */
	size_t key_bytes;
	char key[TDP_KEY_MAX_BYTES + 1];
	int64_t shape[TDP_NDIM_MAX];
	int64_t strides[TDP_NDIM_MAX];
};

struct tdp_manifest_reader {
	const uint8_t *bytes;
	size_t size_bytes;
	size_t position_bytes;
	enum tdp_manifest_kind last_kind;
};

/* Also for a piece of a manifest that begins and ends between two rows. */
void tdp_manifest_reader_init(struct tdp_manifest_reader *reader, const void *bytes,
			      size_t size_bytes);

/* Returns 0 (look at `kind`, which is END behind the last row) or TIDL_ERR_PROTOCOL. */
int tdp_manifest_next(struct tdp_manifest_reader *reader, struct tdp_manifest_row *row,
		      struct tdp_fault *fault) TDP_MUST_CHECK;

#endif
