/* The table `history`. See table.h.
 *
 * Rows of different scopes tell of the same bytes (a process, its device, the host), so sums over several scopes say
 * nothing: questions name one by `of`. Points of one step have the same time on all machines, because steps are aligned
 * to 1970; so series are added up by merging, in whatever order. */
#include "history/table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "history/read.h"
#include "query/query.h"

enum scope { OF_SYSTEM, OF_DEVICE, OF_PROCESS, SCOPES };
static const char *const scope_words[SCOPES] = {"system", "device", "process"};

/* What row->custom is. */
struct series_row {
    enum scope of;
    bool blocks;
    const struct read_line *line;
    const struct query_point *last, *max, *ones; /* those that are known, of each kind */
    size_t n;
    bool lasts; /* it has a value in the last step in which any series of its scope has one */
};

static const struct series_row *row_of(const struct query_row *row)
{
    return row->custom;
}

/* ---- columns ---- */

enum {
    TEXT_OF,
    TEXT_SERIES,
    TEXT_UNIT,
    TEXT_PROGRAM,
    TEXT_DEVICE,
    TEXT_DEVICE_NAME,
    TEXT_BUS,
    TEXT_SPACE
};

static void get_text(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, struct query_value *ret)
{
    static _Thread_local char text[LEDGER_DEVICE_ID_MAX];
    const struct series_row *r = row_of(row);
    const struct read_line *line = r->line;
    const char *word = "";
    switch (field->column->arg) {
    case TEXT_OF:
        word = r->of == OF_DEVICE && !line->on_device ? "host" : scope_words[r->of];
        break;
    case TEXT_SERIES:
        word = read_line_word(line, r->blocks);
        break;
    case TEXT_UNIT:
        word = line->what == READ_PRESSURE ? "percent/100" : r->blocks ? "blocks" : "bytes";
        break;
    case TEXT_PROGRAM:
        word = line->program;
        break;
    case TEXT_DEVICE:
        if (line->on_device)
            word = read_line_device_id(line, world->node ? world->node : "", text);
        break;
    case TEXT_DEVICE_NAME:
        word = line->device;
        break;
    case TEXT_BUS:
        word = line->bus;
        break;
    case TEXT_SPACE:
        if (line->what == READ_ACCOUNT && line->space)
            word = ledger_space_name(line->space);
        break;
    }
    if (*word)
        query_set_text(ret, word);
}

static void get_node(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, struct query_value *ret)
{
    query_set_node(ret, world, row_of(row)->line->node);
}

static void get_user(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, struct query_value *ret)
{
    if (row_of(row)->of == OF_PROCESS)
        query_set_user(ret, world, row_of(row)->line->uid);
}

enum {
    NUMBER_PID,
    NUMBER_UID,
    NUMBER_POINTS,
    NUMBER_CAPACITY,
    NUMBER_MIN,
    NUMBER_MAX,
    NUMBER_LAST,
    NUMBER_END,
    NUMBER_ORDINAL
};

static void get_number(const struct query_world *world, const struct query_row *row,
                       const struct query_field *field, struct query_value *ret)
{
    const struct series_row *r = row_of(row);
    const struct read_line *line = r->line;
    switch (field->column->arg) {
    case NUMBER_PID:
        if (line->pid)
            query_set_number(ret, (uint64_t)line->pid);
        break;
    case NUMBER_UID:
        if (r->of == OF_PROCESS)
            query_set_number(ret, line->uid);
        break;
    case NUMBER_POINTS:
        query_set_number(ret, r->n);
        break;
    case NUMBER_CAPACITY:
        if (line->has_capacity)
            query_set_number(ret, line->capacity);
        break;
    case NUMBER_MIN:
        query_set_number(ret, line->min);
        break;
    case NUMBER_MAX:
        query_set_number(ret, line->max);
        break;
    case NUMBER_LAST:
        query_set_number(ret, line->last);
        break;
    case NUMBER_END:
        if (r->lasts)
            query_set_number(ret, line->last);
        break;
    case NUMBER_ORDINAL:
        if (line->on_device && line->ordinal >= 0)
            query_set_number(ret, (uint64_t)line->ordinal);
        break;
    }
}

