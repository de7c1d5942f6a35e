/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the seeds of all targets: <folder>/{codec,layout,manifest,names}/. Every message in full
 * and cut, layouts and patterns at their corners, and what fuzzing found once.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/wire/manifest.h"
#include "proto/wire/message.h"
#include "tests/fuzz/fuzz_layout.h"
#include "tests/support/messages.h"

static const char *corpus;
static unsigned int seed_count;

static void seed_write(const char *target, const void *bytes, size_t size)
{
	char path[4096];
	FILE *file;

	(void)snprintf(path, sizeof(path), "%s/%s/%04u", corpus, target, seed_count++);
	file = fopen(path, "wb");
	if (file == NULL || fwrite(bytes, 1, size, file) != size || fclose(file) != 0) {
		perror(path);
		exit(EXIT_FAILURE);
	}
}

static void folder_make(const char *path)
{
	if (mkdir(path, 0777) != 0 && errno != EEXIST) {
		perror(path);
		exit(EXIT_FAILURE);
	}
}

static void folders_make(void)
{
	static const char *const targets[] = {"codec", "layout", "manifest", "names"};

	folder_make(corpus);
	for (size_t i = 0; i < TDP_ARRAY_LENGTH(targets); i++) {
		char path[4096];

		(void)snprintf(path, sizeof(path), "%s/%s", corpus, targets[i]);
		folder_make(path);
	}
}

static void message_write(const struct tdp_message *message)
{
	static unsigned char packet[TDP_PACKET_MAX_BYTES];
	struct tdp_fault fault;
	size_t size;

	if (tdp_message_pack(message, packet, sizeof(packet), &size, &fault) != 0) {
		(void)fprintf(stderr, "%s\n", fault.text);
		exit(EXIT_FAILURE);
	}
	seed_write("codec", packet, size);
	seed_write("codec", packet, size / 2);
}

static void codec_write(void)
{
	/* The last body of two wins; merging what is repeated is protobuf's most intricate part. */
	static const char twice[] =
		"\x08\x05\x10\x00\x92\x01\x05\x08\x01\x12\x01x\xa2\x01\x02\x08\x01"
		"\x8a\x02\x06\x0a\x02\x08\x01\x0a\x00";

	for (int kind = TDP_MESSAGE_NONE; kind < TDP_MESSAGE_UNBUILT; kind++) {
		struct tdp_message message = tt_message_sample(kind);

		message_write(&message);
	}
	seed_write("codec", twice, sizeof(twice) - 1);
	seed_write("codec", "", 0);
}

/* A layout with the same extent and stride on all dimensions, in a window from 0 to @end. */
static void layout_write(struct tt_fuzz_layout head, int64_t extent, int64_t stride)
{
	unsigned char bytes[sizeof(head) + 2 * sizeof(int64_t) * 255];
	size_t size = sizeof(head);

	memcpy(bytes, &head, sizeof(head));
	for (int i = 0; i < head.ndim; i++, size += sizeof(extent))
		memcpy(bytes + size, &extent, sizeof(extent));
	for (int i = 0; i < head.ndim; i++, size += sizeof(stride))
		memcpy(bytes + size, &stride, sizeof(stride));
	seed_write("layout", bytes, size);
}

static void layouts_write(void)
{
	static const int64_t extents[] = {0, 1, 3, -1, INT64_MAX, 1ll << 32};
	static const int64_t strides[] = {0, 1, -1, 7, INT64_MAX, INT64_MIN};
	static const struct tt_fuzz_layout heads[] = {
		{2, 32, 1, 0, 0, 0, 0, 0, 0, 4},
		{2, 32, 1, 1, 0, 1, 0, 64, 0, 4096},
		{2, 32, 1, 3, 0, 0, 0, 0, 0, 4096},
		{5, 128, 3, 2, 0, 1, 0, 1ull << 40, 0, 1ull << 41},
		{17, 4, 1, 2, 0, 1, 0, 0, 0, 4096},
		{15, 6, 4, 2, 4, 1, 0, 4096, 4096, UINT64_MAX},
		{1, 8, 1, 64, 0, 1, 0, UINT64_MAX, 0, UINT64_MAX},
		{3, 64, 1, 65, 0, 1, 0, 0, 0, 0},
	};

	for (size_t i = 0; i < TDP_ARRAY_LENGTH(heads); i++) {
		for (size_t k = 0; k < TDP_ARRAY_LENGTH(extents) * TDP_ARRAY_LENGTH(strides); k++)
			layout_write(heads[i], extents[k / TDP_ARRAY_LENGTH(strides)],
				     strides[k % TDP_ARRAY_LENGTH(strides)]);
	}
}

/* The rows of a sample, whole, cut, and without one of their kinds. */
static void manifests_write(void)
{
	const struct tdp_message sample = tt_message_sample(TDP_MESSAGE_PUBLISH);
	const struct tdp_publish *publish = &sample.publish;
	static unsigned char bytes[TDP_PACKET_MAX_BYTES];

	for (int kinds = 0; kinds < 8; kinds++) {
		struct tdp_manifest manifest = {
			.segment_count = kinds & 1 ? publish->segment_count : 0,
			.segments = publish->segments,
			.tensor_count = kinds & 2 ? publish->tensor_count : 0,
			.tensors = publish->tensors,
			.empty_mapping_count = kinds & 4 ? publish->empty_mapping_count : 0,
			.empty_mappings = publish->empty_mappings,
		};
		size_t size = tdp_manifest_packed_bytes(&manifest);

		tdp_manifest_pack(&manifest, bytes);
		seed_write("manifest", bytes, size);
		seed_write("manifest", bytes, size / 2);
	}
}

static void names_write(void)
{
	static const char *const pairs[][2] = {
		{"x", "x"},
		{"**", "a/b/c"},
		{"a*b*c", "axbxc"},
		{"**/a/**/b", "x/a/y/b"},
		{"*/**/*", "a/b"},
		{"a**", "a//b"},
		{"\xc3\xa9*", "\xc3\xa9/\xf0\x9f\xa6\x84"},
		{"\xff", "\xed\xa0\x80"},
		{"alice:x", "."},
		{"*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaac"},
	};

	for (size_t i = 0; i < TDP_ARRAY_LENGTH(pairs); i++) {
		char text[256];
		int length = snprintf(text, sizeof(text), "%s%c%s", pairs[i][0], 0, pairs[i][1]);

		seed_write("names", text, (size_t)length);
	}
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		(void)fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
		return EXIT_FAILURE;
	}
	corpus = argv[1];
	folders_make();
	codec_write();
	layouts_write();
	manifests_write();
	names_write();
	(void)printf("%u seeds written\n", seed_count);
	return EXIT_SUCCESS;
}
