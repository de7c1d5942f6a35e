/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules for names, patterns and texts that are shown. Knows nothing of owners: a name here is
 * the part behind the namespace.
 */
#include "proto/names.h"

#include <stdint.h>
#include <string.h>

#include "proto/base/utf8.h"
#include "proto/wire/limits.h"

/* Bytes at the start that are printable ASCII, eight at a time: most texts are nothing else, and
 * bundles have thousands of them. */
static size_t text_skip_ascii(const char *text, size_t size_bytes)
{
	const uint64_t highs = 0x8080808080808080u;
	size_t skipped = 0;

	for (; size_bytes - skipped >= sizeof(uint64_t); skipped += sizeof(uint64_t)) {
		uint64_t word;

		memcpy(&word, text + skipped, sizeof(word));
		/* A high bit in the word itself: no ASCII. One that the subtraction of 0x20
		 * borrows: a control character; one that the addition of 1 carries: DEL. */
		if ((word | (word - 0x2020202020202020u) | (word + 0x0101010101010101u)) & highs)
			break;
	}
	return skipped;
}

bool tdp_text_is_clean(const char *text, size_t size_bytes)
{
	size_t skipped = text_skip_ascii(text, size_bytes);

	text += skipped;
	size_bytes -= skipped;
	while (size_bytes > 0) {
		size_t length = tdp_utf8_printable(text, size_bytes);

		if (length == 0)
			return false;
		text += length;
		size_bytes -= length;
	}
	return true;
}

/* ---- checks ---- */

static int name_refuse(struct tdp_fault *fault, const char *what, const char *reason)
{
	return tdp_fault_set(fault, TIDL_ERR_NAME_INVALID, "the %s is not valid: %s", what, reason);
}

static bool part_is(const char *part, size_t length, const char *word)
{
	return length == strlen(word) && memcmp(part, word, length) == 0;
}

/* The reason against one part, or NULL. */
static const char *part_refusal(const char *part, size_t length, bool is_pattern)
{
	if (length == 0)
		return "it has an empty part: write one '/' between parts, none at the ends";
	if (part_is(part, length, ".") || part_is(part, length, ".."))
		return "'.' and '..' have no meaning in it: write the whole path";
	if (is_pattern && !part_is(part, length, "**") && memmem(part, length, "**", 2) != NULL)
		return "'**' must stand alone between '/': use '*' within a part";
	return NULL;
}

static int parts_check(const char *text, const char *what, bool is_pattern, struct tdp_fault *fault)
{
	for (;;) {
		size_t length = strcspn(text, "/");
		const char *reason = part_refusal(text, length, is_pattern);

		if (reason != NULL)
			return name_refuse(fault, what, reason);
		text += length;
		if (*text == '\0')
			return 0;
		text++;
	}
}

static int text_check(const char *text, size_t max_bytes, const char *what, bool is_pattern,
		      struct tdp_fault *fault)
{
	size_t length = text ? strnlen(text, max_bytes + 1) : 0;

	if (length == 0)
		return name_refuse(fault, what, "it is empty: give it 1 to 255 bytes");
	if (length > max_bytes)
		return name_refuse(fault, what, "it is longer than 255 bytes: shorten it");
	if (!tdp_text_is_clean(text, length))
		return name_refuse(fault, what, "it is not UTF-8 without control characters");
	if (memchr(text, ':', length) != NULL)
		return name_refuse(fault, what, "it has a ':' behind the owner: use another sign");
	return parts_check(text, what, is_pattern, fault);
}

int tdp_name_check(const char *name, struct tdp_fault *fault)
{
	return text_check(name, TDP_NAME_MAX_BYTES, "name", false, fault);
}

int tdp_pattern_check(const char *pattern, struct tdp_fault *fault)
{
	return text_check(pattern, TDP_PATTERN_MAX_BYTES, "pattern", true, fault);
}

/* ---- matching ---- */

/* A part of a path: up to the next `/`. */
struct part {
	const char *start;
	size_t length;
};

static struct part part_first(const char *text)
{
	return (struct part){.start = text, .length = strcspn(text, "/")};
}

/* False behind the last part. */
static bool part_next(struct part *part)
{
	const char *end = part->start + part->length;

	if (*end == '\0')
		return false;
	*part = part_first(end + 1);
	return true;
}

/* Does one part match? A mismatch goes back to the last `*` only, since an earlier one could do no
 * better: at most length(pattern) x length(text) steps. */
static bool part_match(struct part pattern, struct part text, uint64_t *steps)
{
	size_t p = 0, t = 0;
	size_t star = SIZE_MAX, star_text = 0;

	for (; t < text.length; ++*steps) {
		if (p < pattern.length && pattern.start[p] == '*') {
			star = p++;
			star_text = t;
		} else if (p < pattern.length && pattern.start[p] == text.start[t]) {
			p++;
			t++;
		} else if (star != SIZE_MAX) {
			p = star + 1;
			t = ++star_text;
		} else {
			return false;
		}
	}
	while (p < pattern.length && pattern.start[p] == '*')
		p++;
	return p == pattern.length;
}

/* Finding the next part takes as long as so many steps of comparing. */
enum { PART_STEPS = 8 };

/* Where matching goes on: a part of each side, or the end of it. */
struct match_position {
	struct part pattern, name;
	bool has_pattern, has_name;
};

static bool match_is_at_any(const struct match_position *at)
{
	return at->has_pattern && part_is(at->pattern.start, at->pattern.length, "**");
}

/* The same on the level of parts: `**` is to parts what `*` is to characters. */
bool tdp_pattern_match_counted(const char *pattern, const char *name, uint64_t *steps)
{
	struct match_position at = {
		.pattern = part_first(pattern),
		.name = part_first(name),
		.has_pattern = true,
		.has_name = true,
	};
	struct match_position retry; /* behind the last `**`, one name part further each time */
	bool has_retry = false;

	for (; at.has_name; *steps += PART_STEPS) {
		if (match_is_at_any(&at)) {
			at.has_pattern = part_next(&at.pattern);
			retry = at;
			has_retry = true;
		} else if (at.has_pattern && part_match(at.pattern, at.name, steps)) {
			at.has_pattern = part_next(&at.pattern);
			at.has_name = part_next(&at.name);
		} else if (has_retry) {
			retry.has_name = part_next(&retry.name);
			at = retry;
		} else {
			return false;
		}
	}
	while (match_is_at_any(&at))
		at.has_pattern = part_next(&at.pattern);
	return !at.has_pattern;
}

bool tdp_pattern_match(const char *pattern, const char *name)
{
	uint64_t steps = 0;

	return tdp_pattern_match_counted(pattern, name, &steps);
}
