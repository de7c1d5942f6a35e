/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TIDL_TENSOR_H
#define TIDL_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include <tidl/client.h>
#include <tidl/export.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * DLPack's own structures, 1.0 or newer. Only pointers to them appear here, so this header needs no
 * <dlpack/dlpack.h>; include that yourself to look inside.
 */
struct DLManagedTensorVersioned;
struct DLManagedTensor;

/* How a segment may be used. A property of the memory, fixed when it is first published; LIVE and
 * IMMUTABLE are enforced by the kernel, against processes of the same uid too (docs/access.md). */
enum tidl_access {
	TIDL_ACCESS_SHARED = 1,	  /* the producer and every client granted `write` may write */
	TIDL_ACCESS_LIVE = 2,	  /* only the producer may write, through the map it has */
	TIDL_ACCESS_IMMUTABLE = 3 /* nobody may write, ever */
};

/* How one client attaches a tensor. */
enum tidl_attach {
	TIDL_ATTACH_READ = 1,  /* mapped read-only; DLPack's read-only flag is set */
	TIDL_ATTACH_WRITE = 2, /* mapped shared and writable: every holder sees the writes */
	TIDL_ATTACH_COPY_ON_WRITE =
		3 /* mapped privately: a written page becomes this process's own */
};

/* Data type with DLPack's codes (DLDataTypeCode); bits of one lane; lanes 1 unless vectorised. */
struct tidl_dtype {
	uint8_t code;
	uint8_t bits;
	uint16_t lanes;
};

/* The largest rank of a tensor (NumPy 2's limit). */
#define TIDL_MAX_NDIM 64

/*
 * A tensor in shared memory, made by tidl_empty() or tidl_get(). Opaque and reference counted; the
 * description never changes, but for this: publishing a tensor of tidl_empty() as immutable makes
 * it read-only, at the same address. Its memory stays mapped until the last reference and the last
 * export are gone. Any thread.
 */
struct tidl_tensor;

/*
 * tidl_empty - allocate a new, unpublished tensor in shareable memory.
 *
 * Row-major and zeroed (fresh pages), first element on a page boundary. The pages are reserved now,
 * so that writing can never fail later, and are charged to this process's cgroup. The tensor is
 * writable and is published without a copy, as are views of it. A tensor with a zero in its shape
 * has no memory.
 *
 * @shape       @ndim extents in elements, each >= 0; may be NULL when @ndim is 0
 * @dtype       any DLPack 1.3 type in its regular width
 * @ret_tensor  one reference; drop it with tidl_tensor_unref()
 *
 * Returns 0 or TIDL_ERR_INVALID_ARGUMENT, _DTYPE, _LAYOUT, _QUOTA, _LIMIT, _NO_MEMORY,
 * _DESCRIPTORS, _SEGMENT_BAD, _SYSTEM or a connection error. Blocks for one round trip.
 */
TIDL_API int tidl_empty(struct tidl_client *client, uint32_t ndim, const int64_t *shape,
			struct tidl_dtype dtype, struct tidl_tensor **ret_tensor);

/* Zero-initialise, set `size`, then what differs from the defaults. */
struct tidl_get_options {
	size_t size;		 /* sizeof(struct tidl_get_options) */
	enum tidl_attach attach; /* 0: TIDL_ATTACH_READ */
	int64_t timeout_ms;	 /* wait for the name: 0 does not wait, negative waits for ever */
	uint64_t generation;	 /* this generation only; 0: the current one */
	uint64_t newer_than;	 /* a generation above this one; 0: any */
	size_t key_count;	 /* of a bundle (bundle.h): only these; 0: all of it */
	const char *const *keys;
};

/*
 * tidl_get - attach a published tensor by name.
 *
 * One round trip. Holds a lease on the generation it got until the tensor and all its exports are
 * gone; replacing or removing the name does not disturb it.
 *
 * @name        `path/like/this` in the caller's namespace, or `owner:path`, owner a user name or
 * uid
 * @options     may be NULL for the defaults
 * @ret_tensor  one reference; drop it with tidl_tensor_unref()
 *
 * Returns 0 or TIDL_ERR_INVALID_ARGUMENT, _NAME_INVALID, _NOT_FOUND, _GENERATION_GONE, _PERMISSION,
 * _TIMEOUT, _INTERRUPTED, _ACCESS, _BUSY, _QUOTA, _LIMIT, _UNSUPPORTED, _NO_MEMORY, _DESCRIPTORS,
 * _SEGMENT_BAD, _SYSTEM or a connection error; TIDL_ERR_INVALID_ARGUMENT when the name stands for a
 * bundle, too. Blocks up to the time-out plus one round trip. The time-out is about the name; of a
 * broker that does not answer see client.h, "Waiting".
 */
TIDL_API int tidl_get(struct tidl_client *client, const char *name,
		      const struct tidl_get_options *options, struct tidl_tensor **ret_tensor);

/* tidl_tensor_ref - one more reference. Returns its argument. Any thread. */
TIDL_API struct tidl_tensor *tidl_tensor_ref(struct tidl_tensor *tensor);

/*
 * tidl_tensor_unref - drop a reference; NULL is allowed. Returns NULL.
 *
 * With the last reference and the last export the memory is unmapped and the lease given back.
 * Never blocks on the broker; safe after tidl_disconnect(), after fork() and at exit. Any thread.
 */
TIDL_API struct tidl_tensor *tidl_tensor_unref(struct tidl_tensor *tensor);

