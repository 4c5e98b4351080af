/* The tables system_past and devices_past: the machine's memory, and that of its devices, in each step. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "history/past_rows.h"
#include "history/read.h"
#include "history/table.h"
#include "ledger/host.h"
#include "ledger/ledger.h"
#include "query/query.h"

/* ---- reading ---- */

static int step_settle(struct history_world *h, const struct read_query *queries, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct read_query query = queries[i];
        uint64_t step_s = h->read_step_s;
        query.since_s = h->since_s;
        query.until_s = h->until_s;
        query.step_s = h->read_step_s;
        int r = read_history_step(h->path, &query, &step_s);
        if (r < 0 && r != -ENOENT)
            return r;
        if (step_s > h->read_step_s)
            h->read_step_s = step_s;
    }
    return 0;
}

int past_read(struct history_world *h, struct read_query *queries, size_t n,
              struct read_result results[static PAST_READS_MAX])
{
    h->read_step_s = h->step_s ? h->step_s : 1;
    h->damaged = h->oldest_s = 0;
    int r = step_settle(h, queries, n);
    h->from_s = h->since_s / h->read_step_s * h->read_step_s;
    h->to_s = (h->until_s + h->read_step_s - 1) / h->read_step_s * h->read_step_s;
    for (size_t i = 0; i < n && r == 0; i++) {
        queries[i].since_s = h->since_s;
        queries[i].until_s = h->until_s;
        queries[i].step_s = h->read_step_s;
        r = read_history(h->path, &queries[i], &results[i]);
        if (r == -ENOENT)
            return 0; /* nothing was written yet */
        if (r == 0 && results[i].step_s != h->read_step_s)
            r = -EAGAIN; /* it aged between two reads */
        h->damaged += results[i].damaged;
        h->oldest_s = results[i].oldest_s;
    }
    return r;
}

static uint64_t time_of(const struct read_result *result, size_t step)
{
    return (result->since_s + step * result->step_s) * NS_PER_S;
}

/* ---- the machine ---- */

enum {
    SYSTEM_SERIES = HISTORY_SYSTEM_PARTS + HOST_PARTS,
    PRESSURE_SERIES = HISTORY_PRESSURE_FULL + 1
};

struct past_system {
    uint64_t time_ns;
    const struct read_point *system[SYSTEM_SERIES], *pressure[PRESSURE_SERIES]; /* NULL: none */
};

static void get_system(const struct query_world *world, const struct query_row *row,
                       const struct query_field *field, struct query_value *ret)
{
    const struct past_system *s = row->custom;
    const struct read_point *point = s->system[field->column->arg];
    if (point)
        query_set_number(ret, point->last);
    else
        ret->state = QUERY_UNKNOWN;
}

static void get_pressure(const struct query_world *world, const struct query_row *row,
                         const struct query_field *field, struct query_value *ret)
{
    const struct past_system *s = row->custom;
    const struct read_point *point = s->pressure[field->column->arg];
    if (!point)
        return; /* not every kernel measures it */
    query_set_number(ret, point->last);
    ret->per = 10000;
}

static void get_system_time(const struct query_world *world, const struct query_row *row,
                            const struct query_field *field, struct query_value *ret)
{
    query_set_number(ret, ((const struct past_system *)row->custom)->time_ns);
}

#define SYSTEM(name, which)                                                       \
    {                                                                             \
        name, NULL, QUERY_BYTES, .arg = HISTORY_SYSTEM_##which, .get = get_system \
    }
#define PART(name, part)                                                                           \
    {                                                                                              \
        name, NULL, QUERY_BYTES, .arg = HISTORY_SYSTEM_PARTS + HOST_PART_##part, .get = get_system \
    }

static const struct query_column system_columns[] = {
    {"time", "start of the step", QUERY_TIME, QUERY_SAME, .get = get_system_time},
    {"node", NULL, QUERY_TEXT, .get = query_get_node},
    QUERY_COLUMN_NODES,
    SYSTEM("total", TOTAL),
    SYSTEM("available", AVAILABLE),
    SYSTEM("used", USED),
    SYSTEM("swap", SWAP),
    {"pressure", NULL, QUERY_PERCENT, QUERY_MAX, .arg = HISTORY_PRESSURE_SOME, .get = get_pressure},
    {"stall", NULL, QUERY_PERCENT, QUERY_MAX, .arg = HISTORY_PRESSURE_FULL, .get = get_pressure},
    PART("anon", ANON),
    PART("shmem", SHMEM),
    PART("cache", CACHE),
    PART("buffers", BUFFERS),
    PART("slab_reclaimable", SLAB_RECLAIMABLE),
    PART("slab_unreclaimable", SLAB),
    PART("page_tables", PAGE_TABLES),
    PART("kernel_stacks", STACKS),
    PART("percpu", PERCPU),
    PART("hugetlb", HUGETLB),
    PART("free", FREE),
    PART("unattributed", REST),
    {0},
};

