/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names that moved memory is published by, and when it may end: no name of this client stands
 * for it any more, and the broker says that nobody else holds what they stood for. Then whoever
 * calls next makes it private and lets its owner have it.
 */
#include "client/lib/inplace/uses.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "client/lib/client.h"
#include "client/lib/deadline.h"
#include "client/lib/generation.h"
#include "client/lib/inplace/listed.h"
#include "client/lib/pending.h"
#include "proto/wire/limits.h"

enum { BUSY_PATIENCE_MS = 1000, BUSY_PAUSE_MS = 1 };

struct tdc_moved_use *tdc_use_new(const char *path)
{
	size_t size_bytes = strlen(path) + 1;
	struct tdc_moved_use *use = calloc(1, sizeof(*use) + size_bytes);

	if (use != NULL)
		memcpy(use->path, path, size_bytes);
	return use;
}

static struct tdc_moved_use *use_free(struct tdc_moved_use *use)
{
	if (use != NULL)
		tidl_pending_free(use->release);
	free(use);
	return NULL;
}

void tdc_uses_free(struct tdc_moved *moved)
{
	struct tdc_moved_use *use;
	struct tdc_moved_use *next;

	DL_FOREACH_SAFE (moved->uses, use, next)
		(void)use_free(use);
	moved->uses = NULL;
}

void tdc_use_enter(struct tidl_client *client, struct tdc_moved *moved, struct tdc_moved_use *use,
		   uint64_t generation)
{
	use->generation = generation;
	use->is_listed = true;
	tdc_client_lock(client);
	DL_PREPEND(moved->uses, use);
	tdc_client_unlock(client);
}

void tdc_uses_drop(struct tidl_client *client, const char *path, uint64_t generation)
{
	struct tdc_moved *moved;
	struct tdc_moved_use *use;

	tdc_client_lock(client);
	DL_FOREACH (client->moved, moved) {
		DL_FOREACH (moved->uses, use) {
			if (use->generation != generation && strcmp(use->path, path) == 0)
				use->is_listed = false;
		}
	}
	tdc_client_unlock(client);
}

void tdc_uses_drop_below(struct tidl_client *client, const char *path, uint64_t generation)
{
	struct tdc_moved *moved;
	struct tdc_moved_use *use;

	tdc_client_lock(client);
	DL_FOREACH (client->moved, moved) {
		DL_FOREACH (moved->uses, use) {
			if (use->generation < generation && strcmp(use->path, path) == 0)
				use->is_listed = false;
		}
	}
	tdc_client_unlock(client);
}

char *tdc_uses_next(struct tidl_client *client, uint64_t *checked)
{
	struct tdc_moved *moved;
	struct tdc_moved_use *use;
	const struct tdc_moved_use *next = NULL;
	char *path = NULL;

	tdc_client_lock(client);
	DL_FOREACH (client->moved, moved) {
		DL_FOREACH (moved->uses, use) {
			if (use->is_listed && use->generation > *checked &&
			    (next == NULL || use->generation < next->generation))
				next = use;
		}
	}
	if (next != NULL) {
		*checked = next->generation;
		path = strdup(next->path);
	}
	tdc_client_unlock(client);
	return path;
}

/* ---- what is not used any more ---- */

static bool moved_is_listed(const struct tdc_moved *moved)
{
	const struct tdc_moved_use *use;

	DL_FOREACH (moved->uses, use) {
		if (use->is_listed)
			return true;
	}
	return false;
}

/* One that nobody is at and no name stands for, behind @last; busy then. */
static struct tdc_moved *moved_take_unlisted(struct tidl_client *client, struct tdc_moved *last)
{
	struct tdc_moved *moved;

	tdc_client_lock(client);
	moved = last == NULL ? client->moved : last->next;
	while (moved != NULL && (moved->is_busy || moved_is_listed(moved)))
		moved = moved->next;
	if (moved != NULL)
		moved->is_busy = true;
	if (last != NULL)
		last->is_busy = false;
	tdc_client_unlock(client);
	return moved;
}

/* Ask the broker once, and look whether it has answered. Whatever the answer: it no longer knows
 * the generation, or nobody holds it. */
