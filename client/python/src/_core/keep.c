/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors that libtidl may keep beyond the call: those shared where they lie, and those of bundles.
 * It lets go of them in any of its calls, without the GIL; the producer's deleter gets it. NumPy
 * 1.23 frees Python memory in its deleter and relies on the caller for that.
 */
#include "client/python/src/_core/core.h"

#include <stdlib.h>

struct kept {
	struct tpy_source source;
	union {
		DLManagedTensorVersioned versioned;
		DLManagedTensor legacy;
	} managed;
};

static void kept_free(struct kept *kept)
{
	/* Behind the interpreter's end nobody is left who could be told. */
	if (Py_IsInitialized()) {
		PyGILState_STATE before = PyGILState_Ensure();

		tpy_source_discard(&kept->source);
		PyGILState_Release(before);
	}
	free(kept);
}

static void kept_deleter(DLManagedTensorVersioned *managed)
{
	kept_free(managed->manager_ctx);
}

static void kept_deleter_legacy(DLManagedTensor *managed)
{
	kept_free(managed->manager_ctx);
}

int tpy_source_keep(struct tpy_source *source)
{
	struct kept *kept = malloc(sizeof(*kept));

	if (!kept) {
		PyErr_NoMemory();
		return -1;
	}
	kept->source = *source;
	if (source->versioned) {
		kept->managed.versioned = *source->versioned;
		kept->managed.versioned.manager_ctx = kept;
		kept->managed.versioned.deleter = kept_deleter;
		source->versioned = &kept->managed.versioned;
	} else {
		kept->managed.legacy = *source->legacy;
		kept->managed.legacy.manager_ctx = kept;
		kept->managed.legacy.deleter = kept_deleter_legacy;
		source->legacy = &kept->managed.legacy;
	}
	return 0;
}
