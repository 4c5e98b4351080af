/* The tables host_past and processes_past: what each process held in each step. Series of one process are one row a step. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memoir/memoir.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/sum.h"
#include "history/past_rows.h"
#include "history/read.h"
#include "history/table.h"
#include "ledger/ledger.h"
#include "query/query.h"

/* Figures of a row; those of a space come twice, on the host and on devices. */
enum figure {
    FIGURE_RSS,
    FIGURE_PEAK_RSS,
    FIGURE_PSS,
    FIGURE_BLOCKS,
    FIGURE_HOST,
    FIGURE_DEVICE,
    FIGURE_SPACES, /* and on: by enum memoir_space, of the host, */
    FIGURE_DEVICE_SPACES = FIGURE_SPACES + MEMOIR_SPACE_MAX + 1, /* and of devices */
    FIGURES = FIGURE_DEVICE_SPACES + MEMOIR_SPACE_MAX + 1,
};

enum { NOTED_LATE_S = 2 }; /* for so long a process that runs may lack a value */

/* What row->custom is. */
struct past_process {
    uint64_t time_ns;
    const struct read_line *who;
    bool book; /* it kept one */
    bool known[FIGURES];
    uint64_t figures[FIGURES];
};

static const struct past_process *row_of(const struct query_row *row)
{
    return row->custom;
}

/* ---- columns ---- */

enum { WHO_TIME, WHO_PID, WHO_UID, WHO_START };

static void get_who(const struct query_world *world, const struct query_row *row,
                    const struct query_field *field, struct query_value *ret)
{
    const struct past_process *p = row_of(row);
    switch (field->column->arg) {
    case WHO_TIME:
        query_set_number(ret, p->time_ns);
        break;
    case WHO_PID:
        query_set_number(ret, (uint64_t)p->who->pid);
        break;
    case WHO_UID:
        query_set_number(ret, p->who->uid);
        break;
    case WHO_START:
        if (p->who->began_s)
            query_set_number(ret, p->who->began_s * NS_PER_S);
        else
            ret->state = QUERY_UNKNOWN;
        break;
    }
}

enum { TEXT_PROGRAM, TEXT_USER, TEXT_NODE };

static void get_text(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, struct query_value *ret)
{
    const struct read_line *who = row_of(row)->who;
    if (field->column->arg == TEXT_USER)
        query_set_user(ret, world, who->uid);
    else if (field->column->arg == TEXT_NODE)
        query_set_node(ret, world, who->node);
    else if (*who->program)
        query_set_text(ret, who->program);
}

static void get_figure(const struct query_world *world, const struct query_row *row,
                       const struct query_field *field, struct query_value *ret)
{
    const struct past_process *p = row_of(row);
    if (p->known[field->column->arg])
        query_set_number(ret, p->figures[field->column->arg]);
    else if (field->column->arg <= FIGURE_PSS)
        ret->state = QUERY_UNKNOWN;
}

#define FIGURE(name, kind, which)                                  \
    {                                                              \
        name, NULL, kind, .arg = FIGURE_##which, .get = get_figure \
    }
#define SPACE(name, base, space)                                                                \
    {                                                                                           \
        name, NULL, QUERY_BYTES, .arg = FIGURE_##base + MEMOIR_SPACE_##space, .get = get_figure \
    }

