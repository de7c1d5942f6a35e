/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_INPLACE_RETREAT_H
#define TDC_INPLACE_RETREAT_H

#include <stdbool.h>
#include <stddef.h>

#include "client/lib/inplace/maps.h"
#include "client/lib/inplace/move.h"
#include "client/lib/inplace/range.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

/*
 * The way back: private pages with the content that the memfd's have. malloc's header is the one
 * that was saved. Where there is no room for a copy, or no guard, the memfd itself is mapped
 * privately, if the backing has its descriptor. After a failure it can be tried again and goes on
 * where it stopped. What is no map of the memfd any more (freed by its owner) is left alone, and
 * all that lies behind it; TIDL_ERR_RELEASED when nothing is left. The moves are locked.
 */
int tdc_unmove(struct tdc_range *range, const struct tdc_backing *backing,
	       struct tdp_fault *fault) TDP_MUST_CHECK;

/*
 * When that has failed for the last time: the page with malloc's header alone becomes private, so
 * that others cannot break free(). What a thread writes into that page at this moment may be lost.
 * The range cannot be made private any more after it.
 */
int tdc_unmove_header(struct tdc_range *range, const struct tdc_backing *backing,
		      struct tdp_fault *fault) TDP_MUST_CHECK;

/* How many of its first @size_bytes are still those that were moved? Its owner may have given the
 * end of them back, or all. */
size_t tdc_range_left_bytes(const struct tdc_maps *maps, const struct tdc_range *range,
			    size_t size_bytes, const struct tdc_map *file);

#endif
