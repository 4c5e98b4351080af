/*
 * history.h: how `memoir history` looks, apart from what it shows.
 */
#ifndef MEMOIR_CLI_HISTORY_H
#define MEMOIR_CLI_HISTORY_H

#include <stdbool.h>
#include <stddef.h>

#include "cli/table.h"

struct buffer;
struct read_result;

extern const struct column history_line_columns[];  /* on screen: one row a line */
extern const struct column history_point_columns[]; /* CSV: one row a point */

struct history_style {
    bool blocks; /* values are blocks rather than bytes */
    bool header;
    size_t limit; /* lines on screen; 0: all */
};

/* How many characters of a chart fit. */
unsigned history_chart_columns(const struct term *term);

int history_print_text(const struct read_result *result, const struct history_style *style,
                       const struct term *term, struct buffer *out);
int history_print_csv(const struct read_result *result, const struct history_style *style,
                      struct buffer *out);
int history_print_json(const struct read_result *result, const struct history_style *style,
                       struct buffer *out);

#endif
