/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_STEPS_H
#define TDC_STEPS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/base/attr.h"
#include "proto/base/fault.h"
#include "proto/mem/control.h"

struct tdc_segment;
struct tidl_client;
struct tidl_pending;
struct tidl_tensor;

/* How this process takes part in the steps of one segment. Made by the first use, owned by the
 * segment as it is mapped, constant but for what is marked. */
struct tdc_steps {
	struct tdp_control *control;
	atomic_bool is_writable;    /* until the segment becomes immutable */
	_Atomic uint64_t open_word; /* of the update that this process has open; 0: none */

	/* Guarded by the client's lock. */
	struct tidl_pending
		*watch; /* asks the broker to tell of writers that go; NULL: not asked */
	uint64_t loss_count;
	uint64_t told_count; /* of those, what some waiting call was told of */
	struct tdp_fault loss;
};

/*
 * The steps of the tensor's segment, mapped now (one round trip) or before; they live as long as
 * the tensor. NULL: the fault says why.
 */
struct tdc_steps *tdc_steps_find(const struct tidl_tensor *tensor,
				 struct tdp_fault *fault) TDP_MUST_CHECK;

/*
 * Before memory of this client becomes live: afterwards the kernel lets nobody map it for writing
 * any more.
 */
int tdc_steps_prepare(struct tidl_client *client, struct tdc_segment *segment,
		      struct tdp_fault *fault) TDP_MUST_CHECK;

/* NULL is allowed. Returns NULL. No lock held. */
struct tdc_steps *tdc_steps_free(struct tdc_steps *steps);

/* What the public functions of the same names do; arguments are checked. */
int tdc_update_begin(const struct tidl_tensor *tensor, bool takes_over,
		     struct tdp_fault *fault) TDP_MUST_CHECK;
int tdc_update_end(const struct tidl_tensor *tensor, uint64_t *ret_step,
		   struct tdp_fault *fault) TDP_MUST_CHECK;
int tdc_step(const struct tidl_tensor *tensor, uint64_t *ret_step,
	     struct tdp_fault *fault) TDP_MUST_CHECK;
int tdc_commit(const struct tidl_tensor *tensor, uint64_t *ret_step,
	       struct tdp_fault *fault) TDP_MUST_CHECK;

#endif
