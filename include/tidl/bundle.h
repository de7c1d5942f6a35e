/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TIDL_BUNDLE_H
#define TIDL_BUNDLE_H

#include <stddef.h>
#include <stdint.h>

#include <tidl/client.h>
#include <tidl/export.h>
#include <tidl/publish.h>
#include <tidl/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Many tensors under one name, published and attached at once: a state dict. Each has a key, which
 * is its path in a nested mapping: levels are joined by `/`, and inside a level `~1` stands for `/`
 * and `~0` for `~`, as in JSON pointers. No level is empty; a whole key has 1 to 255 bytes of UTF-8
 * without control characters. No key comes twice or is also a mapping that another lies in. The
 * order of tensors is kept, and so are mappings that have nothing in them.
 */

/* ---- publishing ---- */

/* A bundle that is being put together. Opaque. One thread at a time. */
struct tidl_draft;

/*
 * tidl_draft_new - start a bundle with nothing in it. Free with tidl_draft_free().
 * Returns 0 or TIDL_ERR_INVALID_ARGUMENT, _NO_MEMORY. Never blocks.
 */
TIDL_API int tidl_draft_new(struct tidl_draft **ret_draft);

/*
 * tidl_draft_add - append a tensor.
 *
 * On success the draft owns @managed, whose deleter is called by tidl_draft_free(); on failure it
 * stays with the caller. Reads the description now and the elements when the draft is published.
 *
 * @key      copied; whether another has it too is found when the draft is published
 * @managed  host tensor; a deleter of NULL is allowed
 *
 * Returns 0 or TIDL_ERR_INVALID_ARGUMENT (the key breaks the rules above), _LIMIT (more than 16384
 * tensors and empty mappings), _DTYPE, _LAYOUT, _DEVICE, _UNSUPPORTED, _NO_MEMORY. Never blocks.
 */
TIDL_API int tidl_draft_add(struct tidl_draft *draft, const char *key,
			    struct DLManagedTensorVersioned *managed);

/* tidl_draft_add_legacy - the same for an unversioned DLPack structure. */
TIDL_API int tidl_draft_add_legacy(struct tidl_draft *draft, const char *key,
				   struct DLManagedTensor *managed);

/*
 * tidl_draft_add_mapping - append a mapping that has nothing in it. Mappings that have something
 * are told by the keys of that. Errors as above.
 */
TIDL_API int tidl_draft_add_mapping(struct tidl_draft *draft, const char *key);

/* tidl_draft_free - call the deleters of its tensors and free it. NULL is allowed. */
TIDL_API void tidl_draft_free(struct tidl_draft *draft);

/*
 * tidl_publish_bundle - give all tensors of a draft one name, at once.
 *
 * Tensors inside segments of this client are published as they are. All others are copied once,
 * together, into one new segment, each on a multiple of 256 bytes; those whose memory overlaps go
 * on sharing it (tied weights), as long as one of them or several without gaps cover all of it. The
 * draft stays as it is and may be published again. When this fails, nothing has been published and
 * no memory is left behind.
 *
 * @options  as for tidl_publish(), for all tensors alike; may be NULL
 * @ret_publication  may be NULL
 *
 * Returns as tidl_publish(), and TIDL_ERR_INVALID_ARGUMENT for keys that clash. What is about one
 * tensor names its key. Blocks for one round trip (two and the copy when anything is copied).
 */
TIDL_API int tidl_publish_bundle(struct tidl_client *client, const char *name,
				 const struct tidl_draft *draft,
				 const struct tidl_publish_options *options,
				 struct tidl_publication *ret_publication);

/* ---- attaching ---- */

/*
 * A published bundle, attached. Opaque and reference counted; never changes. Any thread. One lease
 * and one map of each segment serve all its tensors, and stay until the bundle, its tensors and
 * their exports are gone.
 */
struct tidl_bundle;

