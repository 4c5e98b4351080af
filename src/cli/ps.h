/*
 * ps.h: how `memoir ps` lays out the rows of the views ps and accounts, and where the daemon's list of ended processes is.
 */
#ifndef MEMOIR_CLI_PS_H
#define MEMOIR_CLI_PS_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/query_print.h"
#include "cli/table.h"

struct buffer;
struct ledger;

/* ---- processes that live ---- */

/* The columns that the layouts need, and their order: of processes, and with `wide` of their accounts. */
extern const char ps_rows[], ps_sort[], ps_all_sort[], ps_wide_rows[], ps_wide_sort[];
struct query_style ps_layout(const struct query_style *style, bool wide);

/* The same rows of a ledger that is at hand, for query_sheet_free(); of one process, or with 0 of all. 0 or -errno. */
int ps_sheet(struct ledger *ledger, uint64_t pid, bool wide, struct query_sheet **ret_sheet);

/* The text of the tables exited and exited_blocks. */
extern const char ps_exited_rows[], ps_exited_sort[], ps_block_rows[], ps_block_sort[];
struct query_style ps_exited_layout(const struct query_style *style, bool blocks);

/* ---- the daemon's files ---- */

/* Where memoird keeps its state unless told otherwise; "" when there is no home directory. */
enum { PS_STATE_PATH_MAX = 512 };
void ps_state_default(char path[static PS_STATE_PATH_MAX]);

/* Where to look for it: `asked`, if it is not NULL; what the daemon that runs says, if it answers and we may read it; the
 * default. Asks once. */
const char *ps_state_find(const char *asked);

/* Where to change something in it: the same, but the daemon that runs must be of our own user, and its state directory,
 * too; the default only where none runs. Tells what is wrong. An exit code of command.h, or -errno. */
int ps_state_find_own(char ret_path[static PS_STATE_PATH_MAX]);

#endif