static int scan_system_step(struct query_scan *scan, const struct read_result *result, size_t step)
{
    struct past_system row = {.time_ns = time_of(result, step)};
    bool any = false;
    for (size_t i = 0; i < result->n_lines; i++) {
        const struct read_line *line = &result->lines[i];
        const struct read_point *point = &line->points[step];
        bool pressure = line->what == READ_PRESSURE;
        if (!point->present || line->space >= (pressure ? PRESSURE_SERIES : SYSTEM_SERIES))
            continue;
        any = true;
        if (pressure)
            row.pressure[line->space] = point;
        else
            row.system[line->space] = point;
    }
    return any ? scan->each(scan, &(struct query_row){.custom = &row}) : 0;
}

static int scan_system(struct query_scan *scan)
{
    struct history_world *h = scan->world->history;
    struct read_query query = {.by = READ_BY_DEVICE, .system = true};
    struct read_result results[PAST_READS_MAX] = {0};
    int r = h ? past_read(h, &query, 1, results) : 0;
    scan->incomplete |= h && h->damaged;
    for (size_t step = 0; step < results[0].n_steps && r == 0; step++)
        r = scan_system_step(scan, &results[0], step);
    read_release(&results[0]);
    return r;
}

const struct query_table past_table_system = {
    .name = "system_past",
    .help = "one row for each step of a time: who held the machine's memory",
    .columns = system_columns,
    .needs = QUERY_NEEDS_HISTORY,
    .costly = true,
    .show = "time,node,total,available,used,anon,shmem,cache,free,swap,pressure",
    .show_by = "count,total,available,used,nodes",
    .sort = "+time,+node",
    .scan = scan_system,
};

/* ---- devices ---- */

struct past_device {
    uint64_t time_ns;
    const struct read_line *line;           /* bytes */
    const struct read_point *used, *blocks; /* blocks: NULL where they are not known */
};

static const struct past_device *device_of(const struct query_row *row)
{
    return row->custom;
}

enum { TEXT_DEVICE, TEXT_ID, TEXT_NAME, TEXT_UID, TEXT_BUS, TEXT_SPACE, TEXT_NODE };

static void get_device_text(const struct query_world *world, const struct query_row *row,
                            const struct query_field *field, struct query_value *ret)
{
    static _Thread_local char device[96], id[LEDGER_DEVICE_ID_MAX];
    const struct read_line *line = device_of(row)->line;
    const char *node = *line->node ? line->node : world->node;
    snprintf(device, sizeof(device), "%d %s", line->ordinal, line->device);
    const char *const texts[] = {
        [TEXT_DEVICE] = device,
        [TEXT_ID] = read_line_device_id(line, world->node ? world->node : "", id),
        [TEXT_NAME] = line->device,
        [TEXT_UID] = line->device_uid,
        [TEXT_BUS] = line->bus,
        [TEXT_SPACE] = ledger_space_name(line->space),
        [TEXT_NODE] = node ? node : "",
    };
    if (*texts[field->column->arg])
        query_set_text(ret, texts[field->column->arg]);
}

enum {
    DEVICE_TIME,
    DEVICE_ORDINAL,
    DEVICE_USED,
    DEVICE_PEAK,
    DEVICE_FREE,
    DEVICE_CAPACITY,
    DEVICE_BLOCKS
};

static void get_device_number(const struct query_world *world, const struct query_row *row,
                              const struct query_field *field, struct query_value *ret)
{
    const struct past_device *d = device_of(row);
    uint64_t used = d->used->last, capacity = d->line->capacity;
    const struct {
        bool known;
        uint64_t value;
    } numbers[] = {
        [DEVICE_TIME] = {true, d->time_ns},
        [DEVICE_ORDINAL] = {d->line->ordinal >= 0, (uint64_t)d->line->ordinal},
        [DEVICE_USED] = {true, used},
        [DEVICE_PEAK] = {true, d->used->max},
        [DEVICE_FREE] = {d->line->has_capacity, capacity > used ? capacity - used : 0},
        [DEVICE_CAPACITY] = {d->line->has_capacity, capacity},
        [DEVICE_BLOCKS] = {d->blocks != NULL, d->blocks ? d->blocks->last : 0},
    };
    if (numbers[field->column->arg].known)
        query_set_number(ret, numbers[field->column->arg].value);
}

