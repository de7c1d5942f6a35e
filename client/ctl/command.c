/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of commands, their argument counts and their help. What a command does is in its own
 * file.
 */
#include "client/ctl/command.h"

#include "client/ctl/options.h"

#include <string.h>

static const struct ctl_command commands[] = {
	{
		.name = "list",
		.arguments = "[PATTERN]",
		.summary = "show what is published",
		.help = "Shows what is published, oldest first, as far as you may read it.\n"
			"In PATTERN `*` matches within a part of a name, `**` across `/`.\n"
			"Without PATTERN: everything of your own. `alice:**` shows alice's,\n"
			"`*:**` everybody's; names of others are shown with their owner.\n",
		.arguments_max = 1,
		.needs_broker = true,
		.run = ctl_list_run,
	},
	{
		.name = "inspect",
		.arguments = "NAME",
		.summary = "show owner, holders, layout and seals of one name",
		.help = "Shows all the broker knows of NAME: who published it and how, its\n"
			"tensors and segments, who holds it, and what protects it from writing.\n"
			"Names and command lines of processes are what they say of themselves;\n"
			"pid and uid come from the kernel.\n",
		.arguments_min = 1,
		.arguments_max = 1,
		.needs_broker = true,
		.run = ctl_inspect_run,
	},
	{
		.name = "wait",
		.arguments = "NAME",
		.summary = "wait for a name, a generation or a release",
		.help = "Waits until something that you may read is published as NAME, and prints "
			"its\n"
			"generation. With --newer-than: until its generation is above that one.\n"
			"With --released: until nobody holds the current generation. Waits for "
			"ever,\n"
			"or fails when --timeout has passed.\n",
		.arguments_min = 1,
		.arguments_max = 1,
		.needs_broker = true,
		.run = ctl_wait_run,
	},
	{
		.name = "watch",
		.arguments = "[PATTERN]",
		.summary = "print what happens to names, as it happens",
		.help = "Prints a line for each name that is published, replaced or removed, and, "
			"of\n"
			"your own, for each process that attaches or lets go, from now on. PATTERN "
			"is\n"
			"that of `list`. Ends with --count events, Ctrl-C or the broker. A line "
			"`lost`\n"
			"stands where events were dropped, because this was read too slowly.\n"
			"With --json each line is an object.\n",
		.arguments_max = 1,
		.needs_broker = true,
		.run = ctl_watch_run,
	},
	{
		.name = "rm",
		.arguments = "NAME...",
		.summary = "take names out of the listing",
		.help = "Takes each NAME out of the listing. Whoever holds the memory keeps it;\n"
			"it is freed with the last holder. A name that fails does not stop the\n"
			"rest, but the exit status is 1 then.\n",
		.arguments_min = 1,
		.arguments_max = -1,
		.needs_broker = true,
		.run = ctl_rm_run,
	},
	{
		.name = "shutdown",
		.arguments = "",
		.summary = "stop the broker",
		.help = "Asks the broker to stop. What it had published is gone from then on;\n"
			"processes keep the memory that they have attached.\n"
			"Only the broker's own user and root may.\n",
		.needs_broker = true,
		.run = ctl_shutdown_run,
	},
	{
		.name = "help",
		.arguments = "[COMMAND]",
		.summary = "show this help, or that of a command",
		.help = "Shows the commands and options, or the help of COMMAND.\n",
		.arguments_max = 1,
		.run = ctl_help_run,
	},
};

enum { COMMAND_COUNT = sizeof(commands) / sizeof(commands[0]) };

const struct ctl_command *ctl_command_find(const char *name)
{
	for (size_t i = 0; i < COMMAND_COUNT; i++)
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	return NULL;
}

int ctl_command_run(const struct ctl_command *command, struct ctl_context *context,
		    int argument_count, char **arguments)
{
	if (argument_count < command->arguments_min)
		return ctl_context_usage(context, "%s: %s is missing, see `tidlctl help %s`",
					 command->name, command->arguments, command->name);
	if (command->arguments_max >= 0 && argument_count > command->arguments_max)
		return ctl_context_usage(context, "%s: too many arguments, see `tidlctl help %s`",
					 command->name, command->name);
	if (context->options->own_option &&
	    strcmp(context->options->own_command, command->name) != 0)
		return ctl_context_usage(context, "%s does not take --%s, see `tidlctl help %s`",
					 command->name, context->options->own_option,
					 command->name);
	if (command->needs_broker) {
		int status = ctl_context_connect(context);

		if (status != CTL_EXIT_OK)
			return status;
	}
	return command->run(context, argument_count, arguments);
}

static void program_print_help(FILE *out)
{
	fputs("usage: tidlctl [OPTION]... COMMAND [ARGUMENT]...\n"
	      "\n"
	      "See and manage the tensors that a tidl broker shares. Never starts a broker.\n"
	      "\n"
	      "commands:\n",
	      out);
	for (size_t i = 0; i < COMMAND_COUNT; i++) {
		const struct ctl_command *command = &commands[i];
		int padding = 18 - (int)strlen(command->name) - (int)strlen(command->arguments);

		fprintf(out, "  %s %s%*s%s\n", command->name, command->arguments, padding, "",
			command->summary);
	}
	fputs("\noptions:\n", out);
	ctl_options_print_help(NULL, out);
	fputs("\nexit status: 0 ok, 1 failed, 2 wrong usage, 3 no broker answers\n", out);
}

void ctl_command_print_help(const struct ctl_command *command, FILE *out)
{
	if (!command) {
		program_print_help(out);
		return;
	}
	fprintf(out, "usage: tidlctl [OPTION]... %s%s%s\n\n%s\noptions:\n", command->name,
		*command->arguments ? " " : "", command->arguments, command->help);
	ctl_options_print_help(command->name, out);
}
