/* SPDX-License-Identifier: Apache-2.0 */
/* Records of one line each, to stderr or a file. */
#include "daemon/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/clock.h"
#include "proto/base/fd.h"

/* At most PIPE_BUF, so that a record that poll() has room for is written whole. */
enum { RECORD_BYTES = 1024, BUCKET_COUNT = 64, MINUTE_MS = 60000 };

/* Uids share buckets when there are more of them than buckets: a few records less, no harm. */
struct bucket {
	uint32_t uid;
	uint32_t record_count;
	uint64_t since_ms;
};

static struct {
	enum tdd_log_level level;
	int file; /* -1: stderr */
	struct bucket buckets[BUCKET_COUNT];
} sink = {.level = TDD_LOG_INFO, .file = -1};

static const char *const level_names[] = {
	[TDD_LOG_ERROR] = "error",
	[TDD_LOG_WARNING] = "warning",
	[TDD_LOG_INFO] = "info",
	[TDD_LOG_DEBUG] = "debug",
};

int tdd_log_level_parse(const char *text)
{
	for (size_t i = 0; i < TDP_ARRAY_LENGTH(level_names); i++) {
		if (strcmp(text, level_names[i]) == 0)
			return (int)i;
	}
	return -1;
}

void tdd_log_set_level(enum tdd_log_level level)
{
	sink.level = level;
}

int tdd_log_open(const char *path, struct tdp_fault *fault)
{
	int fd =
		open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY, 0600);

	if (fd < 0)
		return tdp_fault_errno(fault, errno, "cannot open the log file %s", path);
	tdd_log_close();
	sink.file = fd;
	return 0;
}

void tdd_log_close(void)
{
	sink.file = tdp_fd_close(sink.file);
}

/* A file's lines need a time; at stderr somebody watches, or the journal adds one. */
static size_t put_time(char *record, size_t size)
{
	struct timespec now;
	struct tm broken;

	if (sink.file < 0)
		return 0;
	clock_gettime(CLOCK_REALTIME, &now);
	if (!gmtime_r(&now.tv_sec, &broken))
		return 0;
	return strftime(record, size, "%Y-%m-%dT%H:%M:%SZ ", &broken);
}

static void write_record(const char *record, size_t length)
{
	struct pollfd target = {.fd = sink.file >= 0 ? sink.file : STDERR_FILENO,
				.events = POLLOUT};

	if (poll(&target, 1, 0) != 1 || !(target.revents & POLLOUT))
		return;
	/* Nobody is left to be told of a failure. */
	if (write(target.fd, record, length) < 0)
		return;
}

__attribute__((format(printf, 2, 0))) static void log_record(enum tdd_log_level level,
							     const char *format, va_list arguments)
{
	char record[RECORD_BYTES];
	size_t length = put_time(record, sizeof(record));
	int written = snprintf(record + length, sizeof(record) - length,
			       "tidld: %s: ", level_names[level]);

	length += (size_t)written;
	written = vsnprintf(record + length, sizeof(record) - length, format, arguments);
	if (written > 0)
		length += (size_t)written;
	if (length > sizeof(record) - 2)
		length = sizeof(record) - 2;
	record[length++] = '\n';
	write_record(record, length);
}

void tdd_log(enum tdd_log_level level, const char *format, ...)
{
	va_list arguments;

	if (level > sink.level)
		return;
	va_start(arguments, format);
	log_record(level, format, arguments);
	va_end(arguments);
}

static bool bucket_take(uint32_t uid)
{
	struct bucket *bucket = &sink.buckets[uid % BUCKET_COUNT];
	uint64_t now_ms = tdd_clock_ms();

	if (bucket->uid != uid || now_ms - bucket->since_ms > MINUTE_MS)
		*bucket = (struct bucket){.uid = uid, .since_ms = now_ms};
	return bucket->record_count++ < TDD_LOG_RECORDS_PER_MINUTE;
}

void tdd_log_peer(uint32_t uid, int64_t pid, const char *format, ...)
{
	char text[RECORD_BYTES];
	va_list arguments;

	if (TDD_LOG_WARNING > sink.level || !bucket_take(uid))
		return;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	tdd_log(TDD_LOG_WARNING, "client pid %" PRId64 " uid %" PRIu32 ": %s", pid, uid, text);
}

const char *tdd_log_quote(const char *text, char buffer[TDD_LOG_QUOTE_SIZE])
{
	char *out = buffer;

	*out++ = '"';
	for (size_t i = 0; text[i] != '\0'; i++) {
		unsigned char byte = (unsigned char)text[i];

		if (i == TDD_LOG_QUOTE_BYTES) {
			out = stpcpy(out, "...");
			break;
		}
		if (byte >= 0x20 && byte < 0x7f && byte != '"' && byte != '\\')
			*out++ = (char)byte;
		else
			out += sprintf(out, "\\x%02x", byte);
	}
	*out++ = '"';
	*out = '\0';
	return buffer;
}
