/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CTL_CONTEXT_H
#define CTL_CONTEXT_H

#include <stdbool.h>

#include <tidl/tidl.h>

struct ctl_options;

/* What the program ends with; part of its interface. */
enum ctl_exit {
	CTL_EXIT_OK = 0,
	CTL_EXIT_FAILED = 1,
	CTL_EXIT_USAGE = 2,
	CTL_EXIT_NO_DAEMON = 3,
};

/* One run of tidlctl: how to speak, and with whom. */
struct ctl_context {
	bool is_json;
	const char *socket;		   /* NULL: libtidl searches */
	const struct ctl_options *options; /* those of single commands are read by these */
	struct tidl_client *client;
};

/* Connect, never starting a broker. Returns CTL_EXIT_OK, or reports and returns another status. */
int ctl_context_connect(struct ctl_context *context);
void ctl_context_deinit(struct ctl_context *context);

/* Who is asking, in the broker's eyes. */
bool ctl_context_is_mine(const struct ctl_context *context, uint32_t uid);

/*
 * Report the failure of the last libtidl call on standard error and, with --json, as an object on
 * standard output. Returns the exit status that belongs to @code.
 */
int ctl_context_fail(const struct ctl_context *context, int code);

/* Why the last libtidl call failed. The caller's, never NULL. */
char *ctl_context_sentence(int code);

/* The part for standard error alone, for commands that go on after a failure. */
void ctl_context_warn(int code, const char *sentence);

/* The exit status that belongs to a code of libtidl. */
int ctl_exit_status(int code);

/* Report wrong usage in the same two ways. Returns CTL_EXIT_USAGE. */
__attribute__((format(printf, 2, 3))) int ctl_context_usage(const struct ctl_context *context,
							    const char *format, ...);

#endif
