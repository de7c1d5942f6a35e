/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_SEAL_H
#define TDC_SEAL_H

#include "client/lib/segment.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

struct tidl_client;

/* How long it is tried while somebody has the memory mapped for writing: a child between fork() and
 * exec() goes away within that. */
enum { TDC_SEAL_PATIENCE_MS = 200 };

/*
 * Seal memory against all writing, for ever. @write_fd may write it, and nobody has it mapped for
 * that: TIDL_ERR_BUSY when somebody has and keeps it. TIDL_ERR_ACCESS when its seals are final
 * already, TIDL_ERR_INTERRUPTED.
 */
int tdc_seal(struct tidl_client *client, int write_fd, struct tdp_fault *fault) TDP_MUST_CHECK;

/*
 * The same for a segment that this client has allocated and mapped: the map becomes a read-only
 * one, at the same address and with the same content. One round trip. On failure the map is
 * writable again. Nobody may write meanwhile. 0 at once when it is sealed already.
 */
int tdc_seal_in_place(struct tidl_client *client, struct tdc_segment *segment,
		      struct tdp_fault *fault) TDP_MUST_CHECK;

#endif
