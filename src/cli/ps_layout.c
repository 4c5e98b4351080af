/* How rows of the views ps and accounts look. See ps.h. */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "cli/ps.h"
#include "cli/world.h"
#include "query/query.h"

const char ps_rows[] =
    "pid,user,program,age,device,peak,heap,pinned,other,blocks,rss,state,notes,holds";
const char ps_sort[] = "-device,+start,+pid";
const char ps_all_sort[] = "-holds,-device,+start,+pid"; /* those that are gone come last */
const char ps_wide_rows[] =
    "pid,user,program,device,space,bytes,blocks,peak,capacity,allocated,freed";
const char ps_wide_sort[] = "+pid,+ordinal,-bytes,+space";

static const struct query_hint process_hints[] = {
    {"pid"},
    {"user", .rank = 20},
    {"program", .flags = COLUMN_STRETCH},
    {"age", .rank = 30},
    {"device"},
    {"peak", .rank = 40},
    {"heap", .rank = 15},
    {"pinned", .rank = 25},
    {"other", .flags = COLUMN_HIDE_EMPTY, .rank = 60},
    {"blocks", .rank = 35},
    {"rss", .rank = 10},
    {"state", .rank = 5},
    {"notes", .flags = COLUMN_HIDE_EMPTY, .rank = 4},
    {"holds", .flags = COLUMN_EXPORT_ONLY},
    {0},
};

static const struct query_hint space_hints[] = {
    {"pid"},
    {"user", .rank = 20},
    {"program", .flags = COLUMN_STRETCH},
    {"device"},
    {"space"},
    {"bytes", "live"},
    {"blocks", .rank = 10},
    {"peak", .rank = 15},
    {"capacity", .rank = 30},
    {"allocated", .rank = 40},
    {"freed", .rank = 50},
    {0},
};

static void paint_all(struct table *table, enum term_style style, size_t columns)
{
    for (size_t c = 0; c < columns; c++)
        table_set_style(table, c, style);
}

/* Columns as in ps_rows: rows of processes that are gone are dim, what is wrong is yellow. */
static void paint_process(struct table *table, const struct query_result *result, size_t row)
{
    enum { STATE = 11, NOTES = 12, HOLDS = 13 };
    const struct cell *state = table_cell(table, row, STATE);
    const struct cell *notes = table_cell(table, row, NOTES);
    if (!table_cell(table, row, HOLDS)->number)
        paint_all(table, STYLE_DIM, table->n_columns);
    if (state->present && strcmp(state->text, "stopped") == 0)
        table_set_style(table, STATE, STYLE_WARN);
    if (notes->present && (strstr(notes->text, "lost") || strstr(notes->text, "left out")))
        table_set_style(table, NOTES, STYLE_WARN);
}

/* The eye finds where the next process starts. */
static void paint_space(struct table *table, const struct query_result *result, size_t row)
{
    enum { OWN = 3 };
    if (row > 0 &&
        query_result_value(result, row, 0).number == query_result_value(result, row - 1, 0).number)
        paint_all(table, STYLE_DIM, OWN);
}

struct query_style ps_layout(const struct query_style *style, bool wide)
{
    struct query_style layout = *style;
    layout.hints = wide ? space_hints : process_hints;
    layout.paint = wide ? paint_space : paint_process;
    return layout;
}

/* ---- processes that ended ---- */

const char ps_exited_rows[] = "pid,user,program,ended,cause,device,peak,heap,pinned,blocks,lived";
const char ps_exited_sort[] = "-ended,+pid";
const char ps_block_rows[] = "pid,user,program,device,space,bytes,age,tag,site";
const char ps_block_sort[] = "-ended,+pid,-bytes,+id";

static const struct query_hint block_hints[] = {
    {"pid"},
    {"user", .rank = 40},
    {"program", .flags = COLUMN_STRETCH},
    {"device", .rank = 10},
    {"space"},
    {"bytes", "size"},
    {"age"},
    {"tag", .flags = COLUMN_STRETCH},
    {"site", .flags = COLUMN_STRETCH, .rank = 5},
    {0},
};

struct query_style ps_exited_layout(const struct query_style *style, bool blocks)
{
    struct query_style layout = *style;
    if (blocks) {
        layout.hints = block_hints;
        layout.paint = paint_space;
    }
    return layout;
}

int ps_sheet(struct ledger *ledger, uint64_t pid, bool wide, struct query_sheet **ret_sheet)
{
    char where[32] = "";
    if (pid)
        snprintf(where, sizeof(where), "pid=%llu", (unsigned long long)pid);
    struct query_spec spec = {
        .table = wide ? "accounts" : "processes",
        .where = where,
        .show = wide ? ps_wide_rows : ps_rows,
        .sort = wide ? ps_wide_sort : ps_sort,
    };
    MEMOIR_CLEANUP(query_freep)
    struct query *query = NULL;
    struct query_result *result = NULL;
    int r = world_ask_ledger(ledger, NULL, &spec, &query, &result);
    struct query_style style = ps_layout(&(struct query_style){.header = true}, wide);
    if (r == 0)
        r = query_sheet_new(result, query, &style, ret_sheet);
    query_result_free(result);
    return r;
}
