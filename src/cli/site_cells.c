/* See site_cells.h. */
#include "cli/site_cells.h"

#include "cli/table.h"
#include "profile/book_names.h"

void book_site_cells(const struct book_site_name *name, struct table *table, size_t site,
                     size_t frame)
{
    table_set_text(table, site, name->text);
    if (name->via)
        table_set_via(table, site, name->via);
    if (name->frame)
        table_set_text(table, frame, name->frame);
    if (name->function)
        table_set_text(table, frame + 1, name->function);
    if (name->file)
        table_set_text(table, frame + 2, name->file);
    if (name->line)
        table_set_number(table, frame + 3, name->line);
    if (name->via)
        table_set_text(table, frame + 4, name->via);
}
