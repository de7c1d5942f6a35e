/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDP_WIRE_LIMITS_H
#define TDP_WIRE_LIMITS_H

/* Every limit of the protocol, with its reason. Limits of the broker alone: daemon/limits.h. */

enum {
	/* Versions of the protocol that this code speaks. */
	TDP_PROTOCOL_MIN = 1,
	TDP_PROTOCOL_MAX = 1,

	/* Well below wmem_default (212,992), so that a packet never fails for its size alone. */
	TDP_PACKET_MAX_BYTES = 65536,

	/* SCM_MAX_FD of the kernel: one more is EINVAL. */
	TDP_PACKET_MAX_FDS = 253,

	/* What one packet may unpack into: 16 times its size covers every honest message. */
	TDP_UNPACK_MAX_BYTES = 1 << 20,

	/* As NAME_MAX: a name fits wherever a file name does. */
	TDP_NAME_MAX_BYTES = 255,
	TDP_PATTERN_MAX_BYTES = 255,

	TDP_METADATA_MAX_BYTES = 4096,
	/* Readers parse by recursion: Python gives up at 1,000 levels, other languages earlier. */
	TDP_METADATA_MAX_DEPTH = 64,

	/* Longer lists of segments and tensors travel as a manifest. Half a packet, so that the
	 * answer to a get, which tells more of segments, fits into one. */
	TDP_INLINE_ROWS_MAX_BYTES = 32 << 10,
	/* What the largest bundle takes at 128 bytes a row. With the number of its rows it bounds
	 * how long a publish holds up others: some milliseconds, whatever is in it. */
	TDP_MANIFEST_MAX_BYTES = 2 << 20,

	/* Of one bundle, empty mappings included. The largest models have fewer; one is looked
	 * through in a few milliseconds, which is what others wait for it. */
	TDP_TENSORS_PER_PUBLICATION = 16384,
	/* Each is two descriptors of the broker and a map in every reader. */
	TDP_SEGMENTS_PER_PUBLICATION = 4096,

	TDP_KEY_MAX_BYTES = 255,

	/* Members of a bundle that are packed into one segment begin at multiples of this, so gaps
	 * of less between them show nothing. */
	TDP_BUNDLE_ALIGN_BYTES = 256,

	/* NumPy 2's limit of dimensions. */
	TDP_NDIM_MAX = 64,

	/* Self-reported texts, cut by the client, refused when longer by the broker. */
	TDP_CLIENT_NAME_MAX_BYTES = 64,
	TDP_COMMAND_MAX_BYTES = 256,
	TDP_CGROUP_MAX_BYTES = 256,

	/* Generations of a name that can be had by number, the current one included: what one page
	 * of an inspection can list. */
	TDP_KEEP_MAX = 256,

	TDP_BROKER_ID_BYTES = 16,
	TDP_DEVICE_UUID_BYTES = 16,
	TDP_DEVICE_HANDLE_BYTES = 64,
	TDP_FAILURE_TEXT_MAX_BYTES = 511,
	TDP_VERSION_TEXT_MAX_BYTES = 63,

	/* Rows in one page of an answer, so that the longest rows still fit into a packet. */
	TDP_LIST_PAGE_ROWS = 64,
	TDP_HOLDER_PAGE_ROWS = 48,
	TDP_TENSOR_PAGE_ROWS = 16,
	TDP_SEGMENT_PAGE_ROWS = 24,
};

#endif
