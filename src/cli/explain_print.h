/*
 * explain_print.h: an explanation of a process's RSS, for people.
 */
#ifndef MEMOIR_CLI_EXPLAIN_PRINT_H
#define MEMOIR_CLI_EXPLAIN_PRINT_H

#include <stddef.h>

struct buffer;
struct explain;
struct explain_sites;
struct term;

/* All parts by kind with bars, at most `top` lines of a kind. `sites` may be NULL. */
void explain_print(const struct explain *explain, const struct explain_sites *sites, size_t top,
                   const struct term *term, struct buffer *out);

/* One bar of all kinds, `columns` wide, without a line's end. */
void explain_print_bar(const struct explain *explain, unsigned columns, const struct term *term,
                       struct buffer *out);

/* "heap 120.0 MB, files 22.1 MB, stacks 1.2 MB, unexplained 0.3 MB": kinds that are at least a hundredth, the largest first. */
void explain_print_line(const struct explain *explain, const struct term *term, struct buffer *out);

#endif
