/* The rows of `memoir ps`, from the ledger. See ps.h. */
#include "base/sum.h"
#include "cli/ps.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "book/control.h"
#include "ledger/ledger.h"

enum {
    PS_PID,
    PS_USER,
    PS_PROGRAM,
    PS_AGE,
    PS_DEVICE,
    PS_PEAK,
    PS_HEAP,
    PS_PINNED,
    PS_OTHER,
    PS_BLOCKS,
    PS_RSS,
    PS_STATE,
    PS_NOTES,
    PS_LOST,
    PS_UID,
    PS_BOOK_PID,
    PS_STARTED,
    PS_THREADS,
    PS_BOOK_BYTES,
    PS_COMMAND,
    PS_PARTIAL,
    PS_SAMPLED,
    PS_WATCHERS,
};

const struct column ps_process_columns[] = {
    [PS_PID] = {"pid", "PID", "process id as seen from here", COLUMN_NUMBER},
    [PS_USER] = {"user", "USER", "who owns the process; the number where there is no name",
                 COLUMN_TEXT, 0, 20},
    [PS_PROGRAM] = {"program", "PROGRAM", "name of the program, or of the script it runs",
                    COLUMN_TEXT, COLUMN_STRETCH},
    [PS_AGE] = {"age_seconds", "AGE", "since the process started", COLUMN_AGE, 0, 30},
    [PS_DEVICE] = {"device_bytes", "DEVICE", "live bytes in memory of devices, all spaces",
                   COLUMN_BYTES},
    [PS_PEAK] = {"device_peak_bytes", "PEAK",
                 "the most that DEVICE can have been: the sum of each space's own peak",
                 COLUMN_BYTES, 0, 40},
    [PS_HEAP] = {"heap_bytes", "HEAP", "live bytes from malloc and friends", COLUMN_BYTES, 0, 15},
    [PS_PINNED] = {"pinned_bytes", "PINNED", "live bytes of page-locked host memory", COLUMN_BYTES,
                   0, 25},
    [PS_OTHER] =
        {"other_host_bytes", "OTHER",
         "live bytes of other host memory: mapped, managed, shared, a device's system memory; not blocks in user chains, which lie in other "
         "memory",
         COLUMN_BYTES, COLUMN_HIDE_EMPTY, 60},
    [PS_BLOCKS] = {"blocks", "BLOCKS", "live blocks in all spaces", COLUMN_NUMBER, 0, 35},
    [PS_RSS] = {"rss_bytes", "RSS", "resident memory as the kernel counts it", COLUMN_BYTES, 0, 10},
    [PS_STATE] =
        {"state", "STATE",
         "running; stopped (lives, but its accounting ended early); closed or exited (gone, "
         "these are its last figures); replaced (by exec); unknown",
         COLUMN_TEXT, 0, 5},
    [PS_NOTES] =
        {"notes", "NOTES",
         "what else one should know: losses, accounts of a sort that this version does not know, "
         "another pid namespace",
         COLUMN_TEXT, COLUMN_HIDE_EMPTY, 4},
    [PS_LOST] = {"lost_reports", "LOST", "reports that were not fully accounted, all causes",
                 COLUMN_NUMBER, COLUMN_EXPORT_ONLY},
    [PS_UID] = {"uid", NULL, "owner as a number", COLUMN_NUMBER, COLUMN_EXPORT_ONLY},
    [PS_BOOK_PID] = {"book_pid", NULL, "process id in the process's own pid namespace",
                     COLUMN_NUMBER, COLUMN_EXPORT_ONLY},
    [PS_STARTED] = {"started", NULL, "when the process started", COLUMN_TIME, COLUMN_EXPORT_ONLY},
    [PS_THREADS] = {"threads", NULL, "threads of the process", COLUMN_NUMBER, COLUMN_EXPORT_ONLY},
    [PS_BOOK_BYTES] = {"book_bytes", NULL, "memory that its books take", COLUMN_BYTES,
                       COLUMN_EXPORT_ONLY},
    [PS_COMMAND] = {"command", NULL, "the command line", COLUMN_TEXT, COLUMN_EXPORT_ONLY},
    [PS_PARTIAL] =
        {"partial", NULL,
         "whether some figures begin at some moment of its life; on screen these end in +",
         COLUMN_YES, COLUMN_EXPORT_ONLY},
    [PS_SAMPLED] = {"sampled", NULL,
                    "whether some figures are estimates; on screen these begin with ~", COLUMN_YES,
                    COLUMN_EXPORT_ONLY},
    [PS_WATCHERS] = {"watchers", NULL, "the daemons that watch its books: root:PID, user:PID",
                     COLUMN_TEXT, COLUMN_EXPORT_ONLY},
    {0},
};

