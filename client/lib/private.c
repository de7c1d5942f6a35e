/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private maps of immutable memory, made when a framework that knows no read-only memory wants it.
 * Owned by the origin. One round trip for the first tensor in a segment, none for the others.
 */
#include "client/lib/private.h"

#include <stdlib.h>

#include "client/lib/attach.h"
#include "client/lib/client.h"
#include "client/lib/open.h"

static size_t origin_find_segment(const struct tdc_origin *origin,
				  const struct tdc_segment *segment)
{
	size_t i = 0;

	while (i < origin->segment_count && origin->segments[i] != segment)
		i++;
	return i;
}

/* The map that is there already; NULL: none. The origin keeps it. */
static struct tdc_segment *private_find(struct tdc_origin *origin, size_t index)
{
	struct tdc_segment *found = NULL;

	tdc_client_lock(origin->client);
	if (origin->privates != NULL)
		found = origin->privates[index];
	tdc_client_unlock(origin->client);
	return found;
}

/* Give a map to the origin, or drop it when another thread was faster. */
static int private_enter(struct tdc_origin *origin, size_t index, struct tdc_segment *segment,
			 struct tdc_segment **ret_segment, struct tdp_fault *fault)
{
	struct tidl_client *client = origin->client;
	struct tdc_segment *kept = NULL;

	tdc_client_lock(client);
	if (origin->privates == NULL)
		origin->privates = calloc(origin->segment_count, sizeof(struct tdc_segment *));
	if (origin->privates != NULL) {
		if (origin->privates[index] == NULL)
			origin->privates[index] = segment;
		kept = origin->privates[index];
	}
	tdc_client_unlock(client);
	if (kept != segment)
		(void)tdc_segment_unref(client, segment);
	if (kept == NULL)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	*ret_segment = kept;
	return 0;
}

/* By the lease that is there. */
static int private_map(struct tdc_origin *origin, const struct tdc_segment *segment,
		       struct tdc_segment **ret_segment, struct tdp_fault *fault)
{
	struct tdc_segment_spec spec = {
		.attach = TIDL_ATTACH_COPY_ON_WRITE,
		.access = TIDL_ACCESS_IMMUTABLE,
		.era = segment->key.era,
		.owner_uid = segment->owner_uid,
	};
	tdc_auto_opened opened = TDC_OPENED_NONE;
	int r = tdc_open(origin->client, origin->lease, segment, &opened, fault);

	if (r < 0)
		return r;
	spec.wire = &opened.wire;
	spec.fd = opened.read_fd;
	return tdc_segment_map(origin->client, &spec, ret_segment, fault);
}

/* A forked child has the map and no lease: it gets the generation again, for as long as it takes.
 */
static int private_get(struct tdc_origin *origin, const struct tdc_segment *segment,
		       struct tdc_segment **ret_segment, struct tdp_fault *fault)
{
	struct tdc_name name = {
		.has_owner = true, .owner_uid = origin->owner_uid, .path = origin->name};
	struct tdc_attach_request request = {
		.name = &name,
		.attach = TIDL_ATTACH_COPY_ON_WRITE,
		.generation = origin->generation,
	};
	tdc_auto_grant grant = {.origin = NULL};
	int r = tdc_attach(origin->client, &request, &grant, fault);

	if (r < 0)
		return r;
	for (size_t i = 0; i < grant.origin->segment_count; i++) {
		struct tdc_segment **found = &grant.origin->segments[i];

		if (*found != NULL && (*found)->key.id == segment->key.id) {
			*ret_segment = *found;
			*found = NULL;
			return 0;
		}
	}
	return tdp_fault_set(fault, TIDL_ERR_PROTOCOL,
			     "the broker granted generation %llu with other memory than before: "
			     "check its version",
			     (unsigned long long)origin->generation);
}

static int private_make(struct tdc_origin *origin, size_t index, struct tdc_segment **ret_segment,
			struct tdp_fault *fault)
{
	const struct tdc_segment *segment = origin->segments[index];
	struct tdc_segment *made;
	int r = private_map(origin, segment, &made, fault);

	if (r == TIDL_ERR_RELEASED && origin->name != NULL)
		r = private_get(origin, segment, &made, fault);
	return r < 0 ? r : private_enter(origin, index, made, ret_segment, fault);
}

static int private_check(const struct tidl_tensor *tensor, struct tdp_fault *fault)
{
	if (tidl_tensor_access(tensor) == TIDL_ACCESS_IMMUTABLE)
		return 0;
	return tdp_fault_set(fault, TIDL_ERR_ACCESS,
			     "the tensor is %s, so a private copy of its pages would not follow "
			     "what others write: get it with copy-on-write if nobody does",
			     tidl_access_name(tidl_tensor_access(tensor)));
}

static int private_tensor_new(const struct tidl_tensor *tensor, struct tdc_segment *segment,
			      struct tidl_tensor **ret_tensor, struct tdp_fault *fault)
{
	struct tdc_tensor_spec spec = {
		.dtype = tensor->dtype,
		.ndim = tensor->ndim,
		.shape = tensor->shape,
		.strides = tensor->strides,
		.flags = tensor->flags,
		.nbytes = tensor->nbytes,
		.key = tensor->key,
	};
	uint64_t offset_bytes =
		(uint64_t)((unsigned char *)tensor->data - (unsigned char *)tensor->segment->base);
	int r = tdc_tensor_new(tensor->origin, &spec, ret_tensor, fault);

	if (r == 0)
		tdc_tensor_place(*ret_tensor, segment, segment->data_offset_bytes + offset_bytes);
	return r;
}

int tdc_tensor_copy_on_write(struct tidl_tensor *tensor, struct tidl_tensor **ret_tensor,
			     struct tdp_fault *fault)
{
	struct tdc_origin *origin = tensor->origin;
	struct tdc_segment *segment;
	size_t index;
	int r;

	if (tensor->segment == NULL || tensor->segment->attach == TIDL_ATTACH_COPY_ON_WRITE) {
		*ret_tensor = tidl_tensor_ref(tensor);
		return 0;
	}
	r = private_check(tensor, fault);
	if (r < 0)
		return r;
	index = origin_find_segment(origin, tensor->segment);
	segment = private_find(origin, index);
	if (segment == NULL) {
		r = private_make(origin, index, &segment, fault);
		if (r < 0)
			return r;
	}
	return private_tensor_new(tensor, segment, ret_tensor, fault);
}
