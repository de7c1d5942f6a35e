/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Manifests of bundles that are published. They were checked when they came and are sealed, so
 * reading them again finds the same; still nothing that is read is taken for granted. Whether a
 * bundle is in order is found out by the handlers.
 */
#include "daemon/manifest.h"

#include <stdlib.h>

#include "proto/base/checked.h"
#include "proto/base/fd.h"
#include "proto/mem/memfd.h"
#include "proto/mem/sealed.h"

int tdd_manifest_new(int fd, size_t size_bytes, const struct tdp_manifest *counts,
		     struct tdd_manifest **ret_manifest)
{
	size_t offset_count = counts->tensor_count + counts->empty_mapping_count + 1;
	struct tdd_manifest *manifest =
		calloc(1, sizeof(*manifest) + offset_count * sizeof(manifest->row_offsets[0]));

	if (!manifest)
		return TIDL_ERR_NO_MEMORY;
	manifest->fd = fd;
	manifest->size_bytes = size_bytes;
	manifest->tensor_count = counts->tensor_count;
	manifest->empty_mapping_count = counts->empty_mapping_count;
	*ret_manifest = manifest;
	return 0;
}

struct tdd_manifest *tdd_manifest_free(struct tdd_manifest *manifest)
{
	if (!manifest)
		return NULL;
	tdp_fd_close(manifest->fd);
	free(manifest);
	return NULL;
}

uint64_t tdd_manifest_memory_bytes(const struct tdd_manifest *manifest)
{
	uint64_t memfd_bytes;

	if (!tdp_round_up_u64(manifest->size_bytes, tdp_page_bytes(), &memfd_bytes))
		memfd_bytes = UINT64_MAX;
	return memfd_bytes + sizeof(*manifest) +
	       (tdd_manifest_row_count(manifest) + 1) * sizeof(manifest->row_offsets[0]);
}

void *tdd_manifest_read(const struct tdd_manifest *manifest, size_t first, size_t count,
			size_t *ret_size_bytes, struct tdp_fault *fault)
{
	size_t begin = manifest->row_offsets[first];
	size_t size_bytes = manifest->row_offsets[first + count] - begin;
	void *bytes = malloc(size_bytes ? size_bytes : 1);

	if (!bytes) {
		tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
		return NULL;
	}
	if (tdp_sealed_read(manifest->fd, bytes, size_bytes, begin, fault) == 0) {
		*ret_size_bytes = size_bytes;
		return bytes;
	}
	free(bytes);
	return NULL;
}

static int rows_decode(const void *bytes, size_t size_bytes, size_t count,
		       struct tdp_manifest_row *rows, struct tdp_fault *fault)
{
	struct tdp_manifest_reader reader;

	tdp_manifest_reader_init(&reader, bytes, size_bytes);
	for (size_t i = 0; i < count; i++) {
		int r = tdp_manifest_next(&reader, &rows[i], fault);

		if (r < 0)
			return r;
		if (rows[i].kind != TDP_MANIFEST_TENSOR)
			return tdp_fault_code(fault, TIDL_ERR_SYSTEM);
	}
	return 0;
}

int tdd_manifest_read_rows(const struct tdd_manifest *manifest, size_t first, size_t count,
			   struct tdp_manifest_row *ret_rows, struct tdp_fault *fault)
{
	size_t size_bytes;
	void *bytes = tdd_manifest_read(manifest, first, count, &size_bytes, fault);
	int r;

	if (!bytes)
		return fault->code;
	r = rows_decode(bytes, size_bytes, count, ret_rows, fault);
	free(bytes);
	return r;
}