static bool use_is_over(struct tidl_client *client, struct tdc_moved_use *use)
{
	struct tdc_name name = {.path = use->path};
	struct tidl_wait_options options = {.released = 1, .generation = use->generation};
	struct tdp_message message = tdc_wait_message(&name, &options);
	struct tdp_fault unused;

	if (use->release == NULL &&
	    tdc_pending_begin(client, &message, TDP_MESSAGE_WAITED, &use->release, &unused) < 0)
		return false;
	return tidl_pending_is_done(use->release) != 0;
}

static bool use_is_listed(struct tidl_client *client, const struct tdc_moved_use *use)
{
	bool is_listed;

	tdc_client_lock(client);
	is_listed = use->is_listed;
	tdc_client_unlock(client);
	return is_listed;
}

/* Uses come at the head only, and go here only: the list may be walked without the lock, and whom
 * a thread drops is busy. */
static bool moved_is_unused(struct tidl_client *client, struct tdc_moved *moved)
{
	struct tdc_moved_use *use;
	bool is_unused = true;

	tdc_client_lock(client);
	use = moved->uses;
	tdc_client_unlock(client);
	for (struct tdc_moved_use *next; use != NULL; use = next) {
		next = use->next;
		if (use_is_listed(client, use) || (!use->is_dropped && !use_is_over(client, use))) {
			is_unused = false;
			continue;
		}
		tdc_client_lock(client);
		DL_DELETE(moved->uses, use);
		tdc_client_unlock(client);
		(void)use_free(use);
	}
	return is_unused;
}

void tdc_moved_reap(struct tidl_client *client)
{
	struct tdp_fault unused;
	struct tdc_moved *moved;

	tdc_listed_update(client);
	moved = moved_take_unlisted(client, NULL);
	while (moved != NULL) {
		if (moved_is_unused(client, moved)) {
			/* One at a time is enough: the next call takes the next one. */
			(void)!tdc_moved_end(client, moved, &unused);
			return;
		}
		moved = moved_take_unlisted(client, moved);
	}
}

/* ---- by request ---- */

static bool moved_has_name(const struct tdc_moved *moved, const char *path)
{
	const struct tdc_moved_use *use;

	DL_FOREACH (moved->uses, use) {
		if (strcmp(use->path, path) == 0)
			return true;
	}
	return false;
}

static const char *moved_other_name(const struct tdc_moved *moved, const char *path)
{
	const struct tdc_moved_use *use;

	DL_FOREACH (moved->uses, use) {
		if (use->is_listed && strcmp(use->path, path) != 0)
			return use->path;
	}
	return NULL;
}

static bool path_is_busy(struct tidl_client *client, const char *path)
{
	struct tdc_moved *moved;
	bool is_busy = false;

	tdc_client_lock(client);
	DL_FOREACH (client->moved, moved)
		is_busy = is_busy || (moved->is_busy && moved_has_name(moved, path));
	tdc_client_unlock(client);
	return is_busy;
}

/* Others are at it for the time of a copy or a round trip: an event loop that dispatches, say. */
static int path_await(struct tidl_client *client, const char *path, struct tdp_fault *fault)
{
	int64_t deadline = tdc_deadline_after(BUSY_PATIENCE_MS);

	while (path_is_busy(client, path) && tdc_deadline_poll_ms(deadline) != 0) {
		if (poll(NULL, 0, BUSY_PAUSE_MS) < 0 && tdc_interrupt_is_asked(&client->interrupt))
			return tdp_fault_code(fault, TIDL_ERR_INTERRUPTED);
	}
	return 0;
}

int tdc_unshare_check(struct tidl_client *client, const char *path, struct tdp_fault *fault)
{
	struct tdc_moved *moved;
	bool is_found = false;
	int r = path_await(client, path, fault);

	if (r < 0)
		return r;
	tdc_client_lock(client);
	DL_FOREACH (client->moved, moved) {
		const char *other;

		if (!moved_has_name(moved, path))
			continue;
		is_found = true;
		other = moved_other_name(moved, path);
		if (moved->is_busy)
			r = tdp_fault_set(fault, TIDL_ERR_BUSY,
					  "another thread is at the memory of '%s': wait until it "
					  "is done",
					  path);
		else if (other != NULL)
			r = tdp_fault_set(fault, TIDL_ERR_BUSY,
					  "the memory of '%s' is published as '%s', too: remove "
					  "that first",
					  path, other);
	}
	tdc_client_unlock(client);
	if (is_found)
		return r;
	return tdp_fault_set(fault, TIDL_ERR_NOT_FOUND,
			     "nothing was shared in place as '%s' by this client: only that can "
			     "become private again",
			     path);
}

