/* Rows from the process table and the books. See top_rows.h. */
#include "cli/top_rows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ledger/host.h"
#include "ledger/host_books.h"
#include "ledger/ledger.h"

void top_rows_release(struct top_rows *rows)
{
    for (size_t i = 0; i < rows->n_traces; i++)
        free(rows->traces[i]);
    free(rows->traces);
    free(rows->rows);
    free(rows->order);
    *rows = (struct top_rows){0};
}

/* ---- figures ---- */

static void set(struct top_figures *f, enum top_figure figure, uint64_t value)
{
    f->known |= 1u << figure;
    f->value[figure] = value < INT64_MAX ? (int64_t)value : INT64_MAX;
}

static void set_rates(struct top_figures *f, const struct host *host, const struct host_process *p)
{
    static const enum top_figure figure[HOST_WINDOWS] = {TOP_RATE_10S, TOP_RATE_1MIN,
                                                         TOP_RATE_10MIN};
    for (int w = 0; w < HOST_WINDOWS; w++) {
        double rate;
        if (!host_rate(host, p, (enum host_window)w, &rate))
            continue;
        f->known |= 1u << figure[w];
        f->value[figure[w]] = (int64_t)rate;
    }
}

static void set_memory(struct top_figures *f, const struct host_process *p)
{
    if (p->valid & HOST_HAS_MEMORY) {
        set(f, TOP_RSS, p->rss_bytes);
        set(f, TOP_VMS, p->vms_bytes);
        set(f, TOP_SHARED, p->shared_bytes);
    }
    if (p->valid & HOST_HAS_STAT) {
        set(f, TOP_THREADS, p->threads);
        set(f, TOP_MAJOR_FAULTS, p->major_faults);
    }
    if (p->valid & HOST_HAS_PARTS) {
        set(f, TOP_ANON, p->anon_bytes);
        set(f, TOP_FILE, p->file_bytes);
        set(f, TOP_SHMEM, p->shmem_bytes);
        set(f, TOP_SWAP, p->swap_bytes);
    }
    if (p->valid & HOST_HAS_PEAK)
        set(f, TOP_PEAK, p->peak_bytes);
    if (p->valid & HOST_HAS_PSS) {
        set(f, TOP_PSS, p->pss_bytes);
        set(f, TOP_USS, p->uss_bytes);
        set(f, TOP_DIRTY, p->dirty_bytes);
    }
}

static int figure_of(const struct ledger_account *a)
{
    if (a->device && a->space != MEMOIR_SPACE_SYSTEM)
        return TOP_DEVICE;
    if (a->space == MEMOIR_SPACE_HEAP)
        return TOP_HEAP;
    return a->space == MEMOIR_SPACE_PINNED ? TOP_PINNED : -1;
}

static void set_books(struct top_figures *f, const struct ledger_process *books)
{
    for (size_t i = 0; i < books->n_accounts; i++) {
        const struct ledger_account *a = &books->accounts[i];
        int figure = figure_of(a);
        if (figure < 0)
            continue;
        uint32_t bit = 1u << figure;
        if (!a->valid || a->partial)
            f->partial |= bit;
        if (a->sampled)
            f->estimate |= bit;
        if (!a->valid)
            continue;
        uint64_t before = f->known & bit ? (uint64_t)f->value[figure] : 0;
        uint64_t sum;
        if (__builtin_add_overflow(before, a->totals.live_bytes, &sum))
            sum = UINT64_MAX;
        set(f, (enum top_figure)figure, sum);
    }
}

/* ---- what a process was like before ---- */

static struct top_trace *trace_new(struct top_rows *rows)
{
    if (rows->n_traces == rows->room_traces) {
        size_t room = rows->room_traces ? rows->room_traces * 2 : 256;
        struct top_trace **traces = reallocarray(rows->traces, room, sizeof(struct top_trace *));
        if (!traces)
            return NULL;
        rows->traces = traces;
        rows->room_traces = room;
    }
    struct top_trace *trace = malloc(sizeof(*trace));
    if (!trace)
        return NULL;
    memset(trace->kib, 0xff, sizeof(trace->kib));
    trace->first = rows->looks;
    rows->traces[rows->n_traces++] = trace;
    return trace;
}

