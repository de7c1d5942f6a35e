/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_HUGE_H
#define TDC_HUGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/attr.h"
#include "proto/base/fault.h"

struct tidl_client;

/* Does the kernel's policy let a map of this size have huge pages? Asked once for each process;
 * with the policy `never`, which many machines have, nothing below is ever done. */
bool tdc_huge_is_allowed(uint64_t size_bytes);

/*
 * Reserve the pages of a fresh, writable map, huge ones where there are any: a page that is
 * reserved through the descriptor never becomes one. TIDL_ERR_NO_MEMORY, TIDL_ERR_INTERRUPTED.
 */
int tdc_huge_reserve(struct tidl_client *client, void *base, uint64_t size_bytes,
		     struct tdp_fault *fault) TDP_MUST_CHECK;

/* How much of the map at @base this process has in huge pages, by the kernel's word. Reads
 * /proc/self/smaps, which takes its time. */
uint64_t tdc_huge_measure(const void *base);

#endif
