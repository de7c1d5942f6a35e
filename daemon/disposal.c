/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A detached thread closes each lot. libuv's pool would not do: a few hanging lots fill it, and it
 * joins its threads at exit. The list of lots is shared with these threads, hence a mutex and a
 * global; the threads touch nothing else. When the process exits, hanging threads end with it.
 */
#include "daemon/disposal.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
#include <utlist.h>

#include "proto/base/attr.h"

struct lot {
	uint32_t uid;
	struct tdp_fdset fds;
	struct lot *prev, *next;
};

static pthread_mutex_t lots_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct lot *lots;

static void lot_link(struct lot *lot)
{
	pthread_mutex_lock(&lots_mutex);
	DL_APPEND(lots, lot);
	pthread_mutex_unlock(&lots_mutex);
}

static void lot_unlink(struct lot *lot)
{
	pthread_mutex_lock(&lots_mutex);
	DL_DELETE(lots, lot);
	pthread_mutex_unlock(&lots_mutex);
}

static void *lot_close(void *context)
{
	struct lot *lot = context;

	tdp_fdset_deinit(&lot->fds);
	lot_unlink(lot);
	free(lot);
	return NULL;
}

static int lot_start(struct lot *lot)
{
	pthread_attr_t attributes;
	pthread_t thread;
	int r = pthread_attr_init(&attributes);

	if (r != 0)
		return r;
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	r = pthread_create(&thread, &attributes, lot_close, lot);
	pthread_attr_destroy(&attributes);
	return r;
}

void tdd_disposal_take(uint32_t uid, struct tdp_fdset *fds)
{
	struct lot *lot;

	if (fds->count == 0)
		return;
	lot = malloc(sizeof(*lot));
	/* Without memory for a lot they stay open, uncounted: the loop must not hang. */
	if (lot) {
		lot->uid = uid;
		lot->fds = *fds;
		lot_link(lot);
		/* The same without a thread, but counted, so that the uid is refused in time. */
		(void)lot_start(lot);
	}
	tdp_fdset_init(fds);
}

uint32_t tdd_disposal_pending(uint32_t uid)
{
	const struct lot *lot;
	uint32_t count = 0;

	pthread_mutex_lock(&lots_mutex);
	DL_FOREACH (lots, lot) {
		if (lot->uid == uid)
			count += lot->fds.count;
	}
	pthread_mutex_unlock(&lots_mutex);
	return count;
}