enum {
    SPACE_PID,
    SPACE_USER,
    SPACE_PROGRAM,
    SPACE_DEVICE,
    SPACE_NUMBER,
    SPACE_DEVICE_NAME,
    SPACE_UID,
    SPACE_NAME,
    SPACE_LIVE,
    SPACE_BLOCKS,
    SPACE_PEAK,
    SPACE_CAPACITY,
    SPACE_ALLOCATED,
    SPACE_FREED,
    SPACE_ALLOCATED_BLOCKS,
    SPACE_FREED_BLOCKS,
    SPACE_INHERITED,
    SPACE_INHERITED_BLOCKS,
    SPACE_PARTIAL,
    SPACE_SAMPLED,
    SPACE_MOVED_IN,
    SPACE_MOVED_OUT,
    SPACE_SOURCE,
    SPACE_BUS,
};
static_assert(SPACE_DEVICE == (int)PS_OWN_COLUMNS, "JSON nests what follows");

const struct column ps_space_columns[] = {
    [SPACE_PID] = {"pid", "PID", "process id", COLUMN_NUMBER},
    [SPACE_USER] = {"user", "USER", "who owns the process", COLUMN_TEXT, 0, 20},
    [SPACE_PROGRAM] = {"program", "PROGRAM", "name of the program", COLUMN_TEXT, COLUMN_STRETCH},
    [SPACE_DEVICE] = {"device_label", "DEVICE", "number and name of the device, or host",
                      COLUMN_TEXT, COLUMN_SCREEN_ONLY},
    [SPACE_NUMBER] = COLUMN_DEVICE,
    [SPACE_DEVICE_NAME] = COLUMN_DEVICE_NAME,
    [SPACE_UID] = COLUMN_DEVICE_UID,
    [SPACE_NAME] = {"space", "SPACE", "kind of memory", COLUMN_TEXT},
    [SPACE_LIVE] = {"live_bytes", "LIVE", "bytes allocated and not freed", COLUMN_BYTES},
    [SPACE_BLOCKS] = {"live_blocks", "BLOCKS", "blocks allocated and not freed", COLUMN_NUMBER, 0,
                      10},
    [SPACE_PEAK] = {"peak_bytes", "PEAK", "the most that was live at once", COLUMN_BYTES, 0, 15},
    [SPACE_CAPACITY] = {"capacity_bytes", "CAPACITY", "size of the space, as the process told",
                        COLUMN_BYTES, 0, 30},
    [SPACE_ALLOCATED] = {"allocated_bytes", "ALLOCATED", "bytes allocated since the start",
                         COLUMN_BYTES, 0, 40},
    [SPACE_FREED] = {"freed_bytes", "FREED", "bytes freed since the start", COLUMN_BYTES, 0, 50},
    [SPACE_ALLOCATED_BLOCKS] = {"allocated_blocks", NULL, "blocks allocated since the start",
                                COLUMN_NUMBER, COLUMN_EXPORT_ONLY},
    [SPACE_FREED_BLOCKS] = {"freed_blocks", NULL, "blocks freed since the start", COLUMN_NUMBER,
                            COLUMN_EXPORT_ONLY},
    [SPACE_INHERITED] = {"inherited_bytes", NULL,
                         "live in the parent when the process was forked, and not freed since; not "
                         "part of live_bytes",
                         COLUMN_BYTES, COLUMN_EXPORT_ONLY},
    [SPACE_INHERITED_BLOCKS] = {"inherited_blocks", NULL, "the same in blocks", COLUMN_NUMBER,
                                COLUMN_EXPORT_ONLY},
    [SPACE_PARTIAL] =
        {"partial", NULL,
         "whether the figures begin at some moment of its life; on screen they end in +",
         COLUMN_YES, COLUMN_EXPORT_ONLY},
    [SPACE_SAMPLED] = {"sampled", NULL,
                       "whether the figures are estimates; on screen they begin with ~", COLUMN_YES,
                       COLUMN_EXPORT_ONLY},
    [SPACE_MOVED_IN] = {"moved_in_bytes", NULL, "bytes of transfers into this space", COLUMN_BYTES,
                        COLUMN_EXPORT_ONLY},
    [SPACE_MOVED_OUT] = {"moved_out_bytes", NULL, "bytes of transfers out of this space",
                         COLUMN_BYTES, COLUMN_EXPORT_ONLY},
    [SPACE_SOURCE] = {"source", NULL, "who counted: client, malloc, track, ...", COLUMN_TEXT,
                      COLUMN_EXPORT_ONLY},
    [SPACE_BUS] = {"device_bus", NULL, "PCI address of the device", COLUMN_TEXT,
                   COLUMN_EXPORT_ONLY},
    {0},
};