/*
 * tidl_get_bundle - attach a bundle by name, or a part of it.
 *
 * One round trip, and one more for every further 253 segments. With options->keys only those
 * tensors, and all tensors in mappings that are named; the segments of others are not mapped.
 *
 * Returns as tidl_get(), TIDL_ERR_INVALID_ARGUMENT when the name stands for a single tensor, and
 * TIDL_ERR_NOT_FOUND for a key that the bundle does not have, which the sentence names. Blocks as
 * tidl_get().
 */
TIDL_API int tidl_get_bundle(struct tidl_client *client, const char *name,
			     const struct tidl_get_options *options,
			     struct tidl_bundle **ret_bundle);

/*
 * tidl_get_any - attach whatever the name stands for: the same, but sets one of @ret_tensor and
 * @ret_bundle, and the other to NULL.
 */
TIDL_API int tidl_get_any(struct tidl_client *client, const char *name,
			  const struct tidl_get_options *options, struct tidl_tensor **ret_tensor,
			  struct tidl_bundle **ret_bundle);

/* tidl_bundle_ref - one more reference. Returns its argument. Any thread. */
TIDL_API struct tidl_bundle *tidl_bundle_ref(struct tidl_bundle *bundle);

/*
 * tidl_bundle_unref - drop a reference; NULL is allowed. Returns NULL. Tensors that were taken out
 * stay. Never blocks on the broker; safe whenever tidl_tensor_unref() is.
 */
TIDL_API struct tidl_bundle *tidl_bundle_unref(struct tidl_bundle *bundle);

/*
 * What is in it, in order. Pointers are borrowed and valid as long as the reference. None takes
 * NULL; indexes must be below the count.
 */
TIDL_API size_t tidl_bundle_count(const struct tidl_bundle *bundle); /* tensors */
TIDL_API const char *tidl_bundle_key(const struct tidl_bundle *bundle, size_t index);
TIDL_API size_t tidl_bundle_mapping_count(const struct tidl_bundle *bundle); /* empty ones */
/* @ret_position: index of the tensor before which it stands; the count: behind all. */
TIDL_API const char *tidl_bundle_mapping(const struct tidl_bundle *bundle, size_t index,
					 size_t *ret_position);

/*
 * tidl_bundle_tensor - one tensor of it: a new reference, to be dropped with tidl_tensor_unref().
 * Tensors that shared memory when they were published have the same addresses.
 * Returns 0 or TIDL_ERR_INVALID_ARGUMENT, _NO_MEMORY. Never blocks.
 */
TIDL_API int tidl_bundle_tensor(const struct tidl_bundle *bundle, size_t index,
				struct tidl_tensor **ret_tensor);

/*
 * tidl_bundle_find - the index of a tensor by its key.
 * Returns 0 or TIDL_ERR_INVALID_ARGUMENT, _NOT_FOUND. Never blocks.
 */
TIDL_API int tidl_bundle_find(const struct tidl_bundle *bundle, const char *key, size_t *ret_index);

/* What its tensors have in common, as the functions of the same name in tensor.h tell of each. */
TIDL_API const char *tidl_bundle_name(const struct tidl_bundle *bundle);
TIDL_API const char *tidl_bundle_metadata(const struct tidl_bundle *bundle); /* JSON or NULL */
TIDL_API uint64_t tidl_bundle_generation(const struct tidl_bundle *bundle);
TIDL_API uint32_t tidl_bundle_owner_uid(const struct tidl_bundle *bundle);
TIDL_API enum tidl_attach tidl_bundle_attach(const struct tidl_bundle *bundle);
TIDL_API enum tidl_access tidl_bundle_access(const struct tidl_bundle *bundle);
TIDL_API uint64_t tidl_bundle_nbytes(const struct tidl_bundle *bundle);	     /* sum over tensors */
TIDL_API size_t tidl_bundle_segment_count(const struct tidl_bundle *bundle); /* mapped */
TIDL_API const struct tidl_broker_info *tidl_bundle_broker(const struct tidl_bundle *bundle);

/* tidl_bundle_pin - keep its generation for another process, as tidl_tensor_pin() does. */
TIDL_API int tidl_bundle_pin(struct tidl_bundle *bundle);

#ifdef __cplusplus
}
#endif

#endif
