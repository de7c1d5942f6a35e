/* SPDX-License-Identifier: Apache-2.0 */
/* tidlctl help: the help of the program or of one command. */
#include "client/ctl/command.h"

int ctl_help_run(struct ctl_context *context, int argument_count, char **arguments)
{
	const struct ctl_command *command = NULL;

	if (argument_count > 0) {
		command = ctl_command_find(arguments[0]);
		if (!command)
			return ctl_context_usage(context,
						 "unknown command `%s`, see `tidlctl --help`",
						 arguments[0]);
	}
	ctl_command_print_help(command, stdout);
	return CTL_EXIT_OK;
}