static bool wanted(const struct ledger_process *p, const struct ps_filter *filter)
{
    if (filter->pid && !((p->valid & LEDGER_HAS_PID) && (uint64_t)p->pid == filter->pid))
        return false;
    if (filter->living && !ledger_process_holds(p))
        return false;
    return !filter->by_uid || p->uid == filter->uid;
}

static void set_user(struct table *t, size_t column, const struct ledger_process *p)
{
    char number[16];
    snprintf(number, sizeof(number), "%u", p->uid);
    table_set_text(t, column, p->valid & LEDGER_HAS_USER ? p->user : number);
}

/* What of a process belongs under one heading. Chains have none: their buffers are memory that counts elsewhere. */
enum group { GROUP_DEVICE, GROUP_HEAP, GROUP_PINNED, GROUP_OTHER, GROUPS, GROUP_NONE = GROUPS };

static enum group group_of(const struct ledger_account *a)
{
    if (a->device && a->space != MEMOIR_SPACE_SYSTEM)
        return GROUP_DEVICE;
    if (a->space == MEMOIR_SPACE_HEAP)
        return GROUP_HEAP;
    if (!ledger_space_adds(a->space))
        return GROUP_NONE;
    return a->space == MEMOIR_SPACE_PINNED ? GROUP_PINNED : GROUP_OTHER;
}

static unsigned marks_of(const struct ledger_account *a)
{
    return (a->sampled ? TABLE_MARK_ESTIMATE : 0u) | (a->partial ? TABLE_MARK_AT_LEAST : 0u);
}

static void set_sums(struct table *t, const struct ledger_process *p)
{
    static const size_t column[GROUPS] = {
        [GROUP_DEVICE] = PS_DEVICE,
        [GROUP_HEAP] = PS_HEAP,
        [GROUP_PINNED] = PS_PINNED,
        [GROUP_OTHER] = PS_OTHER,
    };
    bool present[GROUPS + 1] = {false}, broken[GROUPS + 1] = {false};
    uint64_t bytes[GROUPS + 1] = {0}, peak = 0, blocks = 0;
    unsigned marks[GROUPS + 1] = {0}, any = 0;
    bool all = true;
    for (size_t i = 0; i < p->n_accounts; i++) {
        const struct ledger_account *a = &p->accounts[i];
        enum group g = group_of(a);
        present[g] = true;
        marks[g] |= marks_of(a);
        any |= marks_of(a);
        if (!a->valid) {
            broken[g] = true;
            all = false;
            continue;
        }
        sum_add(&bytes[g], a->totals.live_bytes);
        sum_add(&blocks, a->totals.live_blocks);
        if (g == GROUP_DEVICE)
            sum_add(&peak, a->totals.peak_bytes);
    }
    for (enum group g = 0; g < GROUPS; g++) {
        if (present[g] && !broken[g])
            table_set_number(t, column[g], bytes[g]);
        table_set_marks(t, column[g], marks[g]);
    }
    table_set_marks(t, PS_PEAK, marks[GROUP_DEVICE]);
    table_set_marks(t, PS_BLOCKS, any);
    table_set_number(t, PS_PARTIAL, (any & TABLE_MARK_AT_LEAST) != 0);
    table_set_number(t, PS_SAMPLED, (any & TABLE_MARK_ESTIMATE) != 0);
    if (present[GROUP_DEVICE] && !broken[GROUP_DEVICE])
        table_set_number(t, PS_PEAK, peak);
    if (all)
        table_set_number(t, PS_BLOCKS, blocks);
}

static uint64_t lost_reports(const struct ledger_process *p)
{
    uint64_t lost = 0;
    for (size_t i = 0; i < BOOK_LOSSES_MAX; i++)
        lost += p->losses[i];
    return lost;
}

static void set_state(struct table *t, const struct ledger_process *p)
{
    table_set_text(t, PS_STATE, ledger_state_name(p->state));
    if (ledger_process_stopped(p))
        table_set_style(t, PS_STATE, STYLE_WARN);
}

