/* Rows of the table `host` for memoir top. See top_rows.h. */
#include "cli/top_rows.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ledger/host.h"
#include "query/query.h"

void top_rows_release(struct top_rows *rows)
{
    for (size_t i = 0; i < rows->n_traces; i++)
        free(rows->traces[i]);
    free(rows->traces);
    free(rows->rows);
    free(rows->order);
    *rows = (struct top_rows){0};
}

/* ---- the question ---- */

/* Columns of the table `host`. Texts, other facts, then figures in the order of their enums. */
enum column {
    PID,
    PARENT,
    START,
    KERNEL,
    STATE,
    UID,
    BOOK,
    USER,
    PROGRAM,
    COMMAND,
    EXE,
    TRACKED,
    JOB,
    CONTAINER,
    POD,
    CGROUP,
    FACTS,
    FIGURES = FACTS + TOP_FACTS,
    COLUMNS = FIGURES + TOP_FIGURES,
};

static const char show[] =
    "pid,parent,start,kernel_thread,state,uid,book_size,user,program,command,exe,tracked,job,"
    "container,pod,cgroup,"
    "oom_score,rank,headroom,cgroup_limit,age,pss_age,details_age,"
    "rss,growth,growth_1m,growth_10m,pss,uss,dirty,swap,anon,file,shmem,shared,vms,peak_rss,heap,"
    "pinned,device,threads,major_faults";

int top_rows_query(struct query **ret_query)
{
    struct query_error error;
    int r = query_new(
        &(struct query_spec){.table = "host", .where = "kernel_thread!=none", .show = show},
        ret_query, &error);
    assert(r < 0 ||
           (query_outputs(*ret_query) == COLUMNS && query_table_of(*ret_query)->lasting_texts));
    return r;
}

/* ---- values ---- */

static const char *text_of(const struct query_value *value)
{
    return value->state & QUERY_KNOWN ? value->text : NULL;
}

static int64_t number_of(const struct query_value *value)
{
    return value->number < INT64_MAX ? (int64_t)value->number : INT64_MAX;
}

static char letter_of(const char *state)
{
    static const struct {
        const char *word;
        char letter;
    } letters[] = {{"sleeping", 'S'}, {"idle", 'I'},   {"running", 'R'}, {"waiting", 'D'},
                   {"stopped", 'T'},  {"zombie", 'Z'}, {"traced", 't'},  {"dead", 'X'}};
    for (size_t i = 0; state && i < sizeof(letters) / sizeof(letters[0]); i++)
        if (strcmp(letters[i].word, state) == 0)
            return letters[i].letter;
    return '?';
}

static void set_figures(struct top_figures *f, const struct query_value *values)
{
    for (int i = 0; i < TOP_FIGURES; i++) {
        const struct query_value *v = &values[i];
        uint32_t bit = 1u << i;
        bool rate = i >= TOP_RATE_10S && i <= TOP_RATE_10MIN;
        if (v->marks & QUERY_ESTIMATE)
            f->estimate |= bit;
        /* Of what books say, a part may be unknown. */
        if (v->marks & QUERY_AT_LEAST ||
            (v->state & QUERY_UNKNOWN && i >= TOP_HEAP && i <= TOP_DEVICE))
            f->partial |= bit;
        if (!(v->state & QUERY_KNOWN))
            continue;
        f->known |= bit;
        f->value[i] = rate ? (int64_t)v->number / QUERY_RATE_SCALE : number_of(v);
    }
}

/* ---- what a process was like before ---- */

static struct top_trace *trace_new(const struct top_row *row, uint64_t look)
{
    struct top_trace *trace = malloc(sizeof(*trace));
    if (!trace)
        return NULL;
    *trace = (struct top_trace){.pid = row->pid, .start_ticks = row->start_ticks, .first = look};
    memset(trace->kib, 0xff, sizeof(trace->kib));
    return trace;
}

static void trace_put(struct top_trace *trace, const struct top_row *row, uint64_t look)
{
    uint64_t kib = (uint64_t)row->own.value[TOP_RSS] / 1024;
    bool known = row->own.known >> TOP_RSS & 1;
    trace->kib[look % TOP_TREND] = !known             ? UINT32_MAX
                                   : kib < UINT32_MAX ? (uint32_t)kib
                                                      : UINT32_MAX - 1;
    trace->last = look;
}

