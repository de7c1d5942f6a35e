/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CTL_OUT_TABLE_H
#define CTL_OUT_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* A table for people: aligned by what a terminal shows, no blanks at the ends of lines. */

struct ctl_column {
	const char *title;
	bool is_number; /* right-aligned */
};

struct ctl_table;

/* @columns must outlive the table. */
struct ctl_table *ctl_table_new(const struct ctl_column *columns, size_t column_count);
struct ctl_table *ctl_table_free(struct ctl_table *table);

/* The next cell, row by row from the left. Whatever could steer a terminal is escaped. */
__attribute__((format(printf, 2, 3))) void ctl_table_add(struct ctl_table *table,
							 const char *format, ...);

/* Title line and rows, each behind @indent blanks. */
void ctl_table_print(const struct ctl_table *table, int indent, FILE *out);

#endif