static void set_notes(struct table *t, const struct ledger_process *p)
{
    static const char *const reasons[] = {
        [BOOK_STOP_NONE] = "stopped, no reason told",
        [BOOK_STOP_ASKED] = "stopped because it was asked to",
        [BOOK_STOP_FULL] = "stopped: no room for its book",
    };
    uint64_t all = lost_reports(p), asked = p->losses[BOOK_LOSS_SUSPENDED], lost = all - asked;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(512);
    if (ledger_process_stopped(p) && p->stop_reason < sizeof(reasons) / sizeof(reasons[0]))
        buffer_printf(&text, "; %s", reasons[p->stop_reason]);
    if (lost)
        buffer_printf(&text, "; %llu report%s lost", (unsigned long long)lost,
                      lost == 1 ? "" : "s");
    if (asked) /* somebody wanted it so */
        buffer_printf(&text, "; %llu uncounted while suspended", (unsigned long long)asked);
    if (p->left_out)
        buffer_printf(&text, "; %zu account%s left out", p->left_out, p->left_out == 1 ? "" : "s");
    if (p->foreign_ns)
        buffer_printf(&text, "; pid %d in its namespace", (int)p->book_pid);
    if (*p->host)
        buffer_printf(&text, "; on %s", p->host);
    table_set_text(t, PS_NOTES, text.len ? buffer_string(&text) + 2 : "");
    table_set_number(t, PS_LOST, all);
    if (lost || p->left_out)
        table_set_style(t, PS_NOTES, STYLE_WARN);
}

/* The daemons that watch any of its books, each once. */
static void set_watchers(struct table *t, const struct ledger *ledger,
                         const struct ledger_process *p)
{
    pid_t pids[BOOK_WATCHERS] = {0};
    for (size_t i = 0; i < p->n_books; i++) {
        struct book_watcher watchers[BOOK_WATCHERS];
        if (ledger_book_watchers(ledger, p->books[i], watchers) < 0)
            continue;
        for (size_t k = 0; k < BOOK_WATCHERS; k++)
            if (watchers[k].flags & BOOK_CONTROL_WATCHED)
                pids[k] = watchers[k].pid;
    }
    char text[64] = "";
    if (pids[BOOK_WATCHER_ROOT])
        snprintf(text, sizeof(text), "root:%d", (int)pids[BOOK_WATCHER_ROOT]);
    if (pids[BOOK_WATCHER_USER])
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%suser:%d", *text ? ", " : "",
                 (int)pids[BOOK_WATCHER_USER]);
    table_set_text(t, PS_WATCHERS, text);
}

static void add_process(struct ps_view *view, const struct ledger *ledger,
                        const struct ledger_process *p, uint64_t now_ns)
{
    struct table *t = &view->processes;
    table_row(t);
    if (p->valid & LEDGER_HAS_PID)
        table_set_number(t, PS_PID, (uint64_t)p->pid);
    set_user(t, PS_USER, p);
    table_set_text(t, PS_PROGRAM, p->name);
    uint64_t since = p->valid & LEDGER_HAS_START ? p->start_realtime_ns : p->book_realtime_ns;
    table_set_number(t, PS_AGE, now_ns > since ? now_ns - since : 0);
    set_sums(t, p);
    if (p->valid & LEDGER_HAS_RSS)
        table_set_number(t, PS_RSS, p->rss_bytes);
    set_state(t, p);
    set_notes(t, p);
    table_set_number(t, PS_UID, p->uid);
    table_set_number(t, PS_BOOK_PID, (uint64_t)p->book_pid);
    if (p->valid & LEDGER_HAS_START)
        table_set_number(t, PS_STARTED, p->start_realtime_ns);
    if (p->valid & LEDGER_HAS_THREADS)
        table_set_number(t, PS_THREADS, p->threads);
    table_set_number(t, PS_BOOK_BYTES, p->book_bytes);
    table_set_text(t, PS_COMMAND, p->command);
    set_watchers(t, ledger, p);
    for (size_t c = 0; !ledger_process_holds(p) && c < t->n_columns; c++)
        table_set_style(t, c, STYLE_DIM);
}

static void set_device(struct table *t, const struct ledger_device *device)
{
    if (!device) {
        table_set_text(t, SPACE_DEVICE, "host");
        return;
    }
    char text[96];
    snprintf(text, sizeof(text), "%d %s", device->ordinal, device->name);
    table_set_text(t, SPACE_DEVICE, text);
    table_set_device(t, SPACE_NUMBER, device->ordinal, device->name, device->uid);
    if (*device->bus)
        table_set_text(t, SPACE_BUS, device->bus);
}