static struct tdc_moved *moved_take_by_name(struct tidl_client *client, const char *path)
{
	struct tdc_moved *moved;

	tdc_client_lock(client);
	DL_FOREACH (client->moved, moved) {
		if (!moved->is_busy && moved_has_name(moved, path) &&
		    moved_other_name(moved, path) == NULL)
			break;
	}
	if (moved != NULL)
		moved->is_busy = true;
	tdc_client_unlock(client);
	return moved;
}

/* None of its uses is in the way of its end any more; but they are found by their names, should it
 * fail. It is busy. */
static void moved_drop_uses(struct tidl_client *client, struct tdc_moved *moved)
{
	struct tdc_moved_use *use;

	tdc_client_lock(client);
	DL_FOREACH (moved->uses, use) {
		use->is_listed = false;
		use->is_dropped = true;
	}
	tdc_client_unlock(client);
}

static int moved_end_by_name(struct tidl_client *client, const char *path, struct tdp_fault *fault)
{
	struct tdc_moved *moved;
	int r = 0;

	while (r == 0 && (moved = moved_take_by_name(client, path)) != NULL) {
		moved_drop_uses(client, moved);
		r = tdc_moved_end(client, moved, fault);
	}
	return r;
}

/* Other threads may have come between the check and here, and what they are at is not taken. */
int tdc_unshare(struct tidl_client *client, const char *path, struct tdp_fault *fault)
{
	struct tdp_fault rest;
	int r = 0;

	while (r == 0) {
		r = moved_end_by_name(client, path, fault);
		if (r < 0)
			return r;
		r = tdc_unshare_check(client, path, &rest);
	}
	if (r == TIDL_ERR_NOT_FOUND)
		return 0;
	*fault = rest;
	return r;
}

/* The first behind @last that nobody is at; busy then. */
static struct tdc_moved *moved_take_next(struct tidl_client *client, struct tdc_moved *last)
{
	struct tdc_moved *moved;

	tdc_client_lock(client);
	moved = last == NULL ? client->moved : last->next;
	while (moved != NULL && moved->is_busy)
		moved = moved->next;
	if (moved != NULL)
		moved->is_busy = true;
	tdc_client_unlock(client);
	return moved;
}

/* For good, and with words for it. */
static int moved_end_last(struct tidl_client *client, struct tdc_moved *moved,
			  struct tdp_fault *fault)
{
	char path[TDP_NAME_MAX_BYTES + 1];
	struct tdp_fault reason;
	uint64_t left_bytes;
	int r;

	(void)snprintf(path, sizeof(path), "%s", moved->uses != NULL ? moved->uses->path : "");
	r = tdc_moved_end_last(client, moved, &left_bytes, &reason);
	if (r < 0)
		(void)tdp_fault_set(fault, r,
				    "%llu bytes that were published as '%s' stay shared with "
				    "whoever has them attached, until their owner frees them: %s",
				    (unsigned long long)left_bytes, path, reason.text);
	return r;
}

int tdc_moved_end_all(struct tidl_client *client, bool is_last, struct tdp_fault *fault)
{
	struct tdc_moved *kept = NULL;
	struct tdc_moved *moved;
	struct tdp_fault one;
	int r = 0;

	while ((moved = moved_take_next(client, kept)) != NULL) {
		int end;

		moved_drop_uses(client, moved);
		end = is_last ? moved_end_last(client, moved, &one)
			      : tdc_moved_end(client, moved, &one);
		if (end < 0 && !is_last)
			kept = moved;
		if (end < 0 && r == 0) {
			r = end;
			*fault = one;
		}
	}
	return r;
}

void tdc_moved_become_child(struct tidl_client *client)
{
	struct tdc_moved *moved;

	DL_FOREACH (client->moved, moved)
		moved->is_busy = false;
	client->listed.is_taken = false;
	client->listed.naming_count = 0;
}
