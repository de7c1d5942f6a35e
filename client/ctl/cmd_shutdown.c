/* SPDX-License-Identifier: Apache-2.0 */
/* tidlctl shutdown: stop the broker. */
#include "client/ctl/command.h"
#include "client/ctl/out_json.h"

int ctl_shutdown_run(struct ctl_context *context, int argument_count, char **arguments)
{
	int r = tidl_shutdown(context->client);

	(void)argument_count;
	(void)arguments;
	if (r < 0)
		return ctl_context_fail(context, r);
	if (context->is_json) {
		json_t *document = ctl_json_document();

		ctl_json_set(document, "address",
			     ctl_json_text(tidl_broker(context->client)->address));
		ctl_json_print(document);
	}
	return CTL_EXIT_OK;
}