static void set_totals(struct table *t, const struct ledger_account *a)
{
    if (a->capacity)
        table_set_number(t, SPACE_CAPACITY, a->capacity);
    if (!a->valid)
        return;
    table_set_number(t, SPACE_LIVE, a->totals.live_bytes);
    table_set_number(t, SPACE_BLOCKS, a->totals.live_blocks);
    table_set_number(t, SPACE_PEAK, a->totals.peak_bytes);
    table_set_number(t, SPACE_ALLOCATED, a->totals.alloc_bytes);
    table_set_number(t, SPACE_FREED, a->totals.freed_bytes);
    table_set_number(t, SPACE_ALLOCATED_BLOCKS, a->totals.alloc_blocks);
    table_set_number(t, SPACE_FREED_BLOCKS, a->totals.freed_blocks);
    table_set_number(t, SPACE_INHERITED, a->inherited_bytes);
    table_set_number(t, SPACE_INHERITED_BLOCKS, a->inherited_blocks);
    table_set_number(t, SPACE_PARTIAL, a->partial);
    table_set_number(t, SPACE_SAMPLED, a->sampled);
    for (size_t c = SPACE_LIVE; c <= SPACE_FREED; c++)
        if (c != SPACE_CAPACITY)
            table_set_marks(t, c, marks_of(a));
    table_set_number(t, SPACE_MOVED_IN, a->totals.moved_in_bytes);
    table_set_number(t, SPACE_MOVED_OUT, a->totals.moved_out_bytes);
}

static void add_spaces(struct ps_view *view, const struct ledger_process *p)
{
    struct table *t = &view->details;
    for (size_t i = 0; i < p->n_accounts; i++) {
        const struct ledger_account *a = &p->accounts[i];
        ps_view_detail(view);
        if (p->valid & LEDGER_HAS_PID)
            table_set_number(t, SPACE_PID, (uint64_t)p->pid);
        set_user(t, SPACE_USER, p);
        table_set_text(t, SPACE_PROGRAM, p->name);
        for (size_t c = SPACE_PID; i > 0 && c < SPACE_DEVICE; c++)
            table_set_style(t, c, STYLE_DIM); /* the eye finds where the next process starts */
        set_device(t, a->device);
        table_set_text(t, SPACE_NAME, a->name[0] ? a->name : ledger_space_name(a->space));
        table_set_text(t, SPACE_SOURCE, ledger_source_name(a->source));
        set_totals(t, a);
    }
}

static uint64_t device_bytes(const struct ledger_process *p)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < p->n_accounts; i++)
        if (p->accounts[i].valid && group_of(&p->accounts[i]) == GROUP_DEVICE)
            sum_add(&bytes, p->accounts[i].totals.live_bytes);
    return bytes;
}

/* Those that hold memory before those that held it, large before small, old before young. */
static int compare(const void *a, const void *b)
{
    const struct ledger_process *p = *(struct ledger_process *const *)a;
    const struct ledger_process *q = *(struct ledger_process *const *)b;
    if (ledger_process_holds(p) != ledger_process_holds(q))
        return ledger_process_holds(p) ? -1 : 1;
    uint64_t x = device_bytes(p), y = device_bytes(q);
    if (x != y)
        return x < y ? 1 : -1;
    return (p->book_realtime_ns > q->book_realtime_ns) -
           (p->book_realtime_ns < q->book_realtime_ns);
}

int ps_view_live(const struct ledger *ledger, const struct ps_filter *filter,
                 struct ps_view *ret_view)
{
    MEMOIR_CLEANUP(ps_view_release)
    struct ps_view view = {.details_name = "spaces"};
    table_init(&view.processes, ps_process_columns);
    table_init(&view.details, ps_space_columns);
    size_t n;
    struct ledger_process *const *unsorted = ledger_processes(ledger, &n);
    MEMOIR_CLEANUP(freep)
    struct ledger_process **processes = calloc(n + 1, sizeof(*processes));
    if (!processes)
        return -ENOMEM;
    if (n)
        memcpy(processes, unsorted, n * sizeof(*processes));
    qsort(processes, n, sizeof(*processes), compare);
    uint64_t now_ns = clock_real_ns();
    for (size_t i = 0; i < n; i++) {
        if (!wanted(processes[i], filter))
            continue;
        add_process(&view, ledger, processes[i], now_ns);
        add_spaces(&view, processes[i]);
        if (view.processes.error || view.details.error)
            return -ENOMEM;
    }
    *ret_view = view;
    view = (struct ps_view){0};
    return 0;
}
