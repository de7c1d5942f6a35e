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
};

struct option_row {
	enum option_id id;
	const char *name;
	const char *argument; /* NULL: takes none */
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
	default:
		/* Go on after the first bad word: a later --json decides how it is told. */
		if (options->bad_option)
			break;
		options->bad_option = argv[optind - 1];
		options->is_argument_missing = id == ':';
		break;
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
	while ((id = getopt_long(argc, argv, ":h", table, NULL)) != -1)
		options_apply(&options, id, argv);
	options.operands = argv + optind;
	options.operand_count = argc - optind;
	*ret_options = options;
}

void ctl_options_print_help(FILE *out)
{
	for (size_t i = 0; i < ROW_COUNT; i++) {
		const struct option_row *row = &rows[i];
		const char *argument = row->argument ? row->argument : "";
		int padding = 16 - (int)strlen(row->name) - (int)strlen(argument);

		fprintf(out, "  --%s %s%*s%s\n", row->name, argument, padding, "", row->help);
	}
}
