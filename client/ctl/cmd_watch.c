/* SPDX-License-Identifier: Apache-2.0 */
/* tidlctl watch: a line for each event, until somebody ends it. */
#include "client/ctl/command.h"
#include "client/ctl/options.h"
#include "client/ctl/out_json.h"
#include "client/ctl/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void event_print_text(const struct ctl_context *context, const struct tidl_event *event)
{
	char owner[CTL_WORD_MAX];
	char *name = ctl_text_escape(event->name);

	printf("%s", tidl_event_kind_name(event->kind));
	if (event->kind != TIDL_EVENT_LOST) {
		if (ctl_context_is_mine(context, event->owner_uid))
			printf(" %s", name);
		else
			printf(" %s:%s", ctl_text_owner(event->owner_uid, owner), name);
		printf(" %" PRIu64, event->generation);
	}
	if (event->attach != 0)
		printf(" %s pid %" PRId64 " uid %" PRIu32, tidl_attach_name(event->attach),
		       event->holder_pid, event->holder_uid);
	printf("\n");
	free(name);
}

static void event_print_json(const struct tidl_event *event)
{
	json_t *document = ctl_json_document();
	bool is_lost = event->kind == TIDL_EVENT_LOST;
	json_t *holder = json_null();

	ctl_json_set(document, "event", ctl_json_text(tidl_event_kind_name(event->kind)));
	ctl_json_set(document, "name", is_lost ? json_null() : ctl_json_text(event->name));
	ctl_json_set(document, "owner", is_lost ? json_null() : ctl_json_user(event->owner_uid));
	ctl_json_set(document, "generation",
		     is_lost ? json_null() : ctl_json_number(event->generation));
	if (event->attach != 0) {
		holder = ctl_json_user(event->holder_uid);
		ctl_json_set(holder, "pid", json_integer(event->holder_pid));
		ctl_json_set(holder, "attach", ctl_json_text(tidl_attach_name(event->attach)));
	}
	ctl_json_set(document, "holder", holder);
	ctl_json_print_line(document);
}

/* 0: as many as come. */
static bool count_parse(const char *text, uint64_t *ret_count)
{
	char *end;

	errno = 0;
	*ret_count = strtoull(text, &end, 10);
	return errno == 0 && *end == '\0' && text[strspn(text, "0123456789")] == '\0' &&
	       *ret_count > 0;
}

/* The reader wants each line now, and a reader that is gone ends it. */
static bool events_print(const struct ctl_context *context, const struct tidl_event *event)
{
	if (context->is_json)
		event_print_json(event);
	else
		event_print_text(context, event);
	return fflush(stdout) == 0;
}

int ctl_watch_run(struct ctl_context *context, int argument_count, char **arguments)
{
	struct tidl_event event = {.size = sizeof(event)};
	struct tidl_watch *watch = NULL;
	uint64_t count = 0;
	uint64_t printed = 0;
	int r;

	if (context->options->count && !count_parse(context->options->count, &count))
		return ctl_context_usage(context, "--count takes a number above 0, not `%s`",
					 context->options->count);
	r = tidl_watch(context->client, argument_count > 0 ? arguments[0] : NULL, NULL, &watch);
	while (r == 0 && (count == 0 || printed < count)) {
		r = tidl_watch_next(watch, -1, &event);
		if (r == 0 && !events_print(context, &event))
			break;
		printed++;
	}
	r = r < 0 ? ctl_context_fail(context, r) : CTL_EXIT_OK;
	tidl_unwatch(watch);
	return r;
}
