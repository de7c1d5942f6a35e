/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TIDL_PUBLISH_H
#define TIDL_PUBLISH_H

#include <stddef.h>
#include <stdint.h>

#include <tidl/client.h>
#include <tidl/export.h>
#include <tidl/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

struct tidl_block;

/* How long a publication lives. */
enum tidl_retention {
	TIDL_RETENTION_DEFAULT = 0,   /* PERSIST for host memory */
	TIDL_RETENTION_PERSIST = 1,   /* until removed */
	TIDL_RETENTION_OWNER = 2,     /* until the publisher's connection ends */
	TIDL_RETENTION_SECONDS = 3,   /* for `retain_ms` from publishing */
	TIDL_RETENTION_UNTIL_IDLE = 4 /* reported only: PERSIST in a private broker */
};

enum tidl_copy {
	TIDL_COPY_IF_NEEDED = 0, /* alias memory of a segment, copy anything else once */
	TIDL_COPY_ALWAYS = 1,
	TIDL_COPY_NEVER = 2 /* alias, or share where it lies (inplace.h), or TIDL_ERR_COPY_NEEDED */
};

/* How the published bytes came to lie in shared memory. */
enum tidl_path {
	TIDL_PATH_ALLOCATED = 1, /* in a segment of this client: nothing was copied */
	TIDL_PATH_ATTACHED = 2, /* in a segment attached from another publication: nothing copied */
	TIDL_PATH_COPIED = 3,	/* copied once into a new segment: a snapshot */
	TIDL_PATH_IN_PLACE = 4, /* moved under the framework's pointer (inplace.h) */
	TIDL_PATH_EMPTY = 5	/* no elements, hence no memory */
};

/* Why a copy was made, or would be needed (tidl_last_copy_reason()). */
enum tidl_copy_reason {
	TIDL_COPY_REASON_NONE = 0,
	TIDL_COPY_REASON_REQUESTED = 1,	   /* TIDL_COPY_ALWAYS */
	TIDL_COPY_REASON_FOREIGN = 2,	   /* the memory is not in any segment of this process */
	TIDL_COPY_REASON_NOT_OWNER = 3,	   /* it lies in a segment that belongs to another uid */
	TIDL_COPY_REASON_PRIVATE_MAP = 4,  /* it was attached copy-on-write: pages may be private */
	TIDL_COPY_REASON_OTHER_BROKER = 5, /* its segment belongs to another broker or connection */

	/* Why memory cannot be shared where it lies. */
	TIDL_COPY_REASON_SMALL = 6,	    /* too small to have pages of its own */
	TIDL_COPY_REASON_HEAP = 7,	    /* on malloc's heap, among other data */
	TIDL_COPY_REASON_POOL = 8,	    /* no block of malloc: a framework's pool, say */
	TIDL_COPY_REASON_ALLOCATOR = 9,	    /* malloc is not glibc's own */
	TIDL_COPY_REASON_MAPPING = 10,	    /* a map of a file or of shared memory */
	TIDL_COPY_REASON_NOT_WRITABLE = 11, /* mapped read-only */
	TIDL_COPY_REASON_HUGETLB = 12,	    /* huge pages */
	TIDL_COPY_REASON_PINNED = 13,	    /* locked, or known to a device (CUDA is asked) */
	TIDL_COPY_REASON_GUARD = 14,	    /* nothing here can stop its writers (no userfaultfd) */
	TIDL_COPY_REASON_UNSURE = 15	    /* too little memory to ask malloc: try again */
};

/* Zero-initialise, set `size`, then what differs from the defaults. */
struct tidl_publish_options {
	size_t size;		       /* sizeof(struct tidl_publish_options) */
	enum tidl_access access;       /* 0: TIDL_ACCESS_SHARED; see below */
	enum tidl_copy copy;	       /* 0: TIDL_COPY_IF_NEEDED */
	enum tidl_retention retention; /* 0: TIDL_RETENTION_DEFAULT */
	int64_t retain_ms;	       /* with TIDL_RETENTION_SECONDS: life time, > 0 */
	uint32_t mode;		       /* permission bits, within 0666; 0: 0600 */
	int64_t group;		       /* gid that the group bits speak of; 0: see has_group */
	int has_group;		       /* non-zero: `group` 0 is gid 0, not the caller's own */
	int replace;		       /* non-zero: take over a name that is in use */
	uint32_t keep; /* generations that stay attachable by number, this one included; 0: 1 */
	int expose;    /* non-zero: allow group or other bits over a segment of more pages */
	const char *metadata; /* JSON object, 4096 bytes and 64 levels at most; NULL: none */

	/* For memory that is shared where it lies. */
	size_t block_count; /* whose memory the tensors lie in, if their pointers do not tell */
	const struct tidl_block *blocks;
	int nobody_writes; /* non-zero: the caller vouches that no thread writes during the call,
			    * nor while the memory becomes private again */
	int writable; /* non-zero: let others write what its framework takes for constant, too */
};

