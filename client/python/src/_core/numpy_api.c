/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NumPy's functions for memory handlers, out of the table that it exports for C extensions. Places
 * in that table are NumPy's ABI: they are never given to something else.
 */
#include "client/python/src/_core/numpy_memory.h"

#include <string.h>

enum numpy_place {
	NUMPY_ABI_VERSION = 0,
	NUMPY_FEATURE_VERSION = 211,
	NUMPY_SET_HANDLER = 304,
	NUMPY_GET_HANDLER = 305,
};

/* ABI versions 0x01000009 and 0x02000000; the features of 1.22 are the first with handlers. */
enum { NUMPY_ABI_MAJOR_SHIFT = 24, NUMPY_ABI_MAJOR_MAX = 2, NUMPY_FEATURES_OF_1_22 = 0xf };

static unsigned numpy_version(void *const *table, enum numpy_place place)
{
	unsigned (*ask)(void);

	memcpy(&ask, &table[place], sizeof(ask));
	return ask();
}

int tpy_numpy_open(const struct tpy_state *state, PyObject *capsule, struct tpy_numpy_api *ret_api)
{
	void *const *table = PyCapsule_GetPointer(capsule, NULL);

	if (!table)
		return -1;
	if (numpy_version(table, NUMPY_ABI_VERSION) >> NUMPY_ABI_MAJOR_SHIFT >
	    NUMPY_ABI_MAJOR_MAX) {
		tpy_raise(state, TIDL_ERR_UNSUPPORTED,
			  "this NumPy is newer than what tidl knows how to allocate for: update "
			  "tidl, or use client.empty()");
		return -1;
	}
	if (numpy_version(table, NUMPY_FEATURE_VERSION) < NUMPY_FEATURES_OF_1_22) {
		tpy_raise(state, TIDL_ERR_UNSUPPORTED,
			  "this NumPy always allocates by itself: update it to 1.22 or newer, or "
			  "use client.empty()");
		return -1;
	}
	memcpy(&ret_api->set_handler, &table[NUMPY_SET_HANDLER], sizeof(ret_api->set_handler));
	memcpy(&ret_api->get_handler, &table[NUMPY_GET_HANDLER], sizeof(ret_api->get_handler));
	return 0;
}
