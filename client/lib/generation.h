/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_GENERATION_H
#define TDC_GENERATION_H

#include <stdint.h>

#include "client/lib/origin.h"
#include "client/lib/owner.h"
#include "include/tidl/watch.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"
#include "proto/wire/message.h"

struct tidl_client;

/* A user's wait, checked. @ret_name keeps pointing into @text. */
int tdc_wait_parse(const char *text, const struct tidl_wait_options *options,
		   struct tdc_name *ret_name, struct tidl_wait_options *ret_options,
		   struct tdp_fault *fault) TDP_MUST_CHECK;

/* The message that asks for it, with the name's text in it. */
struct tdp_message tdc_wait_message(const struct tdc_name *name,
				    const struct tidl_wait_options *options);

/* Wait as checked options say. */
int tdc_wait(struct tidl_client *client, const struct tdc_name *name,
	     const struct tidl_wait_options *options, uint64_t *ret_generation,
	     struct tdp_fault *fault) TDP_MUST_CHECK;

/*
 * The failure of a wait whose time is over: for a name, or, where @newer_than is not 0, for a
 * generation above that one. Returns TIDL_ERR_TIMEOUT.
 */
int tdc_generation_expired(const struct tdc_name *name, uint64_t newer_than, int64_t timeout_ms,
			   struct tdp_fault *fault);

/* Pin a generation for a while. */
int tdc_pin(struct tidl_client *client, const struct tdc_name *name, uint64_t generation,
	    struct tdp_fault *fault) TDP_MUST_CHECK;

/* The same for what was got by name, over the connection that holds it. */
int tdc_pin_origin(const struct tdc_origin *origin, struct tdp_fault *fault) TDP_MUST_CHECK;

#endif