enum { TIME_START, TIME_LAST };

static void get_time(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, struct query_value *ret)
{
    const struct read_line *line = row_of(row)->line;
    uint64_t time_s = field->column->arg == TIME_START ? line->began_s : line->last_s;
    if (time_s)
        query_set_number(ret, time_s * NS_PER_S);
}

enum { POINTS_LAST, POINTS_MAX, POINTS_NODES };

static void get_points(const struct query_world *world, const struct query_row *row,
                       const struct query_field *field, struct query_value *ret)
{
    const struct series_row *r = row_of(row);
    const struct query_point *const kinds[] = {
        [POINTS_LAST] = r->last, [POINTS_MAX] = r->max, [POINTS_NODES] = r->ones};
    query_set_points(ret, kinds[field->column->arg], r->n);
}

/* Columns without QUERY_DETAIL tell which scopes a question can be about: only those are read. */
#define DETAIL .flags = QUERY_DETAIL

static const struct query_column columns[] = {
    {"of", "whose memory: process, device, host (as all processes report it) or system", QUERY_TEXT,
     .arg = TEXT_OF, .get = get_text},
    {"series", "what was measured: rss, pss, heap, dram, total, available, pressure ...",
     QUERY_TEXT, DETAIL, .arg = TEXT_SERIES, .get = get_text},
    {"measure", "unit of the values: bytes, blocks, or hundredths of a percent", QUERY_TEXT,
     .arg = TEXT_UNIT, .get = get_text},
    {"node", "name of the machine", QUERY_TEXT, DETAIL, .get = get_node},
    QUERY_COLUMN_NODES,
    {"pid", "process id", QUERY_NUMBER, QUERY_SAME, DETAIL, .arg = NUMBER_PID, .get = get_number},
    {"program", "name of the program", QUERY_TEXT, .flags = QUERY_DETAIL | QUERY_PRIVATE_ENDED,
     .arg = TEXT_PROGRAM, .get = get_text},
    {"user", "who owns the process", QUERY_TEXT, DETAIL, .get = get_user},
    {"uid", "the same as a number", QUERY_NUMBER, QUERY_SAME, DETAIL, .arg = NUMBER_UID,
     .get = get_number},
    {"start", "when the process began", QUERY_TIME, DETAIL, .arg = TIME_START, .get = get_time},
    {"device_id", "identity of the device: its uid, else its PCI address and node", QUERY_TEXT,
     DETAIL, .arg = TEXT_DEVICE, .get = get_text},
    {"device_name", "name of the device alone", QUERY_TEXT, DETAIL, .arg = TEXT_DEVICE_NAME,
     .get = get_text},
    {"device_bus", "PCI address of the device", QUERY_TEXT, DETAIL, .arg = TEXT_BUS,
     .get = get_text},
    {"ordinal", "the number that programs use for the device", QUERY_NUMBER, QUERY_SAME, DETAIL,
     .arg = NUMBER_ORDINAL, .get = get_number},
    {"space", NULL, QUERY_TEXT, DETAIL, .arg = TEXT_SPACE, .get = get_text},
    {"capacity", "size of the memory", QUERY_BYTES, QUERY_MAX, DETAIL, .arg = NUMBER_CAPACITY,
     .get = get_number},
    {"min", "the least value at the end of a step", QUERY_BYTES, QUERY_MIN, DETAIL,
     .arg = NUMBER_MIN, .get = get_number},
    {"max", "the largest value", QUERY_BYTES, QUERY_MAX, DETAIL, .arg = NUMBER_MAX,
     .get = get_number},
    {"last", "the latest value, however long ago", QUERY_BYTES, QUERY_SAME, DETAIL,
     .arg = NUMBER_LAST, .get = get_number},
    {"end", "the value at the end of the time; absent for what had ended by then", QUERY_BYTES,
     DETAIL, .arg = NUMBER_END, .get = get_number},
    {"last_time", "when that was", QUERY_TIME, QUERY_MAX, DETAIL, .arg = TIME_LAST,
     .get = get_time},
    {"steps", "steps with a value", QUERY_NUMBER, QUERY_MAX, DETAIL, .arg = NUMBER_POINTS,
     .get = get_number},
    {"points", "start and last value of each step in which something was recorded", QUERY_POINTS,
     DETAIL, .arg = POINTS_LAST, .get = get_points},
    {"peaks", "start and largest value of each such step", QUERY_POINTS, DETAIL, .arg = POINTS_MAX,
     .get = get_points},
    {"step_nodes", "start of each such step and number of nodes that have a value in it",
     QUERY_POINTS, QUERY_MAX, .flags = QUERY_PER_NODE | QUERY_DETAIL, .unit = "nodes",
     .arg = POINTS_NODES, .get = get_points},
    {0},
};