static const struct top_trace *trace_put(struct top_rows *rows, struct host_process *p)
{
    bool known = !p->kernel && p->valid & HOST_HAS_MEMORY;
    struct top_trace *trace = p->user_data;
    if (!trace && known)
        p->user_data = trace = trace_new(rows);
    if (!trace)
        return NULL;
    uint64_t kib = p->rss_bytes / 1024;
    trace->kib[rows->looks % TOP_TREND] = !known             ? UINT32_MAX
                                          : kib < UINT32_MAX ? (uint32_t)kib
                                                             : UINT32_MAX - 1;
    trace->last = rows->looks;
    return trace;
}

/* Rows of the table that are gone took their pointer with them. */
static void traces_sweep(struct top_rows *rows)
{
    size_t kept = 0;
    for (size_t i = 0; i < rows->n_traces; i++) {
        if (rows->traces[i]->last == rows->looks)
            rows->traces[kept++] = rows->traces[i];
        else
            free(rows->traces[i]);
    }
    rows->n_traces = kept;
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

static void fill(struct top_row *row, const struct host *host, const struct host_process *p,
                 pid_t self)
{
    *row = (struct top_row){
        .pid = p->pid,
        .parent = p->valid & HOST_HAS_STAT ? p->parent_pid : 0,
        .start_ticks = p->start_ticks,
        .kernel = p->kernel,
        .self = p->pid == self || (p->valid & HOST_HAS_STAT && p->parent_pid == self),
        .state = p->valid & HOST_HAS_STAT ? p->state : '?',
        .has_uid = p->valid & HOST_HAS_STATUS,
        .uid = p->uid,
        .user = p->valid & HOST_HAS_USER ? p->user : "",
        .name = p->name,
        .command = p->command ? p->command : "",
        .tracked = p->tracked,
        .pss_ns = p->valid & HOST_HAS_PSS ? p->pss_ns : 0,
        .process = p,
    };
    if (p->kernel)
        return;
    set_memory(&row->own, p);
    set_rates(&row->own, host, p);
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

static int join(struct top_rows *rows, const struct host *host, const struct ledger *ledger)
{
    const struct ledger_process **books;
    int r = host_books_join(host, ledger, &books);
    if (r < 0)
        return r;
    for (size_t i = 0; i < rows->n; i++) {
        rows->rows[i].books = books[i];
        if (books[i])
            set_books(&rows->rows[i].own, books[i]);
    }
    free(books);
    return 0;
}

int top_rows_take(struct top_rows *rows, struct host *host, const struct ledger *books)
{
    size_t n;
    struct host_process *const *processes = host_processes(host, &n);
    int r = reserve(rows, n);
    if (r < 0)
        return r;
    rows->looks++;
    rows->n = n;
    rows->shown = 0;
    pid_t self = getpid(); /* a system call */
    for (size_t i = 0; i < n; i++) {
        fill(&rows->rows[i], host, processes[i], self);
        rows->rows[i].trace = trace_put(rows, processes[i]);
    }
    traces_sweep(rows);
    r = join(rows, host, books);
    if (r < 0)
        return r;
    rows->user_processes = rows->tracked = 0;
    for (size_t i = 0; i < n; i++) {
        struct top_row *row = &rows->rows[i];
        row->tracked = host_tracked_of(row->process, row->books);
        rows->user_processes += !row->kernel;
        rows->tracked += row->tracked == HOST_TRACKED_YES;
    }
    return 0;
}

size_t top_rows_find(const struct top_rows *rows, pid_t pid)
{
    for (size_t i = 0; i < rows->shown; i++)
        if (rows->rows[rows->order[i]].pid == pid)
            return i;
    return SIZE_MAX;
}
