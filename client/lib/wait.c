/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for one descriptor before there is a client: the greeting, a broker that starts. */
#include "client/lib/wait.h"

#include <errno.h>
#include <poll.h>

#include "client/lib/deadline.h"
#include "include/tidl/error.h"

int tdc_wait_readable(int fd, const struct tdc_patience *patience)
{
	struct pollfd item = {.fd = fd, .events = POLLIN};

	for (;;) {
		int r = poll(&item, 1, tdc_deadline_poll_ms(patience->deadline));

		if (r > 0)
			return 0;
		if (r == 0)
			return TIDL_ERR_TIMEOUT;
		if (errno != EINTR)
			return TIDL_ERR_SYSTEM;
		if (tdc_interrupt_is_asked(&patience->interrupt))
			return TIDL_ERR_INTERRUPTED;
	}
}