static const struct query_column columns[] = {
    {"time", "start of the step", QUERY_TIME, QUERY_SAME, .arg = WHO_TIME, .get = get_who},
    {"pid", NULL, QUERY_NUMBER, QUERY_SAME, .arg = WHO_PID, .get = get_who},
    {"program", NULL, QUERY_TEXT, .flags = QUERY_PRIVATE_ENDED, .arg = TEXT_PROGRAM,
     .get = get_text},
    {"user", "who owned the process", QUERY_TEXT, .arg = TEXT_USER, .get = get_text},
    {"uid", "the same as a number", QUERY_NUMBER, QUERY_SAME, .arg = WHO_UID, .get = get_who},
    {"node", NULL, QUERY_TEXT, .arg = TEXT_NODE, .get = get_text},
    QUERY_COLUMN_NODES,
    {"start", NULL, QUERY_TIME, QUERY_MIN, .arg = WHO_START, .get = get_who},
    FIGURE("rss", QUERY_BYTES, RSS),
    {"peak_rss", "the most that rss was in the step", QUERY_BYTES, .arg = FIGURE_PEAK_RSS,
     .get = get_figure},
    FIGURE("pss", QUERY_BYTES, PSS),
    FIGURE("device", QUERY_BYTES, DEVICE),
    SPACE("device.dram", DEVICE_SPACES, DRAM),
    SPACE("device.l1", DEVICE_SPACES, L1),
    SPACE("device.l1_small", DEVICE_SPACES, L1_SMALL),
    SPACE("device.trace", DEVICE_SPACES, TRACE),
    SPACE("device.cb", DEVICE_SPACES, CB),
    SPACE("device.kernel", DEVICE_SPACES, KERNEL),
    SPACE("device.system", DEVICE_SPACES, SYSTEM),
    FIGURE("host", QUERY_BYTES, HOST),
    SPACE("heap", SPACES, HEAP),
    SPACE("pinned", SPACES, PINNED),
    SPACE("registered", SPACES, REGISTERED),
    SPACE("mapped", SPACES, MAPPED),
    SPACE("managed", SPACES, MANAGED),
    SPACE("host.shared", SPACES, SHARED),
    SPACE("chain", SPACES, CHAIN),
    FIGURE("blocks", QUERY_NUMBER, BLOCKS),
    {0},
};

/* ---- rows ---- */

struct members {
    const struct read_line **lines; /* by process */
    size_t n, n_bytes; /* those before n_bytes in the results are of bytes, the others of blocks */
};

static int compare(const struct read_line *a, const struct read_line *b)
{
    if (a->boot != b->boot)
        return a->boot < b->boot ? -1 : 1;
    if (a->start_ticks != b->start_ticks)
        return a->start_ticks < b->start_ticks ? -1 : 1;
    if (a->pid != b->pid)
        return a->pid < b->pid ? -1 : 1;
    return strcmp(a->node, b->node);
}

static int by_process(const void *a, const void *b)
{
    return compare(*(const struct read_line *const *)a, *(const struct read_line *const *)b);
}

static void add(struct past_process *row, size_t figure, uint64_t value)
{
    row->known[figure] = true;
    sum_add(&row->figures[figure], value);
}

/* Spaces that are no part of host or device: the columns of accounts say why. */
static void add_space(struct past_process *row, const struct read_line *line, uint64_t value)
{
    bool apart = line->on_device
                     ? line->space == MEMOIR_SPACE_SYSTEM
                     : line->space == MEMOIR_SPACE_CHAIN || line->space == MEMOIR_SPACE_REGISTERED;
    row->book = true;
    add(row, (line->on_device ? FIGURE_DEVICE_SPACES : FIGURE_SPACES) + line->space, value);
    if (!apart)
        add(row, line->on_device ? FIGURE_DEVICE : FIGURE_HOST, value);
}

static void take(struct past_process *row, const struct read_line *line,
                 const struct read_point *point, bool blocks)
{
    if (blocks) {
        row->book = true;
        if (line->space == 0)
            add(row, FIGURE_BLOCKS, point->last);
    } else if (line->what == READ_PSS) {
        add(row, FIGURE_PSS, point->last);
    } else if (line->space) {
        add_space(row, line, point->last);
    } else {
        add(row, FIGURE_RSS, point->last);
        add(row, FIGURE_PEAK_RSS, point->max);
    }
}

static bool is_of(const struct read_result *result, const struct read_line *line)
{
    return line >= result->lines && line < result->lines + result->n_lines;
}

/* For each step when anything of any process was noted last, from its start: all are noted at once. */
static uint32_t *latest_of(const struct read_result results[static PAST_READS_MAX])
{
    uint32_t *latest = calloc(results[0].n_steps + 1, sizeof(*latest));
    for (size_t k = 0; latest && k < PAST_READS_MAX; k++)
        for (size_t i = 0; i < results[k].n_lines; i++)
            for (size_t step = 0; step < results[0].n_steps; step++) {
                const struct read_point *point = &results[k].lines[i].points[step];
                if (point->present && point->offset_s > latest[step])
                    latest[step] = point->offset_s;
            }
    return latest;
}

