/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The registry of clients and what fork() does to them. Before the fork all clients are locked, so
 * that the child inherits none of them half changed; the only thread of the child then holds these
 * locks itself and sets them free. Children made without fork() handlers (vfork, posix_spawn,
 * _Fork) only exec and need nothing.
 *
 * Lock order: the moves, the registry, then the clients in the registry's order. A fork waits for
 * the end of a move, so that the child has all of it or nothing.
 */
#include "client/lib/fork.h"

#include <pthread.h>

#include <utlist.h>

#include "client/lib/client.h"
#include "client/lib/inplace/move.h"
#include "client/lib/inplace/provisions.h"
#include "client/lib/segtable.h"

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct tidl_client *registry_clients;
static pthread_once_t registry_once = PTHREAD_ONCE_INIT;

static void fork_prepare(void)
{
	struct tidl_client *client;

	tdc_moves_lock();
	pthread_mutex_lock(&registry_lock);
	DL_FOREACH (registry_clients, client)
		tdc_client_lock(client);
}

static void fork_parent(void)
{
	struct tidl_client *client;

	DL_FOREACH (registry_clients, client) {
		client->fork_count++;
		tdc_client_unlock(client);
	}
	pthread_mutex_unlock(&registry_lock);
	tdc_moves_unlock();
}

static void fork_child(void)
{
	struct tidl_client *client;

	tdc_provisions_renew();
	DL_FOREACH (registry_clients, client) {
		tdc_client_become_child(client);
		tdc_client_unlock(client);
	}
	pthread_mutex_unlock(&registry_lock);
	tdc_moves_unlock();
}

static void registry_init(void)
{
	(void)pthread_atfork(fork_prepare, fork_parent, fork_child);
}

void tdc_fork_init(void)
{
	(void)pthread_once(&registry_once, registry_init);
}

void tdc_fork_link(struct tidl_client *client)
{
	tdc_fork_init();
	pthread_mutex_lock(&registry_lock);
	DL_APPEND(registry_clients, client);
	pthread_mutex_unlock(&registry_lock);
}

void tdc_fork_unlink(struct tidl_client *client)
{
	pthread_mutex_lock(&registry_lock);
	DL_DELETE(registry_clients, client);
	pthread_mutex_unlock(&registry_lock);
}

bool tdc_fork_find_elsewhere(const struct tidl_client *mine, uintptr_t begin, uintptr_t end)
{
	struct tidl_client *client;
	bool is_found = false;

	pthread_mutex_lock(&registry_lock);
	DL_FOREACH (registry_clients, client) {
		if (client == mine)
			continue;
		tdc_client_lock(client);
		if (tdc_segtable_find_range(&client->segments, begin, end) != NULL)
			is_found = true;
		tdc_client_unlock(client);
	}
	pthread_mutex_unlock(&registry_lock);
	return is_found;
}
