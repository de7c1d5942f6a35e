/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TIDL_INPLACE_H
#define TIDL_INPLACE_H

#include <stddef.h>

#include <tidl/client.h>
#include <tidl/export.h>
#include <tidl/publish.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Memory that somebody else has allocated can become shared memory where it is: the pages under it
 * are exchanged for those of a segment, while its owner keeps the pointer and never notices.
 * tidl_publish() with TIDL_COPY_NEVER does so. docs/in-place.md tells for which memory, and what
 * its owner may not do meanwhile.
 */

/* From this size on malloc may give memory pages of its own. */
#define TIDL_SHAREABLE_MIN_BYTES 65536

/* Whose pages they are. */
enum tidl_block_kind {
	TIDL_BLOCK_MALLOC = 1, /* `address` came from malloc() or an aligned variant of it */
	TIDL_BLOCK_PAGES = 2   /* whole pages of a private anonymous mmap() of which the caller says
				* that nothing else lies in them */
};

/*
 * The memory that a tensor lies in, for tidl_publish_options. Needed where the tensor's own pointer
 * is not that of its memory: for views, and for memory that did not come from malloc.
 */
struct tidl_block {
	void *address;
	size_t bytes; /* MALLOC: as asked for */
	enum tidl_block_kind kind;
};

/*
 * tidl_unshare - take a name out of the listing and give its owner private memory back.
 *
 * All memory that this client has moved for the name's content becomes private again, at its
 * address and with the content of this moment; threads that write meanwhile lose nothing. Whoever
 * has the tensor attached keeps the segment, which no longer follows. Then the deleters of the
 * published tensors are called. The same happens by itself when the name was removed or replaced,
 * by whomever, and nobody else holds that generation any more, in whichever publish, remove or
 * dispatch comes next; and when the client is closed.
 *
 * Returns 0 or TIDL_ERR_INVALID_ARGUMENT, _NAME_INVALID, _NOT_FOUND (this client has moved nothing
 * for that name), _BUSY (other threads have been at the memory for a second, or it is published
 * under other names too), _NO_MEMORY (try again; what was done stays done), _COPY_NEEDED (writers
 * cannot be stopped), _DESCRIPTORS, _SYSTEM, _INTERRUPTED (try again), or _TIMEOUT or a connection
 * error, which are about the name alone: the memory is private and the deleters have been called,
 * for that needs no broker. But whether the name was taken out of the listing is not known: a
 * broker that has ended has forgotten it, one that goes on or comes back may list what there was at
 * that moment, for tidl_remove(). Blocks for one round trip and the copy.
 */
TIDL_API int tidl_unshare(struct tidl_client *client, const char *name);

/*
 * tidl_prefer_shareable - have malloc give each block of at least @min_bytes pages of its own from
 * now on, so that it can be shared in place; 0: TIDL_SHAREABLE_MIN_BYTES. By itself it does so only
 * for the first ones, since it raises its threshold with each that is freed. Call it before large
 * tensors are made: whatever room the heap has is used first. From outside:
 * GLIBC_TUNABLES=glibc.malloc.mmap_threshold=65536.
 *
 * @ret_from_bytes  blocks from this size on come with pages of their own now: @min_bytes, unless it
 *                  came too late for that; may be NULL
 *
 * Returns 0 or TIDL_ERR_INVALID_ARGUMENT (above 32 MiB), _UNSUPPORTED (malloc is not glibc's own),
 * _NO_MEMORY (that could not be found out, try again). Never blocks. For the whole process.
 */
TIDL_API int tidl_prefer_shareable(size_t min_bytes, size_t *ret_from_bytes);

/*
 * tidl_last_copy_reason - why the last call of this thread that failed did so, if that was with
 * TIDL_ERR_COPY_NEEDED; else TIDL_COPY_REASON_NONE. Any thread; never blocks.
 */
TIDL_API enum tidl_copy_reason tidl_last_copy_reason(void);

#ifdef __cplusplus
}
#endif

#endif
