/*
 * site_cells.h: a call site in a table.
 */
#ifndef MEMOIR_CLI_SITE_CELLS_H
#define MEMOIR_CLI_SITE_CELLS_H

#include <stddef.h>

struct book_site_name;
struct table;

/* The cells that tell of a site: its text in column `site`; frame, function, file, line and what it calls in the five
 * from `frame` on. */
void book_site_cells(const struct book_site_name *name, struct table *table, size_t site,
                     size_t frame);

#endif
