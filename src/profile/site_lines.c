/* See site_lines.h. */
#include "profile/site_lines.h"

#include "query/query.h"

void site_lines_release(struct site_lines *lines)
{
    if (lines->loaded)
        book_names_release(&lines->names);
    lines->loaded = false;
    lines->book = NULL;
}

bool site_lines_find(struct site_lines *lines, const struct ledger_book *book, uint32_t site,
                     struct query_site *ret_site)
{
    if (lines->book != book) {
        site_lines_release(lines);
        lines->book = book;
        lines->loaded = book_names_load(book, &lines->names) >= 0;
    }
    const struct book_site_name *name =
        lines->loaded ? book_names_site(&lines->names, site, lines->symbols) : NULL;
    if (!name)
        return false;
    *ret_site = (struct query_site){.text = name->text,
                                    .frame = name->frame,
                                    .function = name->function,
                                    .file = name->file,
                                    .line = name->line};
    return true;
}