/* The description. Pointers are borrowed and valid as long as the reference. None takes NULL. */
TIDL_API uint32_t tidl_tensor_ndim(const struct tidl_tensor *tensor);
TIDL_API const int64_t *tidl_tensor_shape(const struct tidl_tensor *tensor);   /* elements */
TIDL_API const int64_t *tidl_tensor_strides(const struct tidl_tensor *tensor); /* elements */
TIDL_API struct tidl_dtype tidl_tensor_dtype(const struct tidl_tensor *tensor);
TIDL_API void *tidl_tensor_data(const struct tidl_tensor *tensor);	/* NULL when empty */
TIDL_API uint64_t tidl_tensor_nbytes(const struct tidl_tensor *tensor); /* elements x size */
TIDL_API int tidl_tensor_is_readonly(const struct tidl_tensor *tensor);
TIDL_API enum tidl_attach tidl_tensor_attach(const struct tidl_tensor *tensor);
/* Of the memory as far as this process knows; SHARED for what is not published yet. */
TIDL_API enum tidl_access tidl_tensor_access(const struct tidl_tensor *tensor);
TIDL_API uint64_t tidl_tensor_generation(const struct tidl_tensor *tensor);  /* 0: unpublished */
TIDL_API const char *tidl_tensor_name(const struct tidl_tensor *tensor);     /* NULL: unpublished */
TIDL_API const char *tidl_tensor_key(const struct tidl_tensor *tensor);	     /* NULL: no bundle's */
TIDL_API const char *tidl_tensor_metadata(const struct tidl_tensor *tensor); /* JSON or NULL */
TIDL_API uint32_t tidl_tensor_owner_uid(const struct tidl_tensor *tensor);

/*
 * tidl_tensor_copy_on_write - the same tensor, writable for this process alone.
 *
 * For immutable memory and those who write without asking: nothing is copied until a page is
 * written, and then that page. All tensors made so from one tidl_get() share what is written; the
 * original does not change. A tensor that is copy-on-write or empty already is given back with one
 * more reference.
 *
 * @ret_tensor  one reference; drop it with tidl_tensor_unref()
 *
 * Returns 0 or TIDL_ERR_INVALID_ARGUMENT, _ACCESS (the memory is not immutable), _RELEASED or
 * _GENERATION_GONE (in a forked child, once the name has gone on), _NO_MEMORY, _DESCRIPTORS,
 * _SEGMENT_BAD, _SYSTEM or a connection error. Blocks for one round trip. Any thread.
 */
TIDL_API int tidl_tensor_copy_on_write(struct tidl_tensor *tensor, struct tidl_tensor **ret_tensor);

/* tidl_tensor_broker - the broker that it came from, also after tidl_disconnect(). */
TIDL_API const struct tidl_broker_info *tidl_tensor_broker(const struct tidl_tensor *tensor);

/*
 * tidl_tensor_map_at - show a tensor's memory at an address of the caller's choosing, too.
 *
 * For frameworks that lay their memory out by themselves: what they have there becomes the tensor's
 * memory, under the pointers that they have. The pages [@address, @address + @size_bytes), which
 * must be the caller's own, are replaced by those of the tensor's segment, from the page on that
 * the tensor's lowest byte lies in; that byte's offset in its page stays what it is. They are
 * mapped as the tensor is attached: read-only, shared, or privately for copy-on-write, where what
 * is written shows in no other map. They stay until the caller unmaps them or maps something else
 * there. The library does not touch them again, and lets go of the lease with the tensor: keep a
 * reference as long.
 *
 * @address     on a page boundary
 * @size_bytes  whole pages, no more than the segment has from that page on
 *
 * Returns 0 or TIDL_ERR_INVALID_ARGUMENT, _ACCESS (live memory cannot be mapped for writing once it
 * is published), _RELEASED (the tensor was inherited by fork()), _NO_MEMORY, _DESCRIPTORS,
 * _SEGMENT_BAD, _SYSTEM or a connection error. When the kernel fails half-way the pages are left as
 * they were, or empty. Blocks for one round trip. Any thread.
 */
TIDL_API int tidl_tensor_map_at(struct tidl_tensor *tensor, void *address, size_t size_bytes);

/* Export read-only memory although the receiver cannot be told, or ignores, that it is read-only.
 */
#define TIDL_EXPORT_ALLOW_READONLY (1u << 0)

/*
 * tidl_tensor_export - a new DLPack tensor over the same memory.
 *
 * Each export owns its shape and strides and keeps the memory mapped until its deleter is called.
 * The deleter may be called from any thread, twice by mistake, after fork(), after
 * tidl_disconnect() and at exit; it calls into no framework and never blocks on the broker.
 * `byte_offset` is 0, `strides` are never NULL for rank >= 1, `data` is NULL for empty tensors.
 *
 * @ret_managed  version 1.1 structure; flag READ_ONLY set when tidl_tensor_is_readonly()
 *
 * Returns 0 or TIDL_ERR_INVALID_ARGUMENT, _NO_MEMORY. Never blocks. Any thread.
 */
TIDL_API int tidl_tensor_export(struct tidl_tensor *tensor,
				struct DLManagedTensorVersioned **ret_managed);

/*
 * tidl_tensor_export_legacy - the same as an unversioned structure, which cannot say "read-only".
 * Returns TIDL_ERR_READ_ONLY for read-only memory unless @flags has TIDL_EXPORT_ALLOW_READONLY, and
 * TIDL_ERR_DTYPE for elements of less than a byte that have a byte each, which it cannot say
 * either.
 */
TIDL_API int tidl_tensor_export_legacy(struct tidl_tensor *tensor, uint32_t flags,
				       struct DLManagedTensor **ret_managed);

#ifdef __cplusplus
}
#endif

#endif
