/*
 * chart.h: figures over time, drawn with characters: braille dots in UTF-8, else ASCII.
 */
#ifndef MEMOIR_CLI_CHART_H
#define MEMOIR_CLI_CHART_H

#include <stddef.h>

#include "cli/term.h"

struct buffer;

/* Points that stand side by side in one column. */
unsigned chart_density(const struct term *term);

/* Line `row` (0 is the top) of `rows` of an area chart. There are chart_density() points for each of
 * `columns`; a point is a share of the height from 0 to 1 (more is cut), below 0 where there is none. What
 * is not 0 shows at least one dot. The line has `columns` columns. */
void chart_append_row(const struct term *term, struct buffer *out, const double *points,
                      unsigned columns, unsigned rows, unsigned row);

#endif
