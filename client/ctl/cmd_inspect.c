/* SPDX-License-Identifier: Apache-2.0 */
/* tidlctl inspect: everything about one name. */
#include "client/ctl/command.h"
#include "client/ctl/inspect.h"

int ctl_inspect_run(struct ctl_context *context, int argument_count, char **arguments)
{
	struct tidl_inspection *inspection = NULL;
	int r = tidl_inspect(context->client, arguments[0], &inspection);

	(void)argument_count;
	if (r < 0)
		return ctl_context_fail(context, r);
	if (context->is_json)
		ctl_inspect_print_json(inspection);
	else
		ctl_inspect_print_text(inspection);
	tidl_inspection_free(inspection);
	return CTL_EXIT_OK;
}
