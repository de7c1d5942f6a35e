/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One run of tidlctl: its connection, and how failures are told. Data goes to standard output,
 * failures to standard error; with --json standard output carries an object in either case.
 */
#include "client/ctl/context.h"

#include "client/ctl/out_json.h"
#include "client/ctl/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int ctl_context_connect(struct ctl_context *context)
{
	struct tidl_connect_options options = {
		.size = sizeof(options),
		.address = context->socket,
		.client_name = "tidlctl",
		.no_autostart = 1,
	};
	int r = tidl_connect(&options, &context->client);

	return r < 0 ? ctl_context_fail(context, r) : CTL_EXIT_OK;
}

void ctl_context_deinit(struct ctl_context *context)
{
	tidl_disconnect(context->client);
	context->client = NULL;
}

bool ctl_context_is_mine(const struct ctl_context *context, uint32_t uid)
{
	const struct tidl_broker_info *broker = tidl_broker(context->client);

	return broker && broker->uid == uid;
}

int ctl_exit_status(int code)
{
	switch (code) {
	case TIDL_OK:
		return CTL_EXIT_OK;
	case TIDL_ERR_NO_BROKER:
	case TIDL_ERR_BROKER_GONE:
	case TIDL_ERR_BROKER_UNTRUSTED:
	case TIDL_ERR_WRONG_SOCKET:
	case TIDL_ERR_AUTOSTART:
		return CTL_EXIT_NO_DAEMON;
	default:
		return CTL_EXIT_FAILED;
	}
}

static void report_stderr(const char *sentence, const char *code)
{
	char *escaped = ctl_text_escape(sentence);

	fprintf(stderr, "tidlctl: %s (%s)\n", escaped, code);
	free(escaped);
}

static void report(const struct ctl_context *context, const char *sentence, const char *code)
{
	report_stderr(sentence, code);
	if (context->is_json) {
		json_t *document = ctl_json_document();

		ctl_json_set(document, "error", ctl_json_error(code, sentence));
		ctl_json_print(document);
	}
}

char *ctl_context_sentence(int code)
{
	/* Copied at once: libtidl keeps it only until its next call. */
	const char *sentence = tidl_last_error();

	return ctl_text_checked(strdup(*sentence ? sentence : tidl_error_text(code)));
}

int ctl_context_fail(const struct ctl_context *context, int code)
{
	char *sentence = ctl_context_sentence(code);

	report(context, sentence, tidl_error_name(code));
	free(sentence);
	return ctl_exit_status(code);
}

void ctl_context_warn(int code, const char *sentence)
{
	report_stderr(sentence, tidl_error_name(code));
}

int ctl_context_usage(const struct ctl_context *context, const char *format, ...)
{
	char *sentence = NULL;
	va_list arguments;
	int length;

	va_start(arguments, format);
	length = vasprintf(&sentence, format, arguments);
	va_end(arguments);
	ctl_text_checked(length < 0 ? NULL : sentence);
	report(context, sentence, "USAGE");
	free(sentence);
	return CTL_EXIT_USAGE;
}