/* The steps of one process, whose lines are `lines`. A row has what it held at the end of the step: one that ended before has none,
 * so that sums do not count together what was never there at once. */
static int scan_process(struct query_scan *scan, const struct read_result *bytes,
                        const uint32_t *latest, const struct read_line *const *lines, size_t n,
                        bool books_only)
{
    for (size_t step = 0; step < bytes->n_steps; step++) {
        struct past_process row = {.time_ns = (bytes->since_s + step * bytes->step_s) * NS_PER_S,
                                   .who = lines[0]};
        bool any = false;
        for (size_t i = 0; i < n; i++) {
            const struct read_point *point = &lines[i]->points[step];
            if (point->present)
                take(&row, lines[i], point, !is_of(bytes, lines[i]));
            any |= point->present && point->offset_s + NOTED_LATE_S >= latest[step];
        }
        int r = any && (row.book || !books_only)
                    ? scan->each(scan, &(struct query_row){.custom = &row})
                    : 0;
        if (r)
            return r;
    }
    return 0;
}

static int scan_all(struct query_scan *scan,
                    const struct read_result results[static PAST_READS_MAX], bool books_only)
{
    size_t n = 0, all = results[0].n_lines + results[1].n_lines;
    MEMOIR_CLEANUP(freep)
    const struct read_line **lines = calloc(all + 1, sizeof(*lines));
    MEMOIR_CLEANUP(freep)
    uint32_t *latest = latest_of(results);
    if (!lines || !latest)
        return -ENOMEM;
    for (size_t k = 0; k < PAST_READS_MAX; k++)
        for (size_t i = 0; i < results[k].n_lines; i++)
            lines[n++] = &results[k].lines[i];
    qsort(lines, n, sizeof(*lines), by_process);
    int r = 0;
    for (size_t i = 0, end; i < n && r == 0; i = end) {
        for (end = i + 1; end < n && compare(lines[i], lines[end]) == 0; end++)
            ;
        r = scan_process(scan, &results[0], latest, lines + i, end - i, books_only);
    }
    return r;
}

static int scan_past(struct query_scan *scan, bool books_only)
{
    struct history_world *h = scan->world->history;
    struct read_result results[PAST_READS_MAX] = {0};
    struct read_query queries[PAST_READS_MAX] = {
        {.by = READ_BY_PROCESS, .pid = h ? h->pid : 0},
        {.by = READ_BY_PROCESS, .blocks = true, .pid = h ? h->pid : 0}};
    if (!h)
        return 0;
    int r = past_read(h, queries, PAST_READS_MAX, results);
    scan->incomplete |= h->damaged > 0;
    if (r == 0)
        r = scan_all(scan, results, books_only);
    for (size_t k = 0; k < PAST_READS_MAX; k++)
        read_release(&results[k]);
    return r;
}

static int scan_host(struct query_scan *scan)
{
    return scan_past(scan, false);
}

static int scan_processes(struct query_scan *scan)
{
    return scan_past(scan, true);
}

static bool owner(const struct query_row *row, uint32_t *ret_uid)
{
    *ret_uid = row_of(row)->who->uid;
    return true;
}

static bool ended(const struct query_row *row)
{
    return read_line_ended(row_of(row)->who);
}

const struct query_table past_table_host = {
    .name = "host_past",
    .help =
        "one row for each process of the machine and step of a time, of those whose history is kept",
    .columns = columns,
    .needs = QUERY_NEEDS_HISTORY,
    .costly = true,
    .show = "time,pid,user,program,rss,pss,heap,pinned,device",
    .show_by = "count,rss,pss,heap,pinned,device,nodes",
    .sort = "+time,-rss,+pid",
    .scan = scan_host,
    .owner = owner,
    .ended = ended,
};

const struct query_table past_table_processes = {
    .name = "processes_past",
    .help = "one row for each process that kept a book and step of a time",
    .columns = columns,
    .needs = QUERY_NEEDS_HISTORY,
    .costly = true,
    .show = "time,pid,user,program,device,heap,pinned,blocks,rss",
    .show_by = "count,device,heap,pinned,blocks,rss,nodes",
    .sort = "+time,-device,-heap,+pid",
    .scan = scan_processes,
    .owner = owner,
    .ended = ended,
};
