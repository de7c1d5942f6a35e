/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TIDL_STEP_H
#define TIDL_STEP_H

#include <stdint.h>

#include <tidl/export.h>
#include <tidl/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Steps: a tensor that is written again and again counts them in its segment's control page, for
 * every process that has it, and readers sleep in the kernel until the next one. No call below asks
 * the broker anything but the first one on a tensor.
 *
 *	writer:  tidl_update_begin(x, 0);  write;  tidl_update_end(x, NULL);
 *	reader:  tidl_wait_step(y, step + 1, -1, &step);  read
 *
 * A step belongs to the segment: tensors that share one (those of a bundle, views) share its
 * steps. What was written before a step is seen by whoever has seen the step. One writes at a time;
 * who takes turns waits for the other's step before it writes.
 *
 * A writer is whoever allocated the tensor or attached it with TIDL_ATTACH_WRITE. Whoever can write
 * the tensor can write its steps, so that a hostile writer can make others wait for ever, or
 * see steps that were none. It can neither crash nor hang a call that has a time-out.
 *
 * All of these return TIDL_ERR_INVALID_ARGUMENT for a tensor without elements, which has no memory
 * to count in, and, the first one on a tensor in this process, what the round trip for its control
 * page returns: TIDL_ERR_RELEASED in a child of fork() that inherited the tensor, TIDL_ERR_CLOSED
 * and so on.
 */

/* Take over an update that another process has open, even if that process may be alive. */
#define TIDL_UPDATE_TAKE_OVER (1u << 0)

/*
 * tidl_update_begin - open an update, before its first byte is written.
 *
 * Until tidl_update_end() snapshots wait. An update that was left open is taken over when nobody
 * else can write the tensor any more (one round trip), or with TIDL_UPDATE_TAKE_OVER.
 *
 * Returns 0 or TIDL_ERR_READ_ONLY, _BUSY (one is open, in this process or another one),
 * _INVALID_ARGUMENT or a connection error. Never waits for another writer. Any thread.
 */
TIDL_API int tidl_update_begin(struct tidl_tensor *tensor, uint32_t flags);

/*
 * tidl_update_end - close the update after its last byte: a step is complete; wake its waiters.
 *
 * @ret_step  the step that is complete now; may be NULL
 *
 * Returns 0 or TIDL_ERR_INVALID_ARGUMENT (none is open here), _BUSY (another one has taken it
 * over). Any thread, not just the one that began.
 */
TIDL_API int tidl_update_end(struct tidl_tensor *tensor, uint64_t *ret_step);

/*
 * tidl_commit - one step for what was written without tidl_update_begin(); wake its waiters.
 *
 * Waiters are served as well as by an update. Snapshots are not: what is written outside of an
 * update cannot be noticed, so a snapshot taken meanwhile may be torn.
 *
 * Returns as tidl_update_begin(). Any thread.
 */
TIDL_API int tidl_commit(struct tidl_tensor *tensor, uint64_t *ret_step);

/* tidl_step - how many steps are complete. Never blocks after the first call. Any thread. */
TIDL_API int tidl_step(struct tidl_tensor *tensor, uint64_t *ret_step);

/*
 * tidl_wait_step - wait until a step is complete, asleep in the kernel.
 *
 * @step        returns at once when that many are complete already
 * @timeout_ms  0 does not wait, negative waits for ever
 * @ret_step    the last complete step, perhaps a later one; may be NULL
 *
 * TIDL_ERR_WRITER_GONE says that nobody else can write the tensor any more, or that one of several
 * processes that could has died: told once to each waiting call, or to the next that would have to
 * wait. A writer that has not come yet is waited for. A wait without end needs the broker, which
 * tells of that, and returns a connection error when it is gone, or TIDL_ERR_RELEASED in a child
 * of fork() that inherited the tensor; one with a time-out goes on without.
 *
 * Returns 0 or TIDL_ERR_WRITER_GONE, _TIMEOUT, _INTERRUPTED, _ACCESS (an immutable tensor makes no
 * steps), _INVALID_ARGUMENT, _QUOTA, _LIMIT, _NO_MEMORY or a connection error. Works on tensors
 * attached for reading. Any thread, and any number at once.
 */
TIDL_API int tidl_wait_step(struct tidl_tensor *tensor, uint64_t step, int64_t timeout_ms,
			    uint64_t *ret_step);

/*
 * tidl_snapshot - copy the tensor, row-major, as it was between two updates.
 *
 * Waits while an update is open and copies again when one was begun meanwhile. Consistent against
 * writers that use tidl_update_begin() only.
 *
 * @buffer, @buffer_bytes  tidl_tensor_nbytes() bytes
 * @timeout_ms             as for tidl_wait_step(); with 0 one try
 * @ret_step               the step that it shows; may be NULL
 *
 * Returns as tidl_wait_step(); TIDL_ERR_TIMEOUT too when the tensor is written so often that no
 * copy succeeds; TIDL_ERR_WRITER_GONE when a writer has gone within an update. Any thread.
 */
TIDL_API int tidl_snapshot(struct tidl_tensor *tensor, void *buffer, uint64_t buffer_bytes,
			   int64_t timeout_ms, uint64_t *ret_step);

#ifdef __cplusplus
}
#endif

#endif
