/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dead DLPack structures of this extension, kept for a while as libtidl keeps its own
 * (client/lib/export.c): old frameworks call a deleter twice, and the second call has to find
 * memory that says so. Needs no GIL and takes no lock.
 */
#include "client/python/src/_core/core.h"

#include <stdlib.h>

/* A second call follows the first at once; this many others may die in between. */
enum { QUARANTINE_COUNT = 256 };

static _Atomic(void *) quarantine[QUARANTINE_COUNT];
static atomic_uint quarantine_next;

int tpy_is_first_deletion(atomic_int *is_dead)
{
	return !atomic_exchange(is_dead, 1);
}

void tpy_bury(void *block)
{
	unsigned slot = atomic_fetch_add(&quarantine_next, 1) % QUARANTINE_COUNT;

	free(atomic_exchange(&quarantine[slot], block));
}