/* Both lists are by pid: those of processes that are gone are freed on the way. */
static int traces_renew(struct top_rows *rows)
{
    struct top_trace **traces = calloc(rows->n + 1, sizeof(struct top_trace *));
    if (!traces)
        return -ENOMEM;
    size_t at = 0, n = 0;
    for (size_t i = 0; i < rows->n; i++) {
        struct top_row *row = &rows->rows[i];
        struct top_trace *trace = NULL;
        for (; at < rows->n_traces && rows->traces[at]->pid < row->pid; at++)
            free(rows->traces[at]);
        if (at < rows->n_traces && rows->traces[at]->pid == row->pid) {
            trace = rows->traces[at++];
            if (trace->start_ticks != row->start_ticks) {
                free(trace);
                trace = NULL;
            }
        }
        if (!trace && row->own.known >> TOP_RSS & 1)
            trace = trace_new(row, rows->looks);
        row->trace = trace;
        if (!trace)
            continue;
        trace_put(trace, row, rows->looks);
        traces[n++] = trace;
    }
    for (; at < rows->n_traces; at++)
        free(rows->traces[at]);
    free(rows->traces);
    rows->traces = traces;
    rows->n_traces = n;
    return 0;
}

/* ---- rows ---- */

static int reserve(struct top_rows *rows, size_t n)
{
    if (n <= rows->room)
        return 0;
    size_t room = n + n / 4 + 16;
    struct top_row *grown = reallocarray(rows->rows, room, sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    rows->rows = grown;
    size_t *order = reallocarray(rows->order, room, sizeof(*order));
    if (!order)
        return -ENOMEM;
    rows->order = order;
    rows->room = room;
    return 0;
}

struct taking {
    struct top_rows *rows;
    pid_t self;
};

static void fill(struct top_row *row, const struct query_value *v, pid_t self)
{
    bool has_parent = v[PARENT].state & QUERY_KNOWN;
    *row = (struct top_row){
        .pid = (pid_t)v[PID].number,
        .parent = has_parent ? (pid_t)v[PARENT].number : 0,
        .start_ns = v[START].number,
        .kernel = v[KERNEL].number,
        .state = letter_of(text_of(&v[STATE])),
        .has_uid = v[UID].state & QUERY_KNOWN,
        .has_book = v[BOOK].state & QUERY_KNOWN,
        .uid = (uint32_t)v[UID].number,
        .user = text_of(&v[USER]),
        .name = text_of(&v[PROGRAM]),
        .command = text_of(&v[COMMAND]),
        .exe = text_of(&v[EXE]),
        .tracked = text_of(&v[TRACKED]),
        .job = text_of(&v[JOB]),
        .container = text_of(&v[CONTAINER]),
        .pod = text_of(&v[POD]),
        .cgroup = text_of(&v[CGROUP]),
    };
    row->self = row->pid == self || (has_parent && row->parent == self);
    for (int i = 0; i < TOP_FACTS; i++) {
        row->facts[i] = number_of(&v[FACTS + i]);
        row->facts_known |= (v[FACTS + i].state & QUERY_KNOWN ? 1u : 0u) << i;
        row->facts_unknown |= (v[FACTS + i].state & QUERY_UNKNOWN ? 1u : 0u) << i;
    }
    if (!row->kernel)
        set_figures(&row->own, &v[FIGURES]);
}

static int take_row(const struct query_row *host, const struct query_value *values, void *context)
{
    const struct taking *taking = context;
    struct top_rows *rows = taking->rows;
    int r = reserve(rows, rows->n + 1);
    if (r < 0)
        return r;
    struct top_row *row = &rows->rows[rows->n++];
    fill(row, values, taking->self);
    row->start_ticks = host->host->start_ticks;
    rows->user_processes += !row->kernel;
    rows->tracked += row->tracked && strcmp(row->tracked, "yes") == 0;
    return 0;
}

int top_rows_take(struct top_rows *rows, const struct query *query, const struct query_world *world)
{
    struct taking taking = {rows, getpid()};
    rows->looks++;
    rows->n = rows->shown = 0;
    rows->user_processes = rows->tracked = 0;
    int r = query_each(query, world, take_row, &taking);
    return r < 0 ? r : traces_renew(rows);
}

size_t top_rows_index(const struct top_rows *rows, pid_t pid)
{
    size_t low = 0, high = rows->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (rows->rows[middle].pid < pid)
            low = middle + 1;
        else
            high = middle;
    }
    return low < rows->n && rows->rows[low].pid == pid ? low : SIZE_MAX;
}

size_t top_rows_find(const struct top_rows *rows, pid_t pid)
{
    for (size_t i = 0; i < rows->shown; i++)
        if (rows->rows[rows->order[i]].pid == pid)
            return i;
    return SIZE_MAX;
}
