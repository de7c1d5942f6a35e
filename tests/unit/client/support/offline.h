/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CLIENT_OFFLINE_H
#define TT_CLIENT_OFFLINE_H

#include <tidl/tidl.h>

/*
 * A client over one end of a socket pair, and the other end, which nobody reads but the test. For
 * what needs no broker that answers.
 */
struct tt_offline {
	struct tidl_client *client;
	int peer_fd;
};

void tt_offline_init(struct tt_offline *offline);

/* Disconnects unless the test did, by setting `client` to NULL. */
void tt_offline_deinit(struct tt_offline *offline);

/* A tensor of [@rows, @columns] float32 over a memfd, attached as @attach with a lease of this id.
 */
struct tidl_tensor *tt_offline_tensor(struct tt_offline *offline, int64_t rows, int64_t columns,
				      enum tidl_attach attach, uint64_t lease_id);

/* Lease ids in the RELEASE messages that have arrived; other messages but GOODBYE fail the test. */
size_t tt_offline_released(const struct tt_offline *offline, uint64_t *ret_ids, size_t capacity);

#endif
