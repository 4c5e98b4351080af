/* memoir trace history: what happened to an allocation, in order of time. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "base/units.h"
#include "cli/table.h"
#include "cli/trace.h"

enum { BLOCKS_MAX = 65536, MOMENTS_MAX = 4096, ROWS_MAX = 1 << 22, BATCH = 256 };

enum {
    EVENT_AT,
    EVENT_TIME,
    EVENT_ADDRESS,
    EVENT_EVENT,
    EVENT_SIZE,
    EVENT_OFFSET,
    EVENT_PEER,
    EVENT_SITE,
    EVENT_SPACE,
    EVENT_TID,
    EVENT_CALL,
    EVENT_RESULT,
    EVENT_ALLOCATION,
    EVENT_COUNT,
};

static const struct column columns[] = {
    [EVENT_AT] = {"at", "AT", "time since tracing began", COLUMN_AGE, COLUMN_FINE | COLUMN_EXACT},
    [EVENT_TIME] = {"time", NULL, "when it was", COLUMN_TIME, COLUMN_EXPORT_ONLY},
    [EVENT_ADDRESS] = {"address", "ADDRESS", "start of the allocation", COLUMN_TEXT},
    [EVENT_EVENT] = {"event", "EVENT", "what happened; \"gap\": events were lost here",
                     COLUMN_TEXT},
    [EVENT_SIZE] = {"size", "SIZE", "bytes of the allocation, copy or set", COLUMN_BYTES},
    [EVENT_OFFSET] = {"offset", "OFFSET", "where in the allocation", COLUMN_NUMBER,
                      COLUMN_HIDE_EMPTY, 3},
    [EVENT_PEER] = {"peer", "OTHER SIDE", "address of the other side of a copy", COLUMN_TEXT,
                    COLUMN_HIDE_EMPTY, 2},
    [EVENT_SITE] = {"site", "LINE", "the line that made the call", COLUMN_TEXT, COLUMN_STRETCH},
    [EVENT_SPACE] = {"space", "MEMORY", "kind of memory of the allocation", COLUMN_TEXT, 0, 1},
    [EVENT_TID] = {"tid", NULL, "the thread", COLUMN_NUMBER, COLUMN_EXPORT_ONLY},
    [EVENT_CALL] = {"call", NULL, "number of the call in the process", COLUMN_NUMBER,
                    COLUMN_EXPORT_ONLY},
    [EVENT_RESULT] = {"result", "RESULT", "what the call returned, if not 0", COLUMN_NUMBER,
                      COLUMN_HIDE_EMPTY},
    [EVENT_ALLOCATION] = {"allocation", NULL,
                          "number of the allocation in this list: one address may have had several",
                          COLUMN_NUMBER, COLUMN_EXPORT_ONLY},
    [EVENT_COUNT] = {"count", NULL, "how often: of system events, and of events lost in a gap",
                     COLUMN_NUMBER, COLUMN_EXPORT_ONLY},
    {0},
};

static const struct command_fields fields[] = {{"Fields of an event", columns}, {0}};

static const struct option_spec options[] = {
    OPTION_HELP,
    {"site", 0, OPTION_STRING, TRACE_AT(site), "LINE",
     "only allocations of lines whose text contains LINE: train.py:41, load_batch"},
    {"limit", 'n', OPTION_NUMBER, TRACE_AT(limit), "K",
     "the last K events (default: 20; of an ADDRESS, all)"},
    TRACE_OPTION_FOR,
    TRACE_OPTION_SOCKET,
    TRACE_OPTION_DIR,
    TRACE_OPTION_TABLE,
    {0},
};

/* ---- gathering ---- */

struct row {
    struct trace_moment moment;
    size_t block;  /* SIZE_MAX: a gap */
    size_t number; /* keeps the order of equal times */
};

struct events {
    struct trace_block *blocks;
    size_t n_blocks;
    struct row *rows;
    size_t n_rows, cap_rows;
    uint64_t unkept; /* events that are in sums only */
};

