/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Origins: one lease and the segments that came with it, for however many tensors lie in them.
 * Owned by those tensors together. Does not talk to the broker: ending the lease does.
 */
#include "client/lib/origin.h"

#include <stdlib.h>
#include <string.h>

#include "client/lib/client.h"

static int text_copy(const char *text, char **ret_copy)
{
	if (text == NULL)
		return 0;
	*ret_copy = strdup(text);
	return *ret_copy == NULL ? TIDL_ERR_NO_MEMORY : 0;
}

int tdc_origin_new(struct tidl_client *client, const struct tdc_origin_spec *spec,
		   struct tdc_origin **ret_origin, struct tdp_fault *fault)
{
	struct tdc_origin *origin =
		calloc(1, sizeof(*origin) + spec->segment_count * sizeof(struct tdc_segment *));

	if (origin == NULL)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	atomic_init(&origin->refs, 1);
	origin->client = tdc_client_ref(client);
	origin->attach = spec->attach;
	origin->access = spec->access;
	origin->generation = spec->generation;
	origin->owner_uid = spec->owner_uid;
	origin->segment_count = spec->segment_count;
	if (text_copy(spec->name, &origin->name) < 0 ||
	    text_copy(spec->metadata, &origin->metadata) < 0) {
		(void)tdc_origin_unref(origin);
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	}
	*ret_origin = origin;
	return 0;
}

struct tdc_origin *tdc_origin_ref(struct tdc_origin *origin)
{
	atomic_fetch_add_explicit(&origin->refs, 1, memory_order_relaxed);
	return origin;
}

struct tdc_origin *tdc_origin_unref(struct tdc_origin *origin)
{
	if (origin == NULL ||
	    atomic_fetch_sub_explicit(&origin->refs, 1, memory_order_acq_rel) != 1)
		return NULL;
	/* Unmap first: once the lease is back, the broker may promise others that nobody writes. */
	for (size_t i = 0; i < origin->segment_count; i++) {
		(void)tdc_segment_unref(origin->client, origin->segments[i]);
		if (origin->privates != NULL)
			(void)tdc_segment_unref(origin->client, origin->privates[i]);
	}
	tdc_lease_end(origin->client, origin->lease);
	(void)tdc_client_unref(origin->client);
	free(origin->privates);
	free(origin->metadata);
	free(origin->name);
	free(origin);
	return NULL;
}