static void get_percent(const struct query_world *world, const struct query_row *row,
                        const struct query_field *field, struct query_value *ret)
{
    const struct past_device *d = device_of(row);
    if (!d->line->has_capacity || !d->line->capacity)
        return;
    query_set_number(ret, d->used->last);
    ret->per = d->line->capacity;
}

#define TEXT(name, which)                                                   \
    {                                                                       \
        name, NULL, QUERY_TEXT, .arg = TEXT_##which, .get = get_device_text \
    }
#define NUMBER(name, kind, aggregate, which)                                         \
    {                                                                                \
        name, NULL, kind, aggregate, .arg = DEVICE_##which, .get = get_device_number \
    }

static const struct query_column device_columns[] = {
    {"time", "start of the step", QUERY_TIME, QUERY_SAME, .arg = DEVICE_TIME,
     .get = get_device_number},
    {"device", "number and name of the device", QUERY_TEXT, .arg = TEXT_DEVICE,
     .get = get_device_text},
    TEXT("device_id", ID),
    NUMBER("ordinal", QUERY_NUMBER, QUERY_SAME, ORDINAL),
    TEXT("device_name", NAME),
    TEXT("device_uid", UID),
    TEXT("device_bus", BUS),
    TEXT("node", NODE),
    QUERY_COLUMN_NODES,
    TEXT("space", SPACE),
    {"used", "bytes that processes held there", QUERY_BYTES, .arg = DEVICE_USED,
     .get = get_device_number},
    {"peak", "the most that was held in the step", QUERY_BYTES, .arg = DEVICE_PEAK,
     .get = get_device_number},
    NUMBER("free", QUERY_BYTES, QUERY_DEFAULT, FREE),
    NUMBER("capacity", QUERY_BYTES, QUERY_DEFAULT, CAPACITY),
    {"percent", NULL, QUERY_PERCENT, .get = get_percent},
    NUMBER("blocks", QUERY_NUMBER, QUERY_DEFAULT, BLOCKS),
    {0},
};

/* The blocks of the same space of the same device. */
static const struct read_line *blocks_of(const struct read_result *blocks,
                                         const struct read_line *line)
{
    for (size_t i = 0; i < blocks->n_lines; i++) {
        const struct read_line *b = &blocks->lines[i];
        if (b->on_device && b->space == line->space && b->ordinal == line->ordinal &&
            strcmp(b->device_uid, line->device_uid) == 0 && strcmp(b->bus, line->bus) == 0 &&
            strcmp(b->device, line->device) == 0 && strcmp(b->device_node, line->device_node) == 0)
            return b;
    }
    return NULL;
}

static int scan_device(struct query_scan *scan, const struct read_result results[static 2],
                       const struct read_line *line)
{
    const struct read_line *blocks = blocks_of(&results[1], line);
    for (size_t step = 0; step < results[0].n_steps; step++) {
        if (!line->points[step].present)
            continue;
        struct past_device row = {
            .time_ns = time_of(&results[0], step),
            .line = line,
            .used = &line->points[step],
            .blocks = blocks && blocks->points[step].present ? &blocks->points[step] : NULL};
        int r = scan->each(scan, &(struct query_row){.custom = &row});
        if (r)
            return r;
    }
    return 0;
}

static int scan_devices(struct query_scan *scan)
{
    struct history_world *h = scan->world->history;
    struct read_query queries[PAST_READS_MAX] = {{.by = READ_BY_DEVICE},
                                                 {.by = READ_BY_DEVICE, .blocks = true}};
    struct read_result results[PAST_READS_MAX] = {0};
    int r = h ? past_read(h, queries, PAST_READS_MAX, results) : 0;
    scan->incomplete |= h && h->damaged;
    for (size_t i = 0; i < results[0].n_lines && r == 0; i++)
        if (results[0].lines[i].on_device)
            r = scan_device(scan, results, &results[0].lines[i]);
    for (size_t k = 0; k < PAST_READS_MAX; k++)
        read_release(&results[k]);
    return r;
}

const struct query_table past_table_devices = {
    .name = "devices_past",
    .help = "one row for each kind of memory of each device and step of a time",
    .columns = device_columns,
    .needs = QUERY_NEEDS_HISTORY,
    .costly = true,
    .show = "time,device,space,used,free,capacity,percent,blocks",
    .show_by = "count,used,capacity,percent,nodes",
    .sort = "+time,+device,+space",
    .scan = scan_devices,
};
