/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CTL_OPTIONS_H
#define CTL_OPTIONS_H

#include <stdbool.h>
#include <stdio.h>

/* The options, which may stand before or behind the command. */
struct ctl_options {
	bool is_json;
	bool is_help;
	bool is_version;
	const char *socket;

	/* Of single commands, as they were written; NULL: not given. */
	const char *timeout;
	const char *newer_than;
	const char *count;
	bool is_released;
	const char *own_option;	 /* the last of these that was given, and the one command that */
	const char *own_command; /* takes it */

	char **operands; /* the command and its arguments, within argv */
	int operand_count;
	const char *bad_option; /* the first word that could not be understood, else NULL */
	bool is_argument_missing;
};

/* Read the command line; argv is reordered. Never fails: see bad_option. */
void ctl_options_parse(int argc, char **argv, struct ctl_options *ret_options);

/* One line an option: those that @command takes, or, where it is NULL, all. */
void ctl_options_print_help(const char *command, FILE *out);

#endif
