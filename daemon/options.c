/* SPDX-License-Identifier: Apache-2.0 */
/* One table of options feeds the command line, the environment and --help. */
#include "daemon/options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "daemon/limits.h"
#include "daemon/log.h"

enum option_type {
	OPTION_FLAG,	/* bool */
	OPTION_TEXT,	/* const char * */
	OPTION_SECONDS, /* uint64_t, in milliseconds */
	OPTION_SHARE,	/* struct tdd_share */
	OPTION_LEVEL,	/* int */
};

struct option_row {
	const char *flag;
	const char *environment; /* NULL: command line only */
	const char *argument;	 /* NULL: none */
	const char *initial;	 /* NULL: unset, or as the help says */
	const char *help;
	enum option_type type;
	size_t offset;
};

#define FIELD(name) offsetof(struct tdd_options, name)

/* clang-format off */
static const struct option_row rows[] = {
	{.flag = "socket", .environment = "TIDLD_SOCKET", .argument = "PATH",
	 .type = OPTION_TEXT, .offset = FIELD(socket),
	 .help = "listen here (default: the socket that systemd passes, else tidl/private.sock or\n"
		 "tidl/tidld.sock in the runtime folder, for root /run/tidl/tidld.sock)"},
	{.flag = "private", .environment = "TIDLD_PRIVATE",
	 .type = OPTION_FLAG, .offset = FIELD(is_private),
	 .help = "serve one user, and exit when idle"},
	{.flag = "detach", .environment = "TIDLD_DETACH",
	 .type = OPTION_FLAG, .offset = FIELD(detach),
	 .help = "go into the background; print \"ready\" once clients can connect"},
	{.flag = "log-file", .environment = "TIDLD_LOG_FILE", .argument = "PATH",
	 .type = OPTION_TEXT, .offset = FIELD(log_file),
	 .help = "append the log to this file (default: stderr; nowhere when detached)"},
	{.flag = "log-level", .environment = "TIDLD_LOG_LEVEL", .argument = "LEVEL",
	 .type = OPTION_LEVEL, .offset = FIELD(log_level), .initial = "info",
	 .help = "error, warning, info or debug (default: info)"},
	{.flag = "idle-exit", .environment = "TIDLD_IDLE_EXIT", .argument = "SECONDS",
	 .type = OPTION_SECONDS, .offset = FIELD(idle_exit_ms),
	 .help = "exit after this long without a client, whatever is published; 0: never\n"
		 "(default: 600 with --private, else 0)"},
	{.flag = "empty-exit", .environment = "TIDLD_EMPTY_EXIT", .argument = "SECONDS",
	 .type = OPTION_SECONDS, .offset = FIELD(empty_exit_ms),
	 .help = "exit after this long without a client and with nothing published; 0: never\n"
		 "(default: 5 with --private, else 0)"},
	{.flag = "pin-time", .environment = "TIDLD_PIN_TIME", .argument = "SECONDS",
	 .type = OPTION_SECONDS, .offset = FIELD(pin_ms), .initial = "60",
	 .help = "keep what is on its way to another process (pickled) for this long (default: 60)"},
	{.flag = "owner-grace", .environment = "TIDLD_OWNER_GRACE", .argument = "SECONDS",
	 .type = OPTION_SECONDS, .offset = FIELD(owner_grace_ms), .initial = "2",
	 .help = "what ends with its owner stays this long after the owner's death; 0: ends at once\n"
		 "(default: 2)"},
	{.flag = "quota-total", .environment = "TIDLD_QUOTA_TOTAL", .argument = "BYTES|PERCENT%",
	 .type = OPTION_SHARE, .offset = FIELD(quota_total), .initial = "50%",
	 .help = "memory of all users together; K, M, G and T may follow, % is of the machine's\n"
		 "memory (default: 50%)"},
	{.flag = "quota-uid", .environment = "TIDLD_QUOTA_UID", .argument = "BYTES|PERCENT%",
	 .type = OPTION_SHARE, .offset = FIELD(quota_uid), .initial = "25%",
	 .help = "memory of one user (default: 25%)"},
	{.flag = "version", .type = OPTION_FLAG, .offset = FIELD(wants_version),
	 .help = "print the version and exit"},
	{.flag = "help", .type = OPTION_FLAG, .offset = FIELD(wants_help),
	 .help = "print this and exit"},
};
/* clang-format on */

enum { ROW_COUNT = TDP_ARRAY_LENGTH(rows), HELP_COLUMN = 32 };

#define UNSET_MS UINT64_MAX

static bool parse_seconds(const char *text, uint64_t *ret_ms)
{
	char *end;
	double seconds;

	errno = 0;
	seconds = strtod(text, &end);
	if (end == text || *end != '\0' || errno != 0 || !isfinite(seconds) || seconds < 0 ||
	    seconds > 1e9)
		return false;
	/* A small but positive time must not become 0, which means never. */
	*ret_ms = (uint64_t)ceil(seconds * 1000);
	return true;
}

static bool parse_share(const char *text, struct tdd_share *ret_share)
{
	static const char units[] = "KMGT";
	struct tdd_share share = {0};
	uint64_t number;
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	number = strtoull(text, &end, 10);
	if (errno != 0)
		return false;
	if (strcmp(end, "%") == 0) {
		if (number < 1 || number > 100)
			return false;
		share.percent = (uint32_t)number;
	} else {
		const char *unit = *end ? strchr(units, *end) : NULL;
		unsigned shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;

		if ((*end && (!unit || end[1])) || number == 0 || number > UINT64_MAX >> shift)
			return false;
		share.bytes = number << shift;
	}
	*ret_share = share;
	return true;
}

