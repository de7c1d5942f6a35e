/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runner behind the plain stand-in for Criterion: forks for each test, waits with a time-out,
 * and reports on standard error and, with CRITERION_OUTPUTS=xml:FILE, in a file.
 */
#include <criterion/criterion.h>

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	TT_PLAIN_TIMEOUT_S = 120,
	TT_PLAIN_STATUS_FAILED = 1,
	TT_PLAIN_STATUS_SKIPPED = 77,
};

static struct tt_plain_test *first_test;

/* In the process of a test: something that was expected did not hold. Any thread may set it. */
static atomic_bool is_failed;

void tt_plain_register(struct tt_plain_test *test)
{
	test->next = first_test;
	first_test = test;
}

void tt_plain_note(const char *file, int line, const char *condition, const char *format, ...)
{
	va_list arguments;

	fprintf(stderr, "%s:%d: %s:", file, line, condition);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	is_failed = true;
}

void tt_plain_end(void)
{
	_exit(TT_PLAIN_STATUS_FAILED);
}

void tt_plain_skip(const char *format, ...)
{
	va_list arguments;

	fputs("skipped:", stderr);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	_exit(TT_PLAIN_STATUS_SKIPPED);
}

/* SIGCHLD is blocked here, so the wait cannot miss it. */
static int test_wait(const struct tt_plain_test *test, pid_t child)
{
	double timeout = test->options.timeout > 0 ? test->options.timeout : TT_PLAIN_TIMEOUT_S;
	const struct timespec limit = {.tv_sec = (time_t)timeout};
	sigset_t signals;
	int status;

	sigemptyset(&signals);
	sigaddset(&signals, SIGCHLD);
	while (waitpid(child, &status, WNOHANG) == 0) {
		if (sigtimedwait(&signals, NULL, &limit) < 0 && errno == EAGAIN) {
			fprintf(stderr, "stopped after %.0f s\n", timeout);
			kill(child, SIGKILL);
		}
	}
	return status;
}

static struct tt_plain_options suite_options(const char *suite)
{
	for (const struct tt_plain_test *test = first_test; test; test = test->next) {
		if (!test->body && strcmp(test->suite, suite) == 0)
			return test->options;
	}
	return (struct tt_plain_options){0};
}

static void test_body(const struct tt_plain_test *test)
{
	struct tt_plain_options suite = suite_options(test->suite);
	void (*init)(void) = test->options.init ? test->options.init : suite.init;
	void (*fini)(void) = test->options.fini ? test->options.fini : suite.fini;

	if (init)
		init();
	test->body();
	if (fini)
		fini();
}

static int test_run(const struct tt_plain_test *test, const sigset_t *signals)
{
	pid_t child;

	fflush(NULL);
	child = fork();
	if (child < 0)
		abort();
	if (child == 0) {
		sigprocmask(SIG_SETMASK, signals, NULL);
		test_body(test);
		/* Through exit(), so that the sanitizer has its say in the status. */
		exit(is_failed ? TT_PLAIN_STATUS_FAILED : EXIT_SUCCESS);
	}
	return test_wait(test, child);
}

static const char *status_name(int status)
{
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return "PASSED";
	if (WIFEXITED(status) && WEXITSTATUS(status) == TT_PLAIN_STATUS_SKIPPED)
		return "SKIPPED";
	return WIFEXITED(status) ? "FAILED" : "ERRORED";
}

static FILE *report_open(void)
{
	const char *outputs = getenv("CRITERION_OUTPUTS");

	return outputs && strncmp(outputs, "xml:", 4) == 0 ? fopen(outputs + 4, "we") : NULL;
}

int main(void)
{
	FILE *report = report_open();
	bool has_failed = false;
	sigset_t blocked, signals;

	sigemptyset(&blocked);
	sigaddset(&blocked, SIGCHLD);
	sigprocmask(SIG_BLOCK, &blocked, &signals);
	if (report)
		fputs("<testsuites>\n", report);
	for (const struct tt_plain_test *test = first_test; test; test = test->next) {
		if (!test->body)
			continue;
		const char *name = status_name(test_run(test, &signals));

		has_failed |= name[0] == 'F' || name[0] == 'E';
		fprintf(stderr, "[%s] %s::%s\n", name, test->suite, test->name);
		if (report)
			fprintf(report,
				"<testsuite name=\"%s\"><testcase name=\"%s\" status=\"%s\"/>"
				"</testsuite>\n",
				test->suite, test->name, name);
	}
	if (report) {
		fputs("</testsuites>\n", report);
		fclose(report);
	}
	return has_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
