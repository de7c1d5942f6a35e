/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_INPLACE_LISTED_H
#define TDC_INPLACE_LISTED_H

#include <stdbool.h>
#include <stddef.h>

struct tidl_client;
struct tidl_watch;

/* What a client knows of others who take its names away. Guarded by the client's lock. */
struct tdc_listed {
	struct tidl_watch *watch; /* opened with the first moved memory; NULL: none, or taken */
	bool is_taken;		  /* a thread reads it */
	bool is_blind;		  /* events were lost: the names have to be asked for */
	size_t naming_count;	  /* publishes whose generation is not entered yet */
};

/* A publish is about to name moved memory: from here on its name is watched. Without a watch, which
 * quotas may refuse, only what this client removes itself is noticed. One round trip at first. */
void tdc_listed_begin(struct tidl_client *client);

/* It is entered, or has failed. */
void tdc_listed_end(struct tidl_client *client);

/* Drop the uses of names that others have removed or replaced. Never blocks. No lock held. */
void tdc_listed_update(struct tidl_client *client);

/* The same, and ask for the names when events were lost; may take round trips. */
void tdc_listed_ask(struct tidl_client *client);

/* The client ends, and no other call runs. */
void tdc_listed_close(struct tidl_client *client);

#endif
