/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_INPLACE_USES_H
#define TDC_INPLACE_USES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/lib/inplace/moved.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

/* Room for one more use, made before the publish, so that it cannot fail behind it. */
struct tdc_moved_use *tdc_use_new(const char *path);

/* @moved is published now as @use says; not busy any more. Consumes @use. */
void tdc_use_enter(struct tidl_client *client, struct tdc_moved *moved, struct tdc_moved_use *use,
		   uint64_t generation);

/*
 * A name of this client's namespace has another content than before: @generation, or none (0).
 * What was moved for the old one becomes private when nobody else holds that any more.
 */
void tdc_uses_drop(struct tidl_client *client, const char *path, uint64_t generation);

/* Others have done so: generations below @generation are not listed as @path any more. */
void tdc_uses_drop_below(struct tidl_client *client, const char *path, uint64_t generation);

/* The name of the oldest use that is listed, of those above the generation @checked, which becomes
 * that one's; NULL: none, or no memory. Free it. */
char *tdc_uses_next(struct tidl_client *client, uint64_t *checked);

/* Make private what has no use any more. For the beginning of calls that take time anyway: calls
 * the deleters of frameworks. No lock held. */
void tdc_moved_reap(struct tidl_client *client);

/*
 * The same for all there is, whoever uses it: the client has ended. @is_last: no other call runs,
 * and there will be none; otherwise what does not become private is tried again by then. Returns
 * the first failure, whose sentence names what stays shared.
 */
int tdc_moved_end_all(struct tidl_client *client, bool is_last,
		      struct tdp_fault *fault) TDP_MUST_CHECK;

/* May what was moved for this name become private? Waits a moment for other threads that are at it.
 * TIDL_ERR_NOT_FOUND, _BUSY, _INTERRUPTED. */
int tdc_unshare_check(struct tidl_client *client, const char *path,
		      struct tdp_fault *fault) TDP_MUST_CHECK;

/* Make it so. The name itself has been removed, as far as that can be known. TIDL_ERR_BUSY when
 * another thread has begun to use the memory since it was checked. */
int tdc_unshare(struct tidl_client *client, const char *path,
		struct tdp_fault *fault) TDP_MUST_CHECK;

/* In a forked child no other thread is at anything. Client locked. */
void tdc_moved_become_child(struct tidl_client *client);

void tdc_uses_free(struct tdc_moved *moved);

#endif