/* What became of a publish. Set `size` before the call. */
struct tidl_publication {
	size_t size;		      /* sizeof(struct tidl_publication), set by the caller */
	uint64_t generation;	      /* broker-wide number of this publication */
	uint64_t tensor_bytes;	      /* bytes of all tensors: elements x element size */
	uint64_t exposed_bytes;	      /* bytes that a reader can reach: the whole segments */
	enum tidl_path path;	      /* of a bundle: COPIED if any was, else ATTACHED if any was */
	enum tidl_copy_reason reason; /* why `path` is TIDL_PATH_COPIED */
	int copied;		      /* non-zero: a snapshot was copied */
	enum tidl_retention retention; /* as granted */
	int survives_restart;	       /* non-zero: a restart of the broker keeps it */
	int aliases_previous;	       /* non-zero: the replaced generation had the same memory */
	size_t tensor_count;	       /* 1 for a single tensor */
	size_t copied_count;	       /* tensors that were copied */
	enum tidl_access access;       /* as published: LIVE for constants shared in place */
	uint64_t moved_bytes;	       /* shared where they lay by this call: whole pages */
	uint64_t neighbour_bytes;      /* of those, other content of the same blocks: the rest of a
					* storage that a view was published of; 0: none */
};

/*
 * tidl_publish - give a tensor a name that other processes can attach it by.
 *
 * Memory inside a segment of this client is published as it is, whatever view of it the tensor is.
 * Anything else is copied once, and the publication says so. With TIDL_COPY_NEVER large memory is
 * shared where it lies instead (inplace.h), and the tensor is kept until it no longer is; what its
 * framework takes for constant (READ_ONLY flag) is then published as live, so that nobody else can
 * write it, unless `writable` is set. On success @managed is consumed: its deleter has been called,
 * or will be when the library no longer needs it. On failure it stays with the caller. A deleter of
 * NULL is allowed.
 *
 * With TIDL_ACCESS_IMMUTABLE the whole segment is sealed against writing, in place: the tensor that
 * tidl_empty() made and all views of it stay at their address and are read-only from then on. A
 * write to them, by a framework that was handed them before too, ends the process. Nobody may write
 * during the call. TIDL_ERR_BUSY when somebody has the memory mapped for writing, a forked child
 * for example; a copy is the way out. With TIDL_ACCESS_LIVE this process goes on writing, and
 * nobody else can; memory that would have to be copied is refused with TIDL_ERR_COPY_NEEDED.
 *
 * @name     in the caller's own namespace; 1 to 255 bytes of UTF-8 (README, "Names")
 * @managed  host tensor: device CPU, CUDAHost, ROCMHost
 * @options  may be NULL for the defaults
 * @ret_publication  may be NULL
 *
 * Returns 0 or TIDL_ERR_INVALID_ARGUMENT, _NAME_INVALID, _EXISTS, _PERMISSION, _QUOTA, _LIMIT,
 * _NO_MEMORY, _DTYPE, _LAYOUT, _DEVICE, _UNSUPPORTED, _COPY_NEEDED, _ACCESS, _METADATA,
 * _DESCRIPTORS, _SEGMENT_BAD, _BUSY, _INTERRUPTED, _SYSTEM or a connection error. Blocks for one
 * round trip (two and the copy for foreign memory; three and up to 200 ms to seal in place). Any
 * thread.
 */
TIDL_API int tidl_publish(struct tidl_client *client, const char *name,
			  struct DLManagedTensorVersioned *managed,
			  const struct tidl_publish_options *options,
			  struct tidl_publication *ret_publication);

/* tidl_publish_legacy - the same for an unversioned DLPack structure. */
TIDL_API int tidl_publish_legacy(struct tidl_client *client, const char *name,
				 struct DLManagedTensor *managed,
				 const struct tidl_publish_options *options,
				 struct tidl_publication *ret_publication);

/*
 * tidl_recognise - whether tensors over some memory are published as they are.
 *
 * @address     of its first byte
 * @bytes       more than 0; all of them have to lie in one segment
 * @ret_reason  TIDL_COPY_REASON_NONE: tidl_publish() takes it without a copy. Else why it would be
 *              copied, or shared where it lies: _FOREIGN, _NOT_OWNER, _PRIVATE_MAP, _OTHER_BROKER
 *
 * The memory itself is not looked at. Returns 0 or TIDL_ERR_INVALID_ARGUMENT, _NO_MEMORY, _SYSTEM.
 * Never blocks. Any thread.
 */
TIDL_API int tidl_recognise(struct tidl_client *client, const void *address, size_t bytes,
			    enum tidl_copy_reason *ret_reason);

/*
 * tidl_remove - take a name out of the listing.
 *
 * Holders keep their memory; it is freed with the last of them. Owner, group `tidl` and root may.
 * Returns 0 or TIDL_ERR_NAME_INVALID, _NOT_FOUND, _PERMISSION or a connection error. One round
 * trip.
 */
TIDL_API int tidl_remove(struct tidl_client *client, const char *name);

/* Stable lower-case words for the enumerations: "shared", "persist", "copied", "foreign". */
TIDL_API const char *tidl_access_name(enum tidl_access access);
TIDL_API const char *tidl_attach_name(enum tidl_attach attach);
TIDL_API const char *tidl_retention_name(enum tidl_retention retention);
TIDL_API const char *tidl_path_name(enum tidl_path path);
TIDL_API const char *tidl_copy_reason_name(enum tidl_copy_reason reason);

/*
 * tidl_dtype_name - NumPy's word for a data type ("float32", "bfloat16", "bool"), with "x<lanes>"
 * behind it for lanes > 1. Writes at most @size bytes with the final zero; returns @buffer.
 */
TIDL_API const char *tidl_dtype_name(struct tidl_dtype dtype, char *buffer, size_t size);

/* tidl_dtype_parse - the reverse. Returns 0 or TIDL_ERR_DTYPE. */
TIDL_API int tidl_dtype_parse(const char *text, struct tidl_dtype *ret_dtype);

#ifdef __cplusplus
}
#endif

#endif
