/*
 * ps.h: what `memoir ps` shows, apart from how.
 *
 * Two tables: one row per process, and one per (process, device, space), which --wide shows and
 * --json nests into the processes.
 */
#ifndef MEMOIR_CLI_PS_H
#define MEMOIR_CLI_PS_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/table.h"

struct ledger;
struct ledger_process;

/* Which rows are wanted. */
struct ps_filter {
    uint64_t pid; /* 0: all */
    bool by_uid;
    uint32_t uid;
};

struct ps_view {
    struct table processes;
    struct table spaces;
    size_t *space_owner; /* row of `processes` for each row of `spaces` */
    size_t cap_owner;
};

/* The fields that start every row of `spaces` and that JSON does not repeat. */
enum { PS_SPACE_OWN_COLUMNS = 3 };

extern const struct column ps_process_columns[];
extern const struct column ps_space_columns[];

void ps_view_init(struct ps_view *view);
void ps_view_release(struct ps_view *view);

/* Add the processes of the ledger that pass the filter. */
int ps_view_fill(struct ps_view *view, const struct ledger *ledger, const struct ps_filter *filter);

#endif
