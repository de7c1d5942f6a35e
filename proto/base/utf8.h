/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDP_BASE_UTF8_H
#define TDP_BASE_UTF8_H

#include <stddef.h>

/* Bytes of the well-formed UTF-8 character at @text, 1 to 4, U+0000 included; 0: there is none. */
size_t tdp_utf8_length(const char *text, size_t size_bytes);

/*
 * Bytes of the well-formed, printable UTF-8 character at @text, 1 to 4; 0 when there is none:
 * malformed, overlong, a surrogate, cut off, or a control character (C0, DEL, C1).
 */
size_t tdp_utf8_printable(const char *text, size_t size_bytes);

/* Put `?` in place of every byte that is no part of such a character. */
void tdp_utf8_clean(char *text);

#endif
