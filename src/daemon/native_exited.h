/* The processes that memoird retired, as the query core wants them. */
#pragma once

struct retired;
struct users;

struct exit_file;
struct query_exited_list;

/* Those that kept a book, joined with all that the kernel told of (`file`, NULL: nothing). Good until the next
 * process ends. Release with query_exited_release(). -ENOMEM. */
int native_exited_read(const struct retired *retired, const struct exit_file *file,
                       const struct users *users, struct query_exited_list *ret_exited);
