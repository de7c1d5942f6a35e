/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_MANIFEST_H
#define TDD_MANIFEST_H

#include <stddef.h>
#include <stdint.h>

#include "proto/base/attr.h"
#include "proto/base/fault.h"
#include "proto/wire/manifest.h"

/*
 * The manifest of a bundle: the sealed memfd that its publisher sent, which every reader gets, and
 * where in it each row begins. The rows themselves stay in the memfd. Owned by the
 * publication, once that exists; nothing in it ever changes.
 */
struct tdd_manifest {
	int fd;
	size_t size_bytes;
	size_t tensor_count;
	size_t empty_mapping_count;
	uint32_t row_offsets[]; /* of each tensor and empty mapping, and the end of the last */
};

/* Offsets are for the caller to fill in. @fd is taken over, on success only. */
int tdd_manifest_new(int fd, size_t size_bytes, const struct tdp_manifest *counts,
		     struct tdd_manifest **ret_manifest) TDP_MUST_CHECK;

/* Returns NULL; NULL is allowed. */
struct tdd_manifest *tdd_manifest_free(struct tdd_manifest *manifest);

/* What it takes, here and in the memfd. */
uint64_t tdd_manifest_memory_bytes(const struct tdd_manifest *manifest);

/* Tensors and empty mappings. */
static inline size_t tdd_manifest_row_count(const struct tdd_manifest *manifest)
{
	return manifest->tensor_count + manifest->empty_mapping_count;
}

/* The bytes of @count rows from @first on, which all exist: to be freed by the caller; NULL and the
 * fault when they cannot be had. */
void *tdd_manifest_read(const struct tdd_manifest *manifest, size_t first, size_t count,
			size_t *ret_size_bytes, struct tdp_fault *fault);

/* The same, decoded; tensors alone. */
int tdd_manifest_read_rows(const struct tdd_manifest *manifest, size_t first, size_t count,
			   struct tdp_manifest_row *ret_rows,
			   struct tdp_fault *fault) TDP_MUST_CHECK;

#endif
