/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plain words for what the records say, and the one place where text of other processes is made
 * safe for a terminal. Knows nothing of tables, JSON or the connection.
 */
#include "client/ctl/text.h"

#include <inttypes.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>
#include <wctype.h>

void *ctl_text_checked(void *pointer)
{
	if (!pointer) {
		fputs("tidlctl: out of memory (NO_MEMORY)\n", stderr);
		exit(EXIT_FAILURE);
	}
	return pointer;
}

/* Printable to the C library, yet able to reorder, hide or break what is around it. */
static bool character_is_deceptive(wint_t character)
{
	return character == 0xad || character == 0x61c ||
	       (character >= 0x200b && character <= 0x200f) ||
	       (character >= 0x2028 && character <= 0x202e) ||
	       (character >= 0x2060 && character <= 0x206f) || character == 0xfeff ||
	       (character >= 0xfff9 && character <= 0xfffb) ||
	       (character >= 0xe0000 && character <= 0xe0fff);
}

static bool character_is_safe(wchar_t character)
{
	return iswprint((wint_t)character) && wcwidth(character) >= 0 &&
	       !character_is_deceptive((wint_t)character);
}

static void character_escape(FILE *out, wint_t character)
{
	if (character == L'\n')
		fputs("\\n", out);
	else if (character == L'\t')
		fputs("\\t", out);
	else if (character < 0x100)
		fprintf(out, "\\x%02x", (unsigned)character);
	else if (character < 0x10000)
		fprintf(out, "\\u%04x", (unsigned)character);
	else
		fprintf(out, "\\U%08x", (unsigned)character);
}

char *ctl_text_escape(const char *text)
{
	char *escaped = NULL;
	size_t escaped_bytes = 0;
	size_t left = strlen(text);
	mbstate_t state = {0};
	FILE *out = ctl_text_checked(open_memstream(&escaped, &escaped_bytes));

	while (left > 0) {
		wchar_t character = 0;
		size_t used = mbrtowc(&character, text, left, &state);

		if (used == (size_t)-1 || used == (size_t)-2) {
			fprintf(out, "\\x%02x", (unsigned char)*text);
			memset(&state, 0, sizeof(state));
			used = 1;
		} else if (character_is_safe(character)) {
			fwrite(text, 1, used, out);
		} else {
			character_escape(out, (wint_t)character);
		}
		text += used;
		left -= used;
	}
	fclose(out);
	return ctl_text_checked(escaped);
}

size_t ctl_text_width(const char *text)
{
	size_t width = 0;
	size_t left = strlen(text);
	mbstate_t state = {0};

	while (left > 0) {
		wchar_t character = 0;
		size_t used = mbrtowc(&character, text, left, &state);
		int columns;

		if (used == (size_t)-1 || used == (size_t)-2)
			return width + left;
		columns = wcwidth(character);
		width += columns > 0 ? (size_t)columns : 0;
		text += used;
		left -= used;
	}
	return width;
}

char *ctl_text_format(const char *format, ...)
{
	char *text = NULL;
	va_list arguments;
	int length;

	va_start(arguments, format);
	length = vasprintf(&text, format, arguments);
	va_end(arguments);
	return ctl_text_checked(length < 0 ? NULL : text);
}

const char *ctl_text_age(uint64_t age_ms, char buffer[CTL_WORD_MAX])
{
	uint64_t seconds = age_ms / 1000;

	if (seconds < 60)
		snprintf(buffer, CTL_WORD_MAX, "%" PRIu64 "s", seconds);
	else if (seconds < 3600)
		snprintf(buffer, CTL_WORD_MAX, "%" PRIu64 "m%02" PRIu64 "s", seconds / 60,
			 seconds % 60);
	else if (seconds < 86400)
		snprintf(buffer, CTL_WORD_MAX, "%" PRIu64 "h%02" PRIu64 "m", seconds / 3600,
			 seconds / 60 % 60);
	else
		snprintf(buffer, CTL_WORD_MAX, "%" PRIu64 "d%02" PRIu64 "h", seconds / 86400,
			 seconds / 3600 % 24);
	return buffer;
}

const char *ctl_text_mode(uint32_t mode, char buffer[CTL_WORD_MAX])
{
	char bits[] = "rwxrwxrwx";

	for (unsigned i = 0; i < sizeof(bits) - 1; i++)
		if (!(mode & (0400u >> i)))
			bits[i] = '-';
	snprintf(buffer, CTL_WORD_MAX, "%04" PRIo32 " %s", mode, bits);
	return buffer;
}

const char *ctl_text_user(uint32_t uid, char buffer[CTL_WORD_MAX])
{
	const struct passwd *user = getpwuid(uid);

	if (!user || !user->pw_name || strlen(user->pw_name) >= CTL_WORD_MAX)
		return NULL;
	snprintf(buffer, CTL_WORD_MAX, "%s", user->pw_name);
	return buffer;
}

const char *ctl_text_owner(uint32_t uid, char buffer[CTL_WORD_MAX])
{
	if (!ctl_text_user(uid, buffer))
		snprintf(buffer, CTL_WORD_MAX, "%" PRIu32, uid);
	return buffer;
}

char *ctl_text_tuple(const int64_t *values, uint32_t count)
{
	char *text = NULL;
	size_t text_bytes = 0;
	FILE *out = ctl_text_checked(open_memstream(&text, &text_bytes));

	fputc('(', out);
	for (uint32_t i = 0; i < count; i++)
		fprintf(out, "%s%" PRId64, i > 0 ? "," : "", values[i]);
	fputs(count == 1 ? ",)" : ")", out);
	fclose(out);
	return ctl_text_checked(text);
}

const char *ctl_text_holder_kind(enum tidl_holder_kind kind)
{
	switch (kind) {
	case TIDL_HOLDER_LEASE:
		return "lease";
	case TIDL_HOLDER_ALLOCATION:
		return "allocation";
	case TIDL_HOLDER_PIN:
		return "pin";
	}
	return "unknown";
}

const char *ctl_text_next_seal(uint32_t *seals, char buffer[CTL_WORD_MAX])
{
	/* In the order that reads best; the bits are the kernel's, linux/fcntl.h. */
	static const struct {
		uint32_t bit;
		const char *word;
	} words[] = {
		{.bit = 0x02, .word = "shrink"},       {.bit = 0x04, .word = "grow"},
		{.bit = 0x01, .word = "seal"},	       {.bit = 0x08, .word = "write"},
		{.bit = 0x10, .word = "future-write"}, {.bit = 0x20, .word = "exec"},
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (*seals & words[i].bit) {
			*seals &= ~words[i].bit;
			return words[i].word;
		}
	}
	if (*seals == 0)
		return NULL;
	snprintf(buffer, CTL_WORD_MAX, "0x%" PRIx32, *seals);
	*seals = 0;
	return buffer;
}
