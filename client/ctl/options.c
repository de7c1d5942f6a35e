/* SPDX-License-Identifier: Apache-2.0 */
/* The option table of tidlctl, from which both the parser and the help are made. */
#include "client/ctl/options.h"

#include <getopt.h>
#include <stddef.h>
#include <string.h>

enum option_id {
	OPTION_HELP = 'h',
	OPTION_JSON = 256,
	OPTION_SOCKET,
	OPTION_VERSION,
	OPTION_TIMEOUT,
	OPTION_NEWER_THAN,
	OPTION_RELEASED,
	OPTION_COUNT,
};

struct option_row {
	enum option_id id;
	const char *name;
	const char *argument; /* NULL: takes none */
	const char *command;  /* the only one that takes it; NULL: all do */
	const char *help;
};

static const struct option_row rows[] = {
	{.id = OPTION_JSON, .name = "json", .help = "print one JSON object"},
	{
		.id = OPTION_SOCKET,
		.name = "socket",
		.argument = "PATH",
		.help = "the broker's socket, instead of searching for it",
	},
	{
		.id = OPTION_TIMEOUT,
		.name = "timeout",
		.argument = "SECONDS",
		.command = "wait",
		.help = "wait: give up after that long",
	},
	{
		.id = OPTION_NEWER_THAN,
		.name = "newer-than",
		.argument = "GEN",
		.command = "wait",
		.help = "wait: for a generation above this one",
	},
	{
		.id = OPTION_RELEASED,
		.name = "released",
		.command = "wait",
		.help = "wait: until nobody holds it any more",
	},
	{
		.id = OPTION_COUNT,
		.name = "count",
		.argument = "NUMBER",
		.command = "watch",
		.help = "watch: end after so many events",
	},
	{.id = OPTION_VERSION, .name = "version", .help = "print the version"},
	{.id = OPTION_HELP, .name = "help", .help = "print help, also behind a command (-h)"},
};

enum { ROW_COUNT = sizeof(rows) / sizeof(rows[0]) };

static void options_apply(struct ctl_options *options, int id, char **argv)
{
	switch (id) {
	case OPTION_JSON:
		options->is_json = true;
		break;
	case OPTION_SOCKET:
		options->socket = optarg;
		break;
	case OPTION_VERSION:
		options->is_version = true;
		break;
	case OPTION_HELP:
		options->is_help = true;
		break;
	case OPTION_TIMEOUT:
		options->timeout = optarg;
		break;
	case OPTION_NEWER_THAN:
		options->newer_than = optarg;
		break;
	case OPTION_RELEASED:
		options->is_released = true;
		break;
	case OPTION_COUNT:
		options->count = optarg;
		break;
	default:
		/* Go on after the first bad word: a later --json decides how it is told. */
		if (options->bad_option)
			break;
		options->bad_option = argv[optind - 1];
		options->is_argument_missing = id == ':';
		break;
	}
}

/* Remember what not every command takes. */
static void options_note_own(struct ctl_options *options, int id)
{
	for (size_t i = 0; i < ROW_COUNT; i++) {
		if ((int)rows[i].id != id || !rows[i].command)
			continue;
		options->own_option = rows[i].name;
		options->own_command = rows[i].command;
	}
}

void ctl_options_parse(int argc, char **argv, struct ctl_options *ret_options)
{
	struct ctl_options options = {0};
	struct option table[ROW_COUNT + 1] = {0};
	int id;

	for (size_t i = 0; i < ROW_COUNT; i++) {
		table[i].name = rows[i].name;
		table[i].has_arg = rows[i].argument ? required_argument : no_argument;
		table[i].val = (int)rows[i].id;
	}
	opterr = 0;
	while ((id = getopt_long(argc, argv, ":h", table, NULL)) != -1) {
		options_apply(&options, id, argv);
		options_note_own(&options, id);
	}
	options.operands = argv + optind;
	options.operand_count = argc - optind;
	*ret_options = options;
}

void ctl_options_print_help(const char *command, FILE *out)
{
	for (size_t i = 0; i < ROW_COUNT; i++) {
		const struct option_row *row = &rows[i];
		const char *argument = row->argument ? row->argument : "";
		int padding = 18 - (int)strlen(row->name) - (int)strlen(argument);

		if (command && row->command && strcmp(command, row->command) != 0)
			continue;
		fprintf(out, "  --%s %s%*s%s\n", row->name, argument, padding, "", row->help);
	}
}
