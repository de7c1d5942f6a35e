/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tidlctl: shows and manages what a broker shares, over libtidl's public interface. Reads the
 * command line, hands over to the command, makes sure that the output arrived.
 */
#include "client/ctl/command.h"
#include "client/ctl/context.h"
#include "client/ctl/options.h"
#include "client/ctl/out_json.h"

#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>

#include <tidl/tidl.h>

static int print_version(const struct ctl_context *context)
{
	if (context->is_json) {
		json_t *document = ctl_json_document();

		ctl_json_set(document, "version", ctl_json_text(TIDL_VERSION));
		ctl_json_set(document, "library", ctl_json_text(tidl_version()));
		ctl_json_print(document);
	} else {
		printf("tidlctl %s (libtidl %s)\n", TIDL_VERSION, tidl_version());
	}
	return CTL_EXIT_OK;
}

static int dispatch(const struct ctl_options *options, struct ctl_context *context)
{
	const struct ctl_command *command = NULL;

	if (options->bad_option)
		return ctl_context_usage(context,
					 options->is_argument_missing
						 ? "%s needs an argument, see `tidlctl --help`"
						 : "unknown option %s, see `tidlctl --help`",
					 options->bad_option);
	if (options->is_version)
		return print_version(context);
	if (options->operand_count > 0) {
		command = ctl_command_find(options->operands[0]);
		if (!command)
			return ctl_context_usage(context,
						 "unknown command `%s`, see `tidlctl --help`",
						 options->operands[0]);
	}
	if (options->is_help) {
		ctl_command_print_help(command, stdout);
		return CTL_EXIT_OK;
	}
	if (!command)
		return ctl_context_usage(context, "no command given, see `tidlctl --help`");
	return ctl_command_run(command, context, options->operand_count - 1, options->operands + 1);
}

int main(int argc, char **argv)
{
	struct ctl_options options;
	struct ctl_context context = {0};
	int status;

	/* Names are UTF-8 whatever the user's locale; only widths and printability depend on it. */
	if (!setlocale(LC_CTYPE, "C.UTF-8"))
		setlocale(LC_CTYPE, "");
	ctl_options_parse(argc, argv, &options);
	context.is_json = options.is_json;
	context.socket = options.socket;
	context.options = &options;

	status = dispatch(&options, &context);
	ctl_context_deinit(&context);
	if (fflush(stdout) != 0 || ferror(stdout)) {
		fprintf(stderr, "tidlctl: cannot write the output: %s (SYSTEM)\n", strerror(errno));
		return status == CTL_EXIT_OK ? CTL_EXIT_FAILED : status;
	}
	return status;
}