static bool parse_flag(const char *text, bool *ret_flag)
{
	static const char *const yes[] = {"1", "yes", "true", "on"};
	static const char *const no[] = {"0", "no", "false", "off", ""};

	for (size_t i = 0; i < TDP_ARRAY_LENGTH(yes); i++) {
		if (strcasecmp(text, yes[i]) == 0) {
			*ret_flag = true;
			return true;
		}
	}
	for (size_t i = 0; i < TDP_ARRAY_LENGTH(no); i++) {
		if (strcasecmp(text, no[i]) == 0) {
			*ret_flag = false;
			return true;
		}
	}
	return false;
}

static bool row_set(const struct option_row *row, const char *text, struct tdd_options *options)
{
	void *field = (char *)options + row->offset;
	int level;

	switch (row->type) {
	case OPTION_FLAG:
		return parse_flag(text, field);
	case OPTION_TEXT:
		*(const char **)field = text;
		return *text != '\0';
	case OPTION_SECONDS:
		return parse_seconds(text, field);
	case OPTION_SHARE:
		return parse_share(text, field);
	case OPTION_LEVEL:
		level = tdd_log_level_parse(text);
		*(int *)field = level;
		return level >= 0;
	}
	return false;
}

static int row_refuse(const struct option_row *row, const char *origin, const char *text,
		      struct tdp_fault *fault)
{
	char quoted[TDD_LOG_QUOTE_SIZE];

	return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT, "%s%s: %s is not %s; see --help",
			     origin, row->flag, tdd_log_quote(text, quoted),
			     row->argument ? row->argument : "yes or no");
}

static int options_read_environment(struct tdd_options *options, struct tdp_fault *fault)
{
	for (size_t i = 0; i < ROW_COUNT; i++) {
		const char *name = rows[i].environment;
		const char *text = name ? secure_getenv(name) : NULL;

		if (text && !row_set(&rows[i], text, options))
			return row_refuse(&rows[i], "environment variable of --", text, fault);
	}
	return 0;
}

static int options_read_command_line(int argc, char **argv, struct tdd_options *options,
				     struct tdp_fault *fault)
{
	struct option table[ROW_COUNT + 1] = {{0}};
	int found;
	int index = 0;

	for (size_t i = 0; i < ROW_COUNT; i++) {
		table[i].name = rows[i].flag;
		table[i].has_arg = rows[i].argument ? required_argument : no_argument;
	}
	optind = 0;
	opterr = 0;
	while ((found = getopt_long(argc, argv, ":", table, &index)) == 0) {
		const char *text = rows[index].argument ? optarg : "yes";

		if (!row_set(&rows[index], text, options))
			return row_refuse(&rows[index], "--", text, fault);
	}
	if (found == -1 && optind == argc)
		return 0;
	if (found == -1)
		optind++;
	return tdp_fault_set(fault, TIDL_ERR_INVALID_ARGUMENT,
			     found == ':' ? "%s needs a value; see --help"
					  : "%s is no option; see --help",
			     argv[optind - 1]);
}

int tdd_options_parse(int argc, char **argv, struct tdd_options *ret_options,
		      struct tdp_fault *fault)
{
	struct tdd_options options = {.idle_exit_ms = UNSET_MS, .empty_exit_ms = UNSET_MS};
	int r;

	for (size_t i = 0; i < ROW_COUNT; i++) {
		if (rows[i].initial && !row_set(&rows[i], rows[i].initial, &options))
			return row_refuse(&rows[i], "default of --", rows[i].initial, fault);
	}
	r = options_read_environment(&options, fault);
	if (r == 0)
		r = options_read_command_line(argc, argv, &options, fault);
	if (r < 0)
		return r;
	if (options.idle_exit_ms == UNSET_MS)
		options.idle_exit_ms = options.is_private ? TDD_IDLE_EXIT_MS : 0;
	if (options.empty_exit_ms == UNSET_MS)
		options.empty_exit_ms = options.is_private ? TDD_EMPTY_EXIT_MS : 0;
	*ret_options = options;
	return 0;
}

static void print_row(FILE *out, const struct option_row *row)
{
	int column = fprintf(out, "  --%s%s%s", row->flag, row->argument ? " " : "",
			     row->argument ? row->argument : "");

	fprintf(out, "%*s", column < HELP_COLUMN ? HELP_COLUMN - column : 1, "");
	for (const char *c = row->help; *c != '\0'; c++) {
		fputc(*c, out);
		if (*c == '\n')
			fprintf(out, "%*s", HELP_COLUMN, "");
	}
	fputc('\n', out);
	if (row->environment)
		fprintf(out, "%*s[$%s]\n", HELP_COLUMN, "", row->environment);
}

void tdd_options_print_help(FILE *out)
{
	fputs("Usage: tidld [OPTION]...\n"
	      "The tidl broker: hands tensors from one process to another without a copy.\n\n",
	      out);
	for (size_t i = 0; i < ROW_COUNT; i++)
		print_row(out, &rows[i]);
}

uint64_t tdd_share_bytes(const struct tdd_share *share, uint64_t memory_bytes)
{
	return share->percent ? memory_bytes / 100 * share->percent : share->bytes;
}
