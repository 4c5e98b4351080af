/* The line that speaks for a call site of a book (headline.h), for tables of the query core: query_world.site_of.
 *
 * The names of one book are kept until another is asked for. The ledger must not change in between: release it before. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "profile/book_names.h"

struct ledger_book;
struct query_site;
struct site_names;

/* Zeroed it is empty, without names of functions. */
struct site_lines {
    struct site_names *symbols; /* borrowed; NULL: functions stay unknown */
    const struct ledger_book *book;
    bool loaded;
    struct book_names names;
};

/* False: not known. Texts stay until another book is asked for. Slow the first time for each site. */
bool site_lines_find(struct site_lines *lines, const struct ledger_book *book, uint32_t site,
                     struct query_site *ret_site);
void site_lines_release(struct site_lines *lines);
