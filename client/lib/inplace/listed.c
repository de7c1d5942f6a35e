/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removals by others, of names that moved memory is published by: tidlctl, another client of the
 * same user, a time that is over. One watch for all names of the client's namespace; whichever
 * thread calls next takes it, reads what has arrived and puts it back. Ends nothing itself
 * (uses.c).
 */
#include "client/lib/inplace/listed.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "client/lib/client.h"
#include "client/lib/generation.h"
#include "client/lib/inplace/uses.h"
#include "client/lib/watch.h"

#define KINDS (TIDL_EVENT_BIT(TIDL_EVENT_REMOVED) | TIDL_EVENT_BIT(TIDL_EVENT_REPLACED))

/* A watch of the connection before a fork hears nothing any more. Client locked. */
static bool listed_is_watched(const struct tidl_client *client)
{
	return client->listed.is_taken ||
	       (client->listed.watch != NULL && client->listed.watch->era == client->era);
}

void tdc_listed_begin(struct tidl_client *client)
{
	const struct tdc_name everything = {.path = "**"};
	struct tidl_watch *watch = NULL;
	struct tidl_watch *other;
	struct tdp_fault unused;
	bool is_watched;

	tdc_client_lock(client);
	client->listed.naming_count++;
	is_watched = listed_is_watched(client);
	tdc_client_unlock(client);
	if (is_watched || tdc_watch_open(client, &everything, KINDS, &watch, &unused) < 0)
		return;
	tdc_client_lock(client);
	other = watch;
	if (!listed_is_watched(client)) {
		other = client->listed.watch;
		client->listed.watch = watch;
	}
	tdc_client_unlock(client);
	tidl_unwatch(other);
}

void tdc_listed_end(struct tidl_client *client)
{
	tdc_client_lock(client);
	client->listed.naming_count--;
	tdc_client_unlock(client);
}

/* Generations only grow: what is entered later than the event happened is above it. */
static void listed_apply(struct tidl_client *client, const struct tidl_event *event)
{
	if (event->kind == TIDL_EVENT_REMOVED)
		tdc_uses_drop_below(client, event->name, event->generation + 1);
	else if (event->kind == TIDL_EVENT_REPLACED)
		tdc_uses_drop_below(client, event->name, event->generation);
}

/* NULL while a publish has not entered its generation: its events would be read too early. */
static struct tidl_watch *listed_take(struct tidl_client *client)
{
	struct tidl_watch *watch = NULL;

	tdc_client_lock(client);
	if (client->listed.naming_count == 0 && client->moved != NULL) {
		watch = client->listed.watch;
		client->listed.watch = NULL;
		client->listed.is_taken = watch != NULL;
	}
	tdc_client_unlock(client);
	return watch;
}

void tdc_listed_update(struct tidl_client *client)
{
	struct tidl_watch *watch = listed_take(client);
	struct tidl_event event;
	struct tdp_fault unused;
	bool is_blind = false;

	if (watch == NULL)
		return;
	while (tdc_watch_next(watch, 0, &event, &unused) == 0) {
		is_blind = is_blind || event.kind == TIDL_EVENT_LOST;
		listed_apply(client, &event);
	}
	tdc_client_lock(client);
	client->listed.watch = watch;
	client->listed.is_taken = false;
	client->listed.is_blind = client->listed.is_blind || is_blind;
	tdc_client_unlock(client);
}

/* What the name stands for now; UINT64_MAX for nothing, 0 when there is no answer. */
static uint64_t generation_now(struct tidl_client *client, const char *path)
{
	const struct tdc_name name = {.path = path};
	const struct tidl_wait_options options = {.timeout_ms = 0};
	struct tdp_fault unused;
	uint64_t generation = 0;
	int r = tdc_wait(client, &name, &options, &generation, &unused);

	if (r == TIDL_ERR_TIMEOUT || r == TIDL_ERR_NOT_FOUND)
		return UINT64_MAX;
	return r < 0 ? 0 : generation;
}

void tdc_listed_ask(struct tidl_client *client)
{
	char *path;
	uint64_t checked = 0;
	bool is_blind;

	tdc_listed_update(client);
	tdc_client_lock(client);
	is_blind = client->listed.is_blind;
	client->listed.is_blind = false;
	tdc_client_unlock(client);
	while (is_blind && (path = tdc_uses_next(client, &checked)) != NULL) {
		uint64_t now = generation_now(client, path);

		/* Only what was there before the question. */
		tdc_uses_drop_below(client, path, now == UINT64_MAX ? checked + 1 : now);
		free(path);
	}
}

void tdc_listed_close(struct tidl_client *client)
{
	struct tidl_watch *watch;

	tdc_client_lock(client);
	watch = client->listed.watch;
	client->listed.watch = NULL;
	tdc_client_unlock(client);
	tidl_unwatch(watch);
}
