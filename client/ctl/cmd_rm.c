/* SPDX-License-Identifier: Apache-2.0 */
/* tidlctl rm: take names out of the listing, as many of the given ones as can be. */
#include "client/ctl/command.h"
#include "client/ctl/out_json.h"
#include "client/ctl/text.h"

#include <stdlib.h>

/* What became of the names so far, for --json. */
struct rm_result {
	json_t *removed;
	json_t *failed;
	json_t *first_error; /* borrowed from @failed */
};

static void result_add_failure(struct rm_result *result, const char *name, int code,
			       const char *sentence)
{
	json_t *error = ctl_json_error(tidl_error_name(code), sentence);

	ctl_json_set(error, "name", ctl_json_text(name));
	ctl_json_append(result->failed, error);
	if (!result->first_error)
		result->first_error = error;
}

static void result_print(const struct ctl_context *context, struct rm_result *result)
{
	json_t *document;

	if (!context->is_json) {
		json_decref(result->removed);
		json_decref(result->failed);
		return;
	}
	document = ctl_json_document();
	if (result->first_error)
		ctl_json_set(document, "error", json_incref(result->first_error));
	ctl_json_set(document, "removed", result->removed);
	ctl_json_set(document, "failed", result->failed);
	ctl_json_print(document);
}

int ctl_rm_run(struct ctl_context *context, int argument_count, char **arguments)
{
	struct rm_result result = {
		.removed = ctl_text_checked(json_array()),
		.failed = ctl_text_checked(json_array()),
	};
	int status = CTL_EXIT_OK;

	for (int i = 0; i < argument_count; i++) {
		int r = tidl_remove(context->client, arguments[i]);
		char *sentence;

		if (r == 0) {
			ctl_json_append(result.removed, ctl_json_text(arguments[i]));
			continue;
		}
		sentence = ctl_context_sentence(r);
		ctl_context_warn(r, sentence);
		result_add_failure(&result, arguments[i], r, sentence);
		free(sentence);
		status = ctl_exit_status(r);
		if (status == CTL_EXIT_NO_DAEMON)
			break;
	}
	result_print(context, &result);
	return status;
}
