/* The processes that memoird retired, as the query core wants them. */
#pragma once

#include "query/retired_source.h"

struct retired;
struct users;

struct exit_file;
struct query_exited_list;

/* Those that kept a book, joined with all that the kernel told of (`file`, NULL: nothing). Good until the next
 * process ends. Release with query_exited_release(). -ENOMEM. */
int native_exited_read(const struct retired *retired, const struct exit_file *file,
                       const struct users *users, struct query_exited_list *ret_exited);

/* The same processes as lines of the list, the latest first, for tables that look at their blocks. */
struct native_exited_lines {
    struct retired_source source; /* first; .read = native_exited_lines_read */
    const struct retired *retired;
};
int native_exited_lines_read(const struct retired_source *source, retired_line_fn *each,
                             void *context, size_t *ret_skipped);
