/* SPDX-License-Identifier: Apache-2.0 */
/* tidlctl wait: until a name is there, has gone on, or is held by nobody. */
#include "client/ctl/command.h"
#include "client/ctl/options.h"
#include "client/ctl/out_json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Longer is for ever. */
static const double seconds_max = 1e9;

static bool timeout_parse(const char *text, int64_t *ret_timeout_ms)
{
	char *end;
	double seconds = strtod(text, &end);

	if (end == text || *end != '\0' || !(seconds >= 0))
		return false;
	/* Rounded up, so that no wait ends early. */
	*ret_timeout_ms = seconds > seconds_max ? -1 : (int64_t)(seconds * 1000 + 0.999999);
	return true;
}

static bool generation_parse(const char *text, uint64_t *ret_generation)
{
	char *end;

	errno = 0;
	*ret_generation = strtoull(text, &end, 10);
	return errno == 0 && end != text && *end == '\0' &&
	       text[strspn(text, "0123456789")] == '\0';
}

static int wait_options(const struct ctl_context *context, struct tidl_wait_options *wait)
{
	const struct ctl_options *options = context->options;

	*wait = (struct tidl_wait_options){
		.size = sizeof(*wait),
		.timeout_ms = -1,
		.released = options->is_released,
	};
	if (options->timeout && !timeout_parse(options->timeout, &wait->timeout_ms))
		return ctl_context_usage(context,
					 "--timeout takes a number of seconds, 0 or more, not `%s`",
					 options->timeout);
	if (options->newer_than && !generation_parse(options->newer_than, &wait->newer_than))
		return ctl_context_usage(context,
					 "--newer-than takes the number of a generation, not `%s`",
					 options->newer_than);
	if (options->newer_than && options->is_released)
		return ctl_context_usage(context,
					 "wait takes --newer-than or --released, not both: leave "
					 "one of them out");
	return CTL_EXIT_OK;
}

int ctl_wait_run(struct ctl_context *context, int argument_count, char **arguments)
{
	struct tidl_wait_options wait;
	uint64_t generation;
	int status = wait_options(context, &wait);
	int r;

	(void)argument_count;
	if (status != CTL_EXIT_OK)
		return status;
	r = tidl_wait(context->client, arguments[0], &wait, &generation);
	if (r < 0)
		return ctl_context_fail(context, r);
	if (context->is_json) {
		json_t *document = ctl_json_document();

		ctl_json_set(document, "name", ctl_json_text(arguments[0]));
		ctl_json_set(document, "generation", ctl_json_number(generation));
		ctl_json_print(document);
	} else {
		printf("%" PRIu64 "\n", generation);
	}
	return CTL_EXIT_OK;
}