/* ---- rows ---- */

static size_t points_of(const struct read_result *result, const struct read_line *line,
                        struct query_point *last, struct query_point *max, struct query_point *ones)
{
    size_t n = 0;
    for (size_t i = 0; i < result->n_steps; i++) {
        if (!line->points[i].present)
            continue;
        uint64_t time_ns = (result->since_s + i * result->step_s) * NS_PER_S;
        last[n] = (struct query_point){time_ns, line->points[i].last};
        max[n] = (struct query_point){time_ns, line->points[i].max};
        ones[n++] = (struct query_point){time_ns, 1};
    }
    return n;
}

static int scan_lines(struct query_scan *scan, const struct read_result *result, enum scope of,
                      bool blocks)
{
    MEMOIR_CLEANUP(freep)
    struct query_point *points = calloc(3 * result->n_steps, sizeof(*points));
    if (!points)
        return -ENOMEM;
    uint64_t latest_s = 0;
    for (size_t i = 0; i < result->n_lines; i++)
        latest_s = result->lines[i].last_s > latest_s ? result->lines[i].last_s : latest_s;
    for (size_t i = 0; i < result->n_lines; i++) {
        const struct read_line *line = &result->lines[i];
        struct series_row row = {.of = of, .blocks = blocks, .line = line, .last = points};
        row.max = points + result->n_steps;
        row.ones = row.max + result->n_steps;
        row.n =
            points_of(result, line, points, points + result->n_steps, points + 2 * result->n_steps);
        row.lasts = line->last_s / result->step_s == latest_s / result->step_s;
        int r = scan->each(scan, &(struct query_row){.custom = &row});
        if (r)
            return r;
    }
    return 0;
}

static struct read_query scope_query(const struct query_scan *scan, const struct history_world *h,
                                     enum scope of, bool blocks)
{
    return (struct read_query){.since_s = h->since_s,
                               .until_s = h->until_s,
                               .step_s = h->read_step_s,
                               .node = scan->world->node,
                               .by = of == OF_PROCESS ? READ_BY_PROCESS : READ_BY_DEVICE,
                               .pid = of == OF_PROCESS ? h->pid : 0,
                               .blocks = blocks,
                               .system = of == OF_SYSTEM};
}

struct history_world history_of_reading(const struct read_result *reading, bool blocks)
{
    return (struct history_world){.reading = reading,
                                  .blocks = blocks,
                                  .read_step_s = reading->step_s,
                                  .from_s = reading->since_s,
                                  .to_s = reading->until_s,
                                  .oldest_s = reading->oldest_s,
                                  .damaged = reading->damaged};
}

const struct read_line *history_row_line(const struct query_row *row)
{
    return row_of(row)->line;
}

bool history_row_blocks(const struct query_row *row)
{
    return row_of(row)->blocks;
}

