/* SPDX-License-Identifier: Apache-2.0 */
/* Public functions of tensors: check arguments, call inward, keep the sentence of a refusal.
 * References are in tensor.c. */
#include "include/tidl/tensor.h"

#include "client/lib/attach.h"
#include "client/lib/empty.h"
#include "client/lib/export.h"
#include "client/lib/map_at.h"
#include "client/lib/private.h"
#include "client/lib/report.h"
#include "client/lib/tensor.h"

int tidl_empty(struct tidl_client *client, uint32_t ndim, const int64_t *shape,
	       struct tidl_dtype dtype, struct tidl_tensor **ret_tensor)
{
	struct tdp_fault fault = {.code = 0};
	int r;

	if (client == NULL)
		r = tdc_refuse_null("client", &fault);
	else if (shape == NULL && ndim > 0)
		r = tdc_refuse_null("shape", &fault);
	else if (ret_tensor == NULL)
		r = tdc_refuse_null("ret_tensor", &fault);
	else
		r = tdc_empty(client, ndim, shape, dtype, ret_tensor, &fault);
	return tdc_report(r, &fault);
}

int tidl_get(struct tidl_client *client, const char *name, const struct tidl_get_options *options,
	     struct tidl_tensor **ret_tensor)
{
	struct tdp_fault fault = {.code = 0};
	tdc_auto_grant grant = {.origin = NULL};
	struct tdc_attach_request request;
	struct tdc_name parsed;
	int r;

	if (client == NULL)
		r = tdc_refuse_null("client", &fault);
	else if (name == NULL)
		r = tdc_refuse_null("name", &fault);
	else if (ret_tensor == NULL)
		r = tdc_refuse_null("ret_tensor", &fault);
	else
		r = tdc_attach_request_parse(name, options, &parsed, &request, &fault);
	if (r == 0)
		r = tdc_attach(client, &request, &grant, &fault);
	if (r == 0)
		r = tdc_grant_single(&grant, ret_tensor, &fault);
	return tdc_report(r, &fault);
}

uint32_t tidl_tensor_ndim(const struct tidl_tensor *tensor)
{
	return tensor->ndim;
}

const int64_t *tidl_tensor_shape(const struct tidl_tensor *tensor)
{
	return tensor->shape;
}

const int64_t *tidl_tensor_strides(const struct tidl_tensor *tensor)
{
	return tensor->strides;
}

struct tidl_dtype tidl_tensor_dtype(const struct tidl_tensor *tensor)
{
	return tensor->dtype;
}

void *tidl_tensor_data(const struct tidl_tensor *tensor)
{
	return tensor->data;
}

uint64_t tidl_tensor_nbytes(const struct tidl_tensor *tensor)
{
	return tensor->nbytes;
}

int tidl_tensor_is_readonly(const struct tidl_tensor *tensor)
{
	return tidl_tensor_attach(tensor) == TIDL_ATTACH_READ;
}

enum tidl_attach tidl_tensor_attach(const struct tidl_tensor *tensor)
{
	const struct tdc_segment *segment = tensor->segment;

	if (segment == NULL)
		return tensor->origin->attach;
	/* What was allocated for writing may have become immutable. */
	return atomic_load(&segment->is_readonly) ? TIDL_ATTACH_READ : segment->attach;
}

enum tidl_access tidl_tensor_access(const struct tidl_tensor *tensor)
{
	const struct tdc_segment *segment = tensor->segment;
	int access = segment != NULL ? atomic_load(&segment->access) : 0;

	return access != 0 ? (enum tidl_access)access : tensor->origin->access;
}

uint64_t tidl_tensor_generation(const struct tidl_tensor *tensor)
{
	return tensor->origin->generation;
}

const char *tidl_tensor_name(const struct tidl_tensor *tensor)
{
	return tensor->origin->name;
}

const char *tidl_tensor_key(const struct tidl_tensor *tensor)
{
	return tensor->key;
}

const char *tidl_tensor_metadata(const struct tidl_tensor *tensor)
{
	return tensor->origin->metadata;
}

uint32_t tidl_tensor_owner_uid(const struct tidl_tensor *tensor)
{
	return tensor->origin->owner_uid;
}

int tidl_tensor_copy_on_write(struct tidl_tensor *tensor, struct tidl_tensor **ret_tensor)
{
	struct tdp_fault fault = {.code = 0};
	int r;

	if (tensor == NULL)
		r = tdc_refuse_null("tensor", &fault);
	else if (ret_tensor == NULL)
		r = tdc_refuse_null("ret_tensor", &fault);
	else
		r = tdc_tensor_copy_on_write(tensor, ret_tensor, &fault);
	return tdc_report(r, &fault);
}

const struct tidl_broker_info *tidl_tensor_broker(const struct tidl_tensor *tensor)
{
	return tidl_broker(tensor->origin->client);
}

int tidl_tensor_map_at(struct tidl_tensor *tensor, void *address, size_t size_bytes)
{
	struct tdp_fault fault = {.code = 0};
	int r;

	if (tensor == NULL)
		r = tdc_refuse_null("tensor", &fault);
	else if (address == NULL)
		r = tdc_refuse_null("address", &fault);
	else
		r = tdc_tensor_map_at(tensor, address, size_bytes, &fault);
	return tdc_report(r, &fault);
}

int tidl_tensor_export(struct tidl_tensor *tensor, struct DLManagedTensorVersioned **ret_managed)
{
	struct tdp_fault fault = {.code = 0};
	int r;

	if (tensor == NULL)
		r = tdc_refuse_null("tensor", &fault);
	else if (ret_managed == NULL)
		r = tdc_refuse_null("ret_managed", &fault);
	else
		r = tdc_export(tensor, ret_managed, &fault);
	return tdc_report(r, &fault);
}

int tidl_tensor_export_legacy(struct tidl_tensor *tensor, uint32_t flags,
			      struct DLManagedTensor **ret_managed)
{
	struct tdp_fault fault = {.code = 0};
	int r;

	if (tensor == NULL)
		r = tdc_refuse_null("tensor", &fault);
	else if (ret_managed == NULL)
		r = tdc_refuse_null("ret_managed", &fault);
	else if ((flags & ~TIDL_EXPORT_ALLOW_READONLY) != 0)
		r = tdp_fault_set(&fault, TIDL_ERR_INVALID_ARGUMENT,
				  "`flags` has bits that mean nothing: use TIDL_EXPORT_* only");
	else
		r = tdc_export_legacy(tensor, flags, ret_managed, &fault);
	return tdc_report(r, &fault);
}
