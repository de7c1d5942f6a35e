/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/log.h"
#include "tests/support/leak.h"

TT_TEST(log, quotes_what_is_not_printable)
{
	char buffer[TDD_LOG_QUOTE_SIZE];

	cr_expect_str_eq(tdd_log_quote("plain", buffer), "\"plain\"");
	cr_expect_str_eq(tdd_log_quote("a\n\"\\\x1b\xff", buffer),
			 "\"a\\x0a\\x22\\x5c\\x1b\\xff\"");
	cr_expect_str_eq(tdd_log_quote("", buffer), "\"\"");
}

TT_TEST(log, cuts_what_is_long)
{
	char text[2 * TDD_LOG_QUOTE_BYTES];
	char buffer[TDD_LOG_QUOTE_SIZE];

	memset(text, '\x01', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	tdd_log_quote(text, buffer);
	cr_expect_eq(strlen(buffer), sizeof(buffer) - 1);
	cr_expect_str_eq(buffer + strlen(buffer) - 4, "...\"");
}

static size_t count_lines(const char *path)
{
	FILE *file = fopen(path, "re");
	size_t count = 0;
	int c;

	cr_assert(file);
	while ((c = fgetc(file)) != EOF)
		count += c == '\n';
	fclose(file);
	return count;
}

TT_TEST(log, one_uid_cannot_fill_it)
{
	char path[] = "/tmp/tidl-test-log-XXXXXX";
	int fd = mkstemp(path);
	struct tdp_fault fault;

	cr_assert_geq(fd, 0);
	close(fd);
	cr_assert_eq(tdd_log_open(path, &fault), 0);
	tdd_log_set_level(TDD_LOG_INFO);
	for (int i = 0; i < 10 * TDD_LOG_RECORDS_PER_MINUTE; i++)
		tdd_log_peer(1, 2, "broke the protocol");
	cr_expect_eq(count_lines(path), TDD_LOG_RECORDS_PER_MINUTE);
	tdd_log_peer(2, 3, "broke it too");
	tdd_log(TDD_LOG_DEBUG, "too much detail");
	cr_expect_eq(count_lines(path), TDD_LOG_RECORDS_PER_MINUTE + 1);
	tdd_log_close();
	unlink(path);
}

TT_TEST(log, a_record_that_would_block_is_dropped, .timeout = 20)
{
	int pipe_fds[2];
	int saved = dup(STDERR_FILENO);
	char byte = 0;

	cr_assert_eq(pipe2(pipe_fds, O_NONBLOCK), 0);
	while (write(pipe_fds[1], &byte, 1) == 1)
		;
	cr_assert_eq(fcntl(pipe_fds[1], F_SETFL, 0), 0);
	cr_assert_eq(dup2(pipe_fds[1], STDERR_FILENO), STDERR_FILENO);
	tdd_log_set_level(TDD_LOG_INFO);
	tdd_log(TDD_LOG_INFO, "nobody reads this");
	cr_assert_eq(dup2(saved, STDERR_FILENO), STDERR_FILENO);
	close(saved);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
}
