/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CTL_TEXT_H
#define CTL_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include <tidl/tidl.h>

/* Plain words for what the records say. Text results are the caller's, to be freed, never NULL. */

/* One age, mode or user name fits. */
enum { CTL_WORD_MAX = 64 };

/*
 * Make text from another process safe to print: control characters, invalid UTF-8 and marks that
 * reverse or hide text become \xNN or \uNNNN, so that nobody can drive the reader's terminal.
 */
char *ctl_text_escape(const char *text);

/* Columns on a terminal of text that ctl_text_escape() made. */
size_t ctl_text_width(const char *text);

/* printf into fresh memory. */
__attribute__((format(printf, 1, 2))) char *ctl_text_format(const char *format, ...);

/* "3s", "4m12s", "2h05m", "3d04h". */
const char *ctl_text_age(uint64_t age_ms, char buffer[CTL_WORD_MAX]);

/* "0640 rw-r-----". */
const char *ctl_text_mode(uint32_t mode, char buffer[CTL_WORD_MAX]);

/* The user's name, or NULL where there is none. */
const char *ctl_text_user(uint32_t uid, char buffer[CTL_WORD_MAX]);

/* The user's name, else the number. */
const char *ctl_text_owner(uint32_t uid, char buffer[CTL_WORD_MAX]);

/* "(8,4)", "(5,)", "()". */
char *ctl_text_tuple(const int64_t *values, uint32_t count);

/* "lease" or "allocation". */
const char *ctl_text_holder_kind(enum tidl_holder_kind kind);

/* Words of F_SEAL_* bits, one call a word: the next of @seals is taken out; NULL at the end. */
const char *ctl_text_next_seal(uint32_t *seals, char buffer[CTL_WORD_MAX]);

/* @pointer, or the end of the program with a message when memory ran out. */
void *ctl_text_checked(void *pointer);

#endif
