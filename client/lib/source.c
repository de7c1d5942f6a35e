/* SPDX-License-Identifier: Apache-2.0 */
/* Frameworks' tensors on their way in, until the last who needs their memory lets go. Reads
 * nothing of them but the deleter. */
#include "client/lib/source.h"

#include <stdlib.h>

#include <dlpack/dlpack.h>

struct tdc_source *tdc_source_new(struct DLManagedTensorVersioned *versioned,
				  struct DLManagedTensor *legacy)
{
	struct tdc_source *source = malloc(sizeof(*source));

	if (source == NULL)
		return NULL;
	atomic_init(&source->refs, 1);
	source->versioned = versioned;
	source->legacy = legacy;
	return source;
}

struct tdc_source *tdc_source_ref(struct tdc_source *source)
{
	atomic_fetch_add_explicit(&source->refs, 1, memory_order_relaxed);
	return source;
}

struct tdc_source *tdc_source_unref(struct tdc_source *source)
{
	if (source == NULL ||
	    atomic_fetch_sub_explicit(&source->refs, 1, memory_order_acq_rel) != 1)
		return NULL;
	if (source->versioned != NULL && source->versioned->deleter != NULL)
		source->versioned->deleter(source->versioned);
	if (source->legacy != NULL && source->legacy->deleter != NULL)
		source->legacy->deleter(source->legacy);
	free(source);
	return NULL;
}

struct tdc_source *tdc_source_forget(struct tdc_source *source)
{
	free(source);
	return NULL;
}
