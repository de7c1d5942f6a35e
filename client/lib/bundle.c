/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attached bundles: a grant that is kept, from which tensors are made one by one when they are
 * asked for. Constant once made, but for the count.
 */
#include "client/lib/bundle.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/generation.h"
#include "client/lib/report.h"

struct tidl_bundle {
	atomic_size_t refs;
	struct tdc_grant grant;
};

int tdc_bundle_new(struct tdc_grant *grant, struct tidl_bundle **ret_bundle,
		   struct tdp_fault *fault)
{
	struct tidl_bundle *bundle = malloc(sizeof(*bundle));

	if (bundle == NULL)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	atomic_init(&bundle->refs, 1);
	bundle->grant = *grant;
	*grant = TDC_GRANT_NONE;
	*ret_bundle = bundle;
	return 0;
}

int tdc_bundle_or_tensor(struct tdc_grant *grant, struct tidl_tensor **ret_tensor,
			 struct tidl_bundle **ret_bundle, struct tdp_fault *fault)
{
	struct tidl_bundle *bundle = NULL;
	struct tidl_tensor *tensor = NULL;
	int r = grant->is_bundle ? tdc_bundle_new(grant, &bundle, fault)
				 : tdc_grant_single(grant, &tensor, fault);

	if (r < 0)
		return r;
	*ret_tensor = tensor;
	*ret_bundle = bundle;
	return 0;
}

struct tidl_bundle *tidl_bundle_ref(struct tidl_bundle *bundle)
{
	if (bundle != NULL)
		atomic_fetch_add_explicit(&bundle->refs, 1, memory_order_relaxed);
	return bundle;
}

struct tidl_bundle *tidl_bundle_unref(struct tidl_bundle *bundle)
{
	if (bundle == NULL ||
	    atomic_fetch_sub_explicit(&bundle->refs, 1, memory_order_acq_rel) != 1)
		return NULL;
	tdc_grant_deinit(&bundle->grant);
	free(bundle);
	return NULL;
}

size_t tidl_bundle_count(const struct tidl_bundle *bundle)
{
	return bundle->grant.row_count;
}

const char *tidl_bundle_key(const struct tidl_bundle *bundle, size_t index)
{
	return bundle->grant.rows[index].key;
}

size_t tidl_bundle_mapping_count(const struct tidl_bundle *bundle)
{
	return bundle->grant.mapping_count;
}

const char *tidl_bundle_mapping(const struct tidl_bundle *bundle, size_t index,
				size_t *ret_position)
{
	*ret_position = bundle->grant.mappings[index].position;
	return bundle->grant.mappings[index].key;
}

int tidl_bundle_tensor(const struct tidl_bundle *bundle, size_t index,
		       struct tidl_tensor **ret_tensor)
{
	struct tdp_fault fault = {.code = 0};
	int r;

	if (bundle == NULL)
		r = tdc_refuse_null("bundle", &fault);
	else if (ret_tensor == NULL)
		r = tdc_refuse_null("ret_tensor", &fault);
	else if (index >= bundle->grant.row_count)
		r = tdp_fault_set(&fault, TIDL_ERR_INVALID_ARGUMENT,
				  "the bundle has no tensor %zu, only %zu in all", index,
				  bundle->grant.row_count);
	else
		r = tdc_grant_tensor(&bundle->grant, index, ret_tensor, &fault);
	return tdc_report(r, &fault);
}

static int bundle_find(const struct tidl_bundle *bundle, const char *key, size_t *ret_index,
		       struct tdp_fault *fault)
{
	int64_t found = tdp_keyset_find(&bundle->grant.keys, key, strlen(key));

	/* Behind the tensors come the empty mappings. */
	if (found < 0 || (size_t)found >= bundle->grant.row_count)
		return tdp_fault_set(fault, TIDL_ERR_NOT_FOUND,
				     "the bundle '%s' has no tensor \"%s\"",
				     bundle->grant.origin->name, key);
	*ret_index = (size_t)found;
	return 0;
}

int tidl_bundle_find(const struct tidl_bundle *bundle, const char *key, size_t *ret_index)
{
	struct tdp_fault fault = {.code = 0};
	int r;

	if (bundle == NULL)
		r = tdc_refuse_null("bundle", &fault);
	else if (key == NULL)
		r = tdc_refuse_null("key", &fault);
	else if (ret_index == NULL)
		r = tdc_refuse_null("ret_index", &fault);
	else
		r = bundle_find(bundle, key, ret_index, &fault);
	return tdc_report(r, &fault);
}

/* ---- what all have in common ---- */

const char *tidl_bundle_name(const struct tidl_bundle *bundle)
{
	return bundle->grant.origin->name;
}

const char *tidl_bundle_metadata(const struct tidl_bundle *bundle)
{
	return bundle->grant.origin->metadata;
}

uint64_t tidl_bundle_generation(const struct tidl_bundle *bundle)
{
	return bundle->grant.origin->generation;
}

uint32_t tidl_bundle_owner_uid(const struct tidl_bundle *bundle)
{
	return bundle->grant.origin->owner_uid;
}

enum tidl_attach tidl_bundle_attach(const struct tidl_bundle *bundle)
{
	return bundle->grant.origin->attach;
}

enum tidl_access tidl_bundle_access(const struct tidl_bundle *bundle)
{
	return bundle->grant.origin->access;
}

uint64_t tidl_bundle_nbytes(const struct tidl_bundle *bundle)
{
	return bundle->grant.tensor_bytes;
}

size_t tidl_bundle_segment_count(const struct tidl_bundle *bundle)
{
	return bundle->grant.mapped_count;
}

const struct tidl_broker_info *tidl_bundle_broker(const struct tidl_bundle *bundle)
{
	return tidl_broker(bundle->grant.origin->client);
}

int tidl_bundle_pin(struct tidl_bundle *bundle)
{
	struct tdp_fault fault = {.code = 0};
	int r;

	if (bundle == NULL)
		r = tdc_refuse_null("bundle", &fault);
	else
		r = tdc_pin_origin(bundle->grant.origin, &fault);
	return tdc_report(r, &fault);
}
