/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table for people. Cells are kept as text until all widths are known; every cell goes through
 * the escaping of text.c, so that no caller can forget it. Knows nothing of what the cells mean.
 */
#include "client/ctl/out_table.h"

#include "client/ctl/text.h"

#include <stdarg.h>
#include <stdlib.h>

enum { COLUMN_GAP = 2 };

struct ctl_table {
	const struct ctl_column *columns;
	size_t column_count;
	char **cells;
	size_t cell_count;
	size_t cell_capacity;
};

struct ctl_table *ctl_table_new(const struct ctl_column *columns, size_t column_count)
{
	struct ctl_table *table = ctl_text_checked(calloc(1, sizeof(*table)));

	table->columns = columns;
	table->column_count = column_count;
	return table;
}

struct ctl_table *ctl_table_free(struct ctl_table *table)
{
	if (!table)
		return NULL;
	for (size_t i = 0; i < table->cell_count; i++)
		free(table->cells[i]);
	free(table->cells);
	free(table);
	return NULL;
}

static void table_reserve(struct ctl_table *table)
{
	size_t capacity = table->cell_capacity ? table->cell_capacity * 2 : 64;

	if (table->cell_count < table->cell_capacity)
		return;
	table->cells = ctl_text_checked(reallocarray(table->cells, capacity, sizeof(char *)));
	table->cell_capacity = capacity;
}

void ctl_table_add(struct ctl_table *table, const char *format, ...)
{
	char *text = NULL;
	va_list arguments;
	int length;

	va_start(arguments, format);
	length = vasprintf(&text, format, arguments);
	va_end(arguments);
	ctl_text_checked(length < 0 ? NULL : text);

	table_reserve(table);
	table->cells[table->cell_count++] = ctl_text_escape(text);
	free(text);
}

static size_t table_column_width(const struct ctl_table *table, size_t column)
{
	size_t width = ctl_text_width(table->columns[column].title);

	for (size_t i = column; i < table->cell_count; i += table->column_count) {
		size_t cell_width = ctl_text_width(table->cells[i]);

		if (cell_width > width)
			width = cell_width;
	}
	return width;
}

/* @pending counts the blanks owed since the last visible cell: those at a line's end never come. */
static void cell_print(const char *text, const struct ctl_column *column, size_t width,
		       size_t *pending, FILE *out)
{
	size_t padding = width - ctl_text_width(text);

	if (column->is_number)
		*pending += padding;
	if (*text != '\0') {
		fprintf(out, "%*s%s", (int)*pending, "", text);
		*pending = 0;
	}
	if (!column->is_number)
		*pending += padding;
	*pending += COLUMN_GAP;
}

void ctl_table_print(const struct ctl_table *table, int indent, FILE *out)
{
	size_t *widths = ctl_text_checked(calloc(table->column_count, sizeof(*widths)));
	size_t rows = table->cell_count / table->column_count;

	for (size_t c = 0; c < table->column_count; c++)
		widths[c] = table_column_width(table, c);
	for (size_t r = 0; r <= rows; r++) {
		size_t pending = (size_t)indent;

		for (size_t c = 0; c < table->column_count; c++) {
			const char *text = r == 0 ? table->columns[c].title
						  : table->cells[(r - 1) * table->column_count + c];

			cell_print(text, &table->columns[c], widths[c], &pending, out);
		}
		fputc('\n', out);
	}
	free(widths);
}
