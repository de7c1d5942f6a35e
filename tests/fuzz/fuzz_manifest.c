/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a manifest. What unpacks can be packed again, and then stays as it is. */
#include <stdlib.h>
#include <string.h>

#include "proto/base/arena.h"
#include "proto/names.h"
#include "proto/wire/manifest.h"
#include "tests/fuzz/fuzz.h"

/* Packs and unpacks what was unpacked: the second form must be the first one. */
static void repack(const struct tdp_manifest *manifest)
{
	size_t size = tdp_manifest_packed_bytes(manifest);
	unsigned char *first = malloc(size ? size : 1), *second = malloc(size ? size : 1);
	struct tdp_manifest again;
	struct tdp_fault fault;
	tdp_auto_arena arena;

	TT_FUZZ_EXPECT(first != NULL && second != NULL);
	tdp_manifest_pack(manifest, first);
	tdp_arena_init(&arena, TDP_MANIFEST_UNPACK_MAX_BYTES);
	TT_FUZZ_EXPECT(tdp_manifest_unpack(&arena, first, size, &again, &fault) == 0);
	TT_FUZZ_EXPECT(tdp_manifest_packed_bytes(&again) == size);
	tdp_manifest_pack(&again, second);
	TT_FUZZ_EXPECT(memcmp(first, second, size) == 0);
	free(first);
	free(second);
}

/* Row by row the same is found as at once. */
static void read_rows(const uint8_t *data, size_t size, const struct tdp_manifest *manifest)
{
	struct tdp_manifest_reader reader;
	struct tdp_manifest_row row;
	struct tdp_fault fault;
	size_t counts[TDP_MANIFEST_EMPTY_MAPPING + 1] = {0};

	tdp_manifest_reader_init(&reader, data, size);
	do {
		TT_FUZZ_EXPECT(tdp_manifest_next(&reader, &row, &fault) == 0);
		counts[row.kind]++;
		TT_FUZZ_EXPECT(row.offset_bytes <= size);
	} while (row.kind != TDP_MANIFEST_END);
	TT_FUZZ_EXPECT(counts[TDP_MANIFEST_SEGMENT] == manifest->segment_count);
	TT_FUZZ_EXPECT(counts[TDP_MANIFEST_TENSOR] == manifest->tensor_count);
	TT_FUZZ_EXPECT(counts[TDP_MANIFEST_EMPTY_MAPPING] == manifest->empty_mapping_count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tdp_manifest manifest;
	struct tdp_fault fault = {0};
	tdp_auto_arena arena;
	int result;

	tdp_arena_init(&arena, TDP_MANIFEST_UNPACK_MAX_BYTES);
	result = tdp_manifest_unpack(&arena, data, size, &manifest, &fault);
	if (result == 0) {
		read_rows(data, size, &manifest);
		repack(&manifest);
		return 0;
	}
	TT_FUZZ_EXPECT(result == TIDL_ERR_PROTOCOL || result == TIDL_ERR_NO_MEMORY);
	TT_FUZZ_EXPECT(fault.code == result);
	TT_FUZZ_EXPECT(tdp_text_is_clean(fault.text, strlen(fault.text)));
	return 0;
}
