/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_IDENTITY_H
#define TDC_IDENTITY_H

#include "proto/wire/message.h"

/* What this process says of itself to the broker, which shows it to administrators as such. */
struct tdc_identity {
	char command[TDP_COMMAND_MAX_BYTES + 1];
	char cgroup[TDP_CGROUP_MAX_BYTES + 1];
};

/* Fill in @ret_hello; its texts point into @identity. @client_name: NULL for the program's. */
void tdc_identity_fill(const char *client_name, struct tdc_identity *identity,
		       struct tdp_hello *ret_hello);

#endif