static int scan_scope(struct query_scan *scan, struct history_world *h, enum scope of, bool blocks)
{
    struct read_query query = scope_query(scan, h, of, blocks);
    MEMOIR_CLEANUP(read_release)
    struct read_result result = {0};
    int r = read_history(h->path, &query, &result);
    if (r == -ENOENT)
        return 0; /* nothing was written yet */
    if (r < 0)
        return r;
    h->damaged += result.damaged;
    h->oldest_s = result.oldest_s;
    h->pid_known |= result.pid_known;
    scan->incomplete |= result.damaged > 0;
    if (result.step_s != h->read_step_s) /* it aged between two reads: ask again */
        return -EAGAIN;
    if (h->one_process)
        read_choose_process(&result, h->start_s);
    return scan_lines(scan, &result, of, blocks);
}

/* The step that all scopes in question can be answered in, without a row. */
static int step_settle(struct query_scan *scan, struct history_world *h, enum scope of, bool blocks)
{
    struct read_query query = scope_query(scan, h, of, blocks);
    uint64_t step_s = 0;
    int r = read_history_step(h->path, &query, &step_s);
    if (step_s > h->read_step_s)
        h->read_step_s = step_s;
    return r == -ENOENT ? 0 : r;
}

/* Can a row of this scope match? A line of each kind that the scope has is tried. */
static bool scope_wanted(struct query_scan *scan, enum scope of, bool blocks)
{
    for (int other = 0; other < 2; other++) {
        struct read_line line = {.on_device = other,
                                 .what = of == OF_SYSTEM ? other ? READ_PRESSURE : READ_SYSTEM
                                                         : READ_ACCOUNT};
        struct series_row row = {.of = of, .blocks = blocks, .line = &line};
        if (scan->may_match(scan, &(struct query_row){.custom = &row}))
            return true;
    }
    return false;
}

/* Call it for each scope in question; blocks of the machine there are none. */
static int each_scope(struct query_scan *scan, struct history_world *h,
                      int (*call)(struct query_scan *scan, struct history_world *h, enum scope of,
                                  bool blocks))
{
    static const struct {
        enum scope of;
        bool blocks;
    } scopes[] = {{OF_SYSTEM, false},
                  {OF_DEVICE, false},
                  {OF_DEVICE, true},
                  {OF_PROCESS, false},
                  {OF_PROCESS, true}};
    int r = 0;
    for (size_t i = 0; r == 0 && i < sizeof(scopes) / sizeof(*scopes); i++)
        if (scope_wanted(scan, scopes[i].of, scopes[i].blocks))
            r = call(scan, h, scopes[i].of, scopes[i].blocks);
    return r;
}

static int scan(struct query_scan *scan)
{
    struct history_world *h = scan->world->history;
    if (!h)
        return 0;
    if (h->reading) {
        bool users = h->reading->by == READ_BY_PROCESS || h->reading->by == READ_BY_USER;
        return scan_lines(scan, h->reading, users ? OF_PROCESS : OF_DEVICE, h->blocks);
    }
    h->read_step_s = h->step_s ? h->step_s : 1;
    h->damaged = h->oldest_s = 0;
    h->pid_known = false;
    int r = each_scope(scan, h, step_settle);
    h->from_s = h->since_s / h->read_step_s * h->read_step_s;
    h->to_s = (h->until_s + h->read_step_s - 1) / h->read_step_s * h->read_step_s;
    return r == 0 ? each_scope(scan, h, scan_scope) : r;
}

static bool owner(const struct query_row *row, uint32_t *ret_uid)
{
    *ret_uid = row_of(row)->line->uid;
    return row_of(row)->of == OF_PROCESS;
}

static bool ended(const struct query_row *row)
{
    return read_line_ended(row_of(row)->line);
}

const struct query_table history_table = {
    .name = "history",
    .help = "one row for each series of values over time, as memoird recorded them",
    .columns = columns,
    .needs = QUERY_NEEDS_HISTORY,
    .costly = true,
    .show = "of,pid,program,device_id,series,measure,min,max,last,steps",
    .show_by = "count,max,end,points",
    .sort = "+of,-max,+pid,+series",
    .scan = scan,
    .owner = owner,
    .ended = ended,
};