static int row_add(struct events *e, const struct trace_moment *moment, size_t block)
{
    if (e->n_rows == ROWS_MAX)
        return -E2BIG;
    if (e->n_rows == e->cap_rows) {
        size_t cap = e->cap_rows ? e->cap_rows * 2 : 1024;
        struct row *rows = reallocarray(e->rows, cap, sizeof(*rows));
        if (!rows)
            return -ENOMEM;
        e->rows = rows;
        e->cap_rows = cap;
    }
    e->rows[e->n_rows] = (struct row){*moment, block, e->n_rows};
    e->n_rows++;
    return 0;
}

static int by_time(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    if (x->moment.time_ns != y->moment.time_ns)
        return x->moment.time_ns < y->moment.time_ns ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

static int events_gather(struct trace_source *source, struct events *e)
{
    struct trace_gap gaps[TRACE_GAPS_MAX];
    MEMOIR_CLEANUP(freep)
    struct trace_moment *moments = calloc(MOMENTS_MAX, sizeof(*moments));
    int r = moments ? 0 : -ENOMEM;
    for (size_t i = 0; i < e->n_blocks && r == 0; i++) {
        ptrdiff_t n = trace_history_moments(source->history, e->blocks[i].id, moments, MOMENTS_MAX);
        e->unkept += e->blocks[i].moments - (n > 0 ? (uint64_t)n : 0);
        for (ptrdiff_t k = 0; k < n && r == 0; k++)
            r = row_add(e, &moments[k], i);
    }
    uint64_t first = UINT64_MAX, last = 0;
    for (size_t i = 0; i < e->n_rows; i++) {
        uint64_t t = e->rows[i].moment.time_ns;
        first = t < first ? t : first;
        last = t > last ? t : last;
    }
    size_t n = trace_history_gaps(source->history, gaps, TRACE_GAPS_MAX);
    for (size_t i = 0; i < n && r == 0; i++) {
        struct trace_moment gap = {
            .time_ns = gaps[i].time_ns, .size = gaps[i].lost, .kind = TRACE_GAP};
        if (gap.time_ns >= first && gap.time_ns <= last)
            r = row_add(e, &gap, SIZE_MAX);
    }
    if (e->n_rows)
        qsort(e->rows, e->n_rows, sizeof(*e->rows), by_time);
    return r;
}

/* ---- which allocations ---- */

static int blocks_at(struct trace_source *source, uint64_t address, struct events *e)
{
    size_t n = trace_history_at(source->history, address, NULL, 0);
    if (n == 0) {
        struct trace_block block;
        if (trace_history_find(source->history, address, &block) < 0)
            return 0;
        address = block.address;
        n = trace_history_at(source->history, address, NULL, 0);
    }
    e->blocks = calloc(n + 1, sizeof(*e->blocks));
    if (!e->blocks)
        return -ENOMEM;
    size_t got = trace_history_at(source->history, address, e->blocks, n);
    e->n_blocks = got < n ? got : n;
    for (size_t i = 0; i < e->n_blocks / 2; i++) { /* the first one first */
        struct trace_block last = e->blocks[e->n_blocks - 1 - i];
        e->blocks[e->n_blocks - 1 - i] = e->blocks[i];
        e->blocks[i] = last;
    }
    return 0;
}

static int blocks_all(struct trace_source *source, const char *site, struct events *e)
{
    struct trace_filter filter = {.device = -1};
    struct trace_block batch[BATCH];
    char label[TRACE_LABEL_MAX];
    uint64_t cursor = 0;
    size_t n, cap = 0;
    while ((n = trace_history_blocks(source->history, &filter, &cursor, batch, BATCH)) > 0)
        for (size_t i = 0; i < n; i++) {
            bool system = batch[i].class == TRACE_CLASS_SYSTEM;
            if (site ? !strstr(trace_names_label(source->names, batch[i].site, label), site)
                     : system)
                continue;
            if (e->n_blocks == BLOCKS_MAX)
                return 0;
            if (e->n_blocks == cap) {
                cap = cap ? cap * 2 : 256;
                struct trace_block *more = reallocarray(e->blocks, cap, sizeof(*more));
                if (!more)
                    return -ENOMEM;
                e->blocks = more;
            }
            e->blocks[e->n_blocks++] = batch[i];
        }
    return 0;
}

/* ---- rows ---- */

static void event_words(const struct trace_moment *m, char *text, size_t size)
{
    static const char *const kinds[] = {
        [TRACE_ALLOC] = "allocated",
        [TRACE_FREE] = "freed",
        [TRACE_RESTORE] = "free failed",
        [TRACE_FAILED] = "failed",
        [TRACE_SET] = "set",
        [TRACE_PREFETCH] = "prefetched",
        [TRACE_RESET] = "context destroyed",
        [TRACE_EXIT] = "process ended",
        [TRACE_FOUND] = "found live",
    };
    static const char *const ways[] = {"copied", "copied to device", "copied from device",
                                       "copied on device", "copied on host"};
    char count[UNITS_TEXT_MAX];
    if (m->kind == TRACE_COPY)
        snprintf(text, size, "%s%s%s",
                 m->direction < TRACE_DIRECTIONS ? ways[m->direction] : ways[0],
                 m->flags & TRACE_FLAG_PAGEABLE ? ", pageable" : "",
                 m->flags & TRACE_FLAG_ASYNC ? ", async" : "");
    else if (m->kind == TRACE_GAP)
        snprintf(text, size, "gap: %s events lost", units_format_count(count, m->size));
    else if (m->kind == TRACE_SYSTEM) {
        struct buffer words = BUFFER_INIT(256);
        uint64_t system[TRACE_SYSTEM_KINDS] = {0};
        if (m->detail < TRACE_SYSTEM_KINDS)
            system[m->detail] = m->size;
        trace_system_words(system, &words);
        snprintf(text, size, "%s", words.len ? buffer_string(&words) : "system");
        buffer_release(&words);
    } else
        snprintf(text, size, "%s",
                 m->kind < sizeof(kinds) / sizeof(kinds[0]) && kinds[m->kind] ? kinds[m->kind]
                                                                              : "unknown");
}

static void row_show(struct trace_source *source, const struct events *e, const struct row *row,
                     struct table *t)
{
    const struct trace_moment *m = &row->moment;
    const struct trace_block *b = row->block == SIZE_MAX ? NULL : &e->blocks[row->block];
    char text[TRACE_LABEL_MAX];
    bool counted = m->kind == TRACE_SYSTEM || m->kind == TRACE_GAP;
    table_row(t);
    uint64_t start = source->identity.start_ns;
    table_set_number(t, EVENT_AT, m->time_ns > start ? m->time_ns - start : 0);
    table_set_number(t, EVENT_TIME, trace_real_ns(source, m->time_ns));
    event_words(m, text, sizeof(text));
    table_set_text(t, EVENT_EVENT, text);
    if (m->kind == TRACE_GAP)
        table_set_style(t, EVENT_EVENT, STYLE_WARN);
    if (counted)
        table_set_number(t, EVENT_COUNT, m->size);
    else if (m->size)
        table_set_number(t, EVENT_SIZE, m->size);
    if (!b)
        return;
    snprintf(text, sizeof(text), "0x%" PRIx64, b->address);
    table_set_text(t, EVENT_ADDRESS, text);
    if (m->offset)
        table_set_number(t, EVENT_OFFSET, m->offset);
    if (m->peer) {
        snprintf(text, sizeof(text), "0x%" PRIx64, m->peer);
        table_set_text(t, EVENT_PEER, text);
    }
    if (m->site)
        table_set_text(t, EVENT_SITE, trace_names_label(source->names, m->site, text));
    bool host = b->class == TRACE_CLASS_IMPLICIT || b->class == TRACE_CLASS_SYSTEM;
    table_set_text(t, EVENT_SPACE, host ? "host" : trace_space_name(b->space));
    if (m->tid)
        table_set_number(t, EVENT_TID, (uint64_t)m->tid);
    if (m->call)
        table_set_number(t, EVENT_CALL, m->call);
    if (m->result)
        table_set_number(t, EVENT_RESULT, (uint64_t)(uint32_t)m->result);
    table_set_number(t, EVENT_ALLOCATION, row->block + 1);
}

static void history_extra(void *context, struct json *json)
{
    const struct events *e = context;
    json_field_u64(json, "allocations", e->n_blocks);
    json_field_u64(json, "events_in_sums_only", e->unkept);
}

static int history_show(struct trace_source *source, struct events *e, bool address)
{
    const struct trace_values *v = source->values;
    MEMOIR_CLEANUP(table_release)
    struct table table;
    char count[UNITS_TEXT_MAX];
    table_init(&table, columns);
    int r = events_gather(source, e);
    if (r < 0)
        return r == -E2BIG ? command_fail("too many events: name an ADDRESS or --site") : r;
    size_t limit = address && v->limit == trace_defaults.limit ? e->n_rows : v->limit;
    for (size_t i = e->n_rows > limit ? e->n_rows - limit : 0; i < e->n_rows; i++)
        row_show(source, e, &e->rows[i], &table);
    struct trace_print print = {.schema = "memoir.trace.history/3",
                                .rows = "events",
                                .empty = "Nothing happened yet.",
                                .extra = history_extra,
                                .context = e};
    r = trace_print_table(source, &table, &print);
    if (r == COMMAND_OK && e->unkept && !v->json && !v->csv)
        fprintf(stderr,
                "%s earlier events of these allocations are in sums only (see memoir trace hot).\n",
                units_format_count(count, e->unkept));
    return r;
}

static int history_run(const void *values, const struct operands *operands)
{
    const struct trace_values *v = values;
    MEMOIR_CLEANUP(trace_source_release)
    struct trace_source source = {0};
    struct events events = {0};
    uint64_t address = 0;
    bool by_address = operands->n == 2;
    if (by_address) {
        char *end;
        errno = 0;
        address = strtoull(operands->words[1], &end, 0);
        if (errno || *end || end == operands->words[1] || operands->words[1][0] == '-')
            return command_misuse(&cmd_trace_history,
                                  "invalid address '%s': expected 0x7f00... or a number",
                                  operands->words[1]);
    }
    if (by_address && v->site)
        return command_misuse(&cmd_trace_history, "ADDRESS and --site exclude each other");
    int r = trace_source_operand(&source, &cmd_trace_history, v, operands);
    if (r != COMMAND_OK)
        return r;
    r = by_address ? blocks_at(&source, address, &events) : blocks_all(&source, v->site, &events);
    if (r == 0 && events.n_blocks == 0 && (by_address || v->site)) {
        command_fail(by_address ? "no allocation at %s"
                                : "no allocation of a line that contains '%s'",
                     by_address ? operands->words[1] : v->site);
        r = COMMAND_NOTHING;
    } else if (r == 0) {
        r = history_show(&source, &events, by_address);
    }
    free(events.blocks);
    free(events.rows);
    return r;
}

static const struct command_example examples[] = {
    {"sudo memoir trace history 4242 0x7f2c40000000",
     "all that happened to the allocations at this address"},
    {"memoir trace history run.trace --site train.py:41 -n 100",
     "the last 100 events of what this line allocated"},
    {0},
};

const struct command cmd_trace_history = {
    .name = "trace history",
    .usage = "trace history [OPTION...] PID|FILE [ADDRESS]",
    .help = "what happened to an allocation, in order of time",
    .description =
        "Shows the events of an allocation: when and by which line it was allocated, copied, set and freed, and what the operating system did to it. "
        "An address that was used again has several histories, which follow each other. Where events were lost, a row says how many. Without an "
        "ADDRESS or --site, the last events of all allocations.\n\n"
        "Of each allocation the last events are kept; sums of all of them are in memoir trace hot.",
    .options = options,
    .examples = examples,
    .fields = fields,
    .operands_max = 2,
    .takes_processes = true,
    .takes_files = true,
    .values_size = sizeof(trace_defaults),
    .defaults = &trace_defaults,
    .run = history_run,
};
