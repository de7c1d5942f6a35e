/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CTL_COMMAND_H
#define CTL_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "client/ctl/context.h"

/* The commands: one table row and one file cmd_<name>.c each. */
struct ctl_command {
	const char *name;
	const char *arguments; /* as shown in the usage line */
	const char *summary;   /* one line */
	const char *help;      /* paragraphs, each ended by a line's end */
	int arguments_min;
	int arguments_max; /* -1: any number */
	bool needs_broker; /* connected before run() */
	int (*run)(struct ctl_context *context, int argument_count, char **arguments);
};

/* The command of that name, or NULL. */
const struct ctl_command *ctl_command_find(const char *name);

/* Check the arguments, connect and run. Returns an exit status. */
int ctl_command_run(const struct ctl_command *command, struct ctl_context *context,
		    int argument_count, char **arguments);

/* The help of one command, or of the program where @command is NULL. */
void ctl_command_print_help(const struct ctl_command *command, FILE *out);

int ctl_list_run(struct ctl_context *context, int argument_count, char **arguments);
int ctl_inspect_run(struct ctl_context *context, int argument_count, char **arguments);
int ctl_wait_run(struct ctl_context *context, int argument_count, char **arguments);
int ctl_watch_run(struct ctl_context *context, int argument_count, char **arguments);
int ctl_rm_run(struct ctl_context *context, int argument_count, char **arguments);
int ctl_shutdown_run(struct ctl_context *context, int argument_count, char **arguments);
int ctl_help_run(struct ctl_context *context, int argument_count, char **arguments);

#endif
