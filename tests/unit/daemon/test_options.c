/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "daemon/limits.h"
#include "daemon/log.h"
#include "daemon/options.h"
#include "tests/support/leak.h"

enum { ARGUMENTS_MAX = 16 };

/* Parse `tidld` and these words. */
static int parse(struct tdd_options *options, struct tdp_fault *fault, const char *words)
{
	static char copy[512];
	char *argv[ARGUMENTS_MAX + 2] = {strdup("tidld")};
	int argc = 1;
	int r;

	strcpy(copy, words);
	for (char *word = strtok(copy, " "); word && argc <= ARGUMENTS_MAX;
	     word = strtok(NULL, " "))
		argv[argc++] = word;
	r = tdd_options_parse(argc, argv, options, fault);
	free(argv[0]);
	return r;
}

TT_TEST(options, defaults)
{
	struct tdd_options options;
	struct tdp_fault fault;

	cr_assert_eq(parse(&options, &fault, ""), 0);
	cr_expect(!options.socket && !options.log_file);
	cr_expect(!options.is_private && !options.detach);
	cr_expect(!options.wants_help && !options.wants_version);
	cr_expect_eq(options.log_level, TDD_LOG_INFO);
	cr_expect_eq(options.idle_exit_ms, 0);
	cr_expect_eq(options.empty_exit_ms, 0);
	cr_expect_eq(options.pin_ms, TDD_PIN_MS);
	cr_expect_eq(options.owner_grace_ms, TDD_OWNER_GRACE_MS);
	cr_expect_eq(options.quota_total.percent, TDD_QUOTA_TOTAL_PERCENT);
	cr_expect_eq(options.quota_uid.percent, TDD_QUOTA_UID_PERCENT);
}

TT_TEST(options, a_private_broker_exits_when_idle)
{
	struct tdd_options options;
	struct tdp_fault fault;

	cr_assert_eq(parse(&options, &fault, "--private"), 0);
	cr_expect_eq(options.idle_exit_ms, TDD_IDLE_EXIT_MS);
	cr_expect_eq(options.empty_exit_ms, TDD_EMPTY_EXIT_MS);
	cr_assert_eq(parse(&options, &fault, "--private --idle-exit 0 --empty-exit=0.25"), 0);
	cr_expect_eq(options.idle_exit_ms, 0);
	cr_expect_eq(options.empty_exit_ms, 250);
	cr_assert_eq(parse(&options, &fault, "--empty-exit 0.0001"), 0);
	cr_expect_eq(options.empty_exit_ms, 1, "never is 0 and nothing else");
}

TT_TEST(options, what_ends_by_itself)
{
	struct tdd_options options;
	struct tdp_fault fault;

	cr_assert_eq(parse(&options, &fault, "--pin-time 0.5 --owner-grace 0"), 0);
	cr_expect_eq(options.pin_ms, 500);
	cr_expect_eq(options.owner_grace_ms, 0);
	cr_expect_eq(parse(&options, &fault, "--pin-time never"), TIDL_ERR_INVALID_ARGUMENT);
	cr_expect_eq(parse(&options, &fault, "--owner-grace -1"), TIDL_ERR_INVALID_ARGUMENT);
}

TT_TEST(options, every_option_by_command_line)
{
	struct tdd_options options;
	struct tdp_fault fault;

	cr_assert_eq(parse(&options, &fault,
			   "--socket /s --private --detach --log-file l --log-level debug "
			   "--quota-total 3G --quota-uid 7% --version --help"),
		     0, "%s", fault.text);
	cr_expect_str_eq(options.socket, "/s");
	cr_expect(options.is_private && options.detach);
	cr_expect(options.wants_version && options.wants_help);
	cr_expect_str_eq(options.log_file, "l");
	cr_expect_eq(options.log_level, TDD_LOG_DEBUG);
	cr_expect_eq(tdd_share_bytes(&options.quota_total, 1000), 3ull << 30);
	cr_expect_eq(tdd_share_bytes(&options.quota_uid, 1000), 70);
}

TT_TEST(options, the_command_line_wins_over_the_environment)
{
	struct tdd_options options;
	struct tdp_fault fault;

	setenv("TIDLD_SOCKET", "/from/environment", 1);
	setenv("TIDLD_PRIVATE", "yes", 1);
	setenv("TIDLD_EMPTY_EXIT", "9", 1);
	cr_assert_eq(parse(&options, &fault, "--empty-exit 3"), 0);
	cr_expect_str_eq(options.socket, "/from/environment");
	cr_expect(options.is_private);
	cr_expect_eq(options.empty_exit_ms, 3000);
	setenv("TIDLD_PRIVATE", "0", 1);
	cr_assert_eq(parse(&options, &fault, "--socket /given"), 0);
	cr_expect_str_eq(options.socket, "/given");
	cr_expect_not(options.is_private);
	unsetenv("TIDLD_SOCKET");
	unsetenv("TIDLD_PRIVATE");
	unsetenv("TIDLD_EMPTY_EXIT");
}

TT_TEST(options, nonsense_is_refused_by_name)
{
	static const struct {
		const char *words;
		const char *named;
	} cases[] = {
		{"--nonsense", "--nonsense"},
		{"word", "word"},
		{"--private word", "word"},
		{"--socket", "--socket"},
		{"--idle-exit x", "idle-exit"},
		{"--idle-exit -1", "idle-exit"},
		{"--idle-exit nan", "idle-exit"},
		{"--idle-exit inf", "idle-exit"},
		{"--idle-exit 1e99", "idle-exit"},
		{"--quota-uid 0", "quota-uid"},
		{"--quota-uid 101%", "quota-uid"},
		{"--quota-uid -5", "quota-uid"},
		{"--quota-uid 5X", "quota-uid"},
		{"--quota-uid 5GB", "quota-uid"},
		{"--quota-uid 99999999999999999999", "quota-uid"},
		{"--quota-uid 99999999999T", "quota-uid"},
		{"--log-level loud", "log-level"},
		{"--private=1", "--private"},
	};
	struct tdd_options options;
	struct tdp_fault fault;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		cr_expect_eq(parse(&options, &fault, cases[i].words), TIDL_ERR_INVALID_ARGUMENT,
			     "%s was taken", cases[i].words);
		cr_expect(strstr(fault.text, cases[i].named) != NULL, "%s: %s", cases[i].words,
			  fault.text);
	}
}

TT_TEST(options, a_bad_environment_is_refused_too)
{
	struct tdd_options options;
	struct tdp_fault fault;

	setenv("TIDLD_PRIVATE", "perhaps", 1);
	cr_expect_eq(parse(&options, &fault, ""), TIDL_ERR_INVALID_ARGUMENT);
	cr_expect(strstr(fault.text, "private") != NULL);
	unsetenv("TIDLD_PRIVATE");
}

TT_TEST(options, help_names_every_option)
{
	static const char *const flags[] = {"--socket",	    "--private",     "--detach",
					    "--log-file",   "--log-level",   "--idle-exit",
					    "--empty-exit", "--quota-total", "--quota-uid",
					    "--version",    "--help",	     "$TIDLD_QUOTA_UID"};
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);

	cr_assert(out);
	tdd_options_print_help(out);
	fclose(out);
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
		cr_expect(strstr(text, flags[i]) != NULL, "%s is missing", flags[i]);
	free(text);
}
