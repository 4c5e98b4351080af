/* The table of processes: one row each. */
#include <stdio.h>
#include <string.h>

#include <memoir/memoir.h>

#include "base/sum.h"
#include "ledger/driver.h"
#include "ledger/host.h"
#include "ledger/ledger.h"
#include "query/table_process.h"

/* ---- who ---- */

void process_pid(const struct query_world *world, const struct query_row *row,
                 const struct query_field *field, struct query_value *ret)
{
    if (row->process->valid & LEDGER_HAS_PID)
        query_set_number(ret, (uint64_t)row->process->pid);
    else
        ret->state = QUERY_UNKNOWN;
}

void process_program(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, struct query_value *ret)
{
    query_set_text(ret, row->process->name);
}

void process_user(const struct query_world *world, const struct query_row *row,
                  const struct query_field *field, struct query_value *ret)
{
    static _Thread_local char number[16];
    const struct ledger_process *p = row->process;
    const char *name = p->valid & LEDGER_HAS_USER ? p->user : NULL;
    if (!name && world->user_name)
        name = world->user_name(p->uid, world->context);
    if (!name)
        snprintf(number, sizeof(number), "%u", p->uid);
    query_set_text(ret, name ? name : number);
}

void process_uid(const struct query_world *world, const struct query_row *row,
                 const struct query_field *field, struct query_value *ret)
{
    query_set_number(ret, row->process->uid);
}

void process_node(const struct query_world *world, const struct query_row *row,
                  const struct query_field *field, struct query_value *ret)
{
    query_set_node(ret, world, row->process->host);
}

void process_state(const struct query_world *world, const struct query_row *row,
                   const struct query_field *field, struct query_value *ret)
{
    query_set_text(ret, ledger_state_name(row->process->state));
}

static void set_unless_empty(struct query_value *ret, const char *text)
{
    if (*text)
        query_set_text(ret, text);
    else
        ret->state = QUERY_UNKNOWN;
}

void process_command(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, struct query_value *ret)
{
    set_unless_empty(ret, row->process->command);
}

void process_exe(const struct query_world *world, const struct query_row *row,
                 const struct query_field *field, struct query_value *ret)
{
    set_unless_empty(ret, row->process->exe);
}

bool process_owner(const struct query_row *row, uint32_t *ret_uid)
{
    if (!row->process)
        return false;
    *ret_uid = row->process->uid;
    return true;
}

bool process_lives(const struct query_row *row)
{
    return ledger_process_holds(row->process);
}

/* ---- since when ---- */

static void get_start(const struct query_world *world, const struct query_row *row,
                      const struct query_field *field, struct query_value *ret)
{
    if (row->process->valid & LEDGER_HAS_START)
        query_set_number(ret, row->process->start_realtime_ns);
    else
        ret->state = QUERY_UNKNOWN;
}

static void get_age(const struct query_world *world, const struct query_row *row,
                    const struct query_field *field, struct query_value *ret)
{
    const struct ledger_process *p = row->process;
    uint64_t since = p->valid & LEDGER_HAS_START ? p->start_realtime_ns : p->book_realtime_ns;
    query_set_number(ret, world->now_real_ns > since ? world->now_real_ns - since : 0);
}

/* ---- figures of /proc ---- */

enum { FACT_RSS, FACT_VMS, FACT_SHARED };

static void get_fact(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, struct query_value *ret)
{
    const struct ledger_process *p = row->process;
    if (!(p->valid & LEDGER_HAS_RSS))
        ret->state = QUERY_UNKNOWN;
    else
        query_set_number(ret, field->column->arg == FACT_RSS   ? p->rss_bytes
                              : field->column->arg == FACT_VMS ? p->vms_bytes
                                                               : p->shared_bytes);
}

static void get_threads(const struct query_world *world, const struct query_row *row,
                        const struct query_field *field, struct query_value *ret)
{
    if (row->process->valid & LEDGER_HAS_THREADS)
        query_set_number(ret, row->process->threads);
    else
        ret->state = QUERY_UNKNOWN;
}

/* ---- figures of its accounts ---- */

uint8_t account_marks(const struct ledger_account *account)
{
    return (account->sampled ? QUERY_ESTIMATE : 0) | (account->partial ? QUERY_AT_LEAST : 0);
}

static uint64_t figure_of(const struct book_totals *totals, enum process_figure figure)
{
    switch (figure) {
    case PROCESS_LIVE_BLOCKS:
        return totals->live_blocks;
    case PROCESS_PEAK_BYTES:
        return totals->peak_bytes;
    case PROCESS_ALLOCATED:
        return totals->alloc_bytes;
    case PROCESS_FREED:
        return totals->freed_bytes;
    case PROCESS_LIVE_BYTES:
        break;
    }
    return totals->live_bytes;
}

static void add_figure(struct query_value *ret, const struct ledger_account *a,
                       enum process_figure figure)
{
    ret->marks |= account_marks(a);
    if (!a->valid) {
        ret->state |= QUERY_UNKNOWN;
        return;
    }
    if (__builtin_add_overflow(ret->number, figure_of(&a->totals, figure), &ret->number)) {
        ret->number = UINT64_MAX;
        ret->marks |= QUERY_AT_LEAST;
    }
    ret->state |= QUERY_KNOWN;
}

/* A device's own memory, where MEMOIR_SPACE_SYSTEM is the host's that belongs to it. */
static bool on_device(const struct ledger_account *a)
{
    return a->device && a->space != MEMOIR_SPACE_SYSTEM;
}

static bool wanted_device(const struct ledger_account *a, const struct query_field *field)
{
    if (!a->device || (field->ordinal >= 0 && a->device->ordinal != field->ordinal))
        return false;
    return field->space ? a->space == field->space : on_device(a);
}

void process_device(const struct query_world *world, const struct query_row *row,
                    const struct query_field *field, struct query_value *ret)
{
    for (size_t i = 0; i < row->process->n_accounts; i++)
        if (wanted_device(&row->process->accounts[i], field))
            add_figure(ret, &row->process->accounts[i], PROCESS_LIVE_BYTES);
}

void process_peak(const struct query_world *world, const struct query_row *row,
                  const struct query_field *field, struct query_value *ret)
{
    for (size_t i = 0; i < row->process->n_accounts; i++)
        if (on_device(&row->process->accounts[i]))
            add_figure(ret, &row->process->accounts[i], PROCESS_PEAK_BYTES);
}

/* Of the process table, or of a book. */
void process_driver(const struct query_world *world, const struct query_row *row,
                    const struct query_field *field, struct query_value *ret)
{
    bool known = row->host || row->process->valid & LEDGER_HAS_PID;
    if (!known || *row->process->host)
        return;
    struct ledger_driver_use use =
        ledger_driver_use(world->ledger, row->host ? row->host->pid : row->process->pid, NULL);
    if (use.known)
        query_set_number(ret, use.bytes);
    if (use.partly)
        ret->state |= QUERY_UNKNOWN;
    if (use.known && use.partly)
        ret->marks |= QUERY_AT_LEAST;
}

/* One space of the host, or with 0 all that add up. */
void process_space(const struct query_world *world, const struct query_row *row,
                   const struct query_field *field, struct query_value *ret)
{
    for (size_t i = 0; i < row->process->n_accounts; i++) {
        const struct ledger_account *a = &row->process->accounts[i];
        bool host = !on_device(a) && ledger_space_adds(a->space);
        if (field->space ? a->space == field->space : host)
            add_figure(ret, a, PROCESS_LIVE_BYTES);
    }
}

void process_total(const struct query_world *world, const struct query_row *row,
                   const struct query_field *field, struct query_value *ret)
{
    for (size_t i = 0; i < row->process->n_accounts; i++)
        add_figure(ret, &row->process->accounts[i], (enum process_figure)field->column->arg);
}

static void get_losses(const struct query_world *world, const struct query_row *row,
                       const struct query_field *field, struct query_value *ret)
{
    uint64_t lost = 0;
    for (size_t i = 0; i < BOOK_LOSSES_MAX; i++)
        sum_add(&lost, row->process->losses[i]);
    query_set_number(ret, lost);
}

static void get_book(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, struct query_value *ret)
{
    query_set_number(ret, row->process->book_bytes);
}

void process_holds(const struct query_world *world, const struct query_row *row,
                   const struct query_field *field, struct query_value *ret)
{
    query_set_number(ret, ledger_process_holds(row->process));
}

static void get_book_pid(const struct query_world *world, const struct query_row *row,
                         const struct query_field *field, struct query_value *ret)
{
    query_set_number(ret, (uint64_t)row->process->book_pid);
}

/* Host memory that has no column of its own in short lists. */
void process_other(const struct query_world *world, const struct query_row *row,
                   const struct query_field *field, struct query_value *ret)
{
    for (size_t i = 0; i < row->process->n_accounts; i++) {
        const struct ledger_account *a = &row->process->accounts[i];
        if (!on_device(a) && ledger_space_adds(a->space) && a->space != MEMOIR_SPACE_HEAP &&
            a->space != MEMOIR_SPACE_PINNED)
            add_figure(ret, a, PROCESS_LIVE_BYTES);
    }
}

/* ---- the table ---- */

static const struct query_column columns[] = {
    PROCESS_COLUMNS,
    {"start", "when it was started", QUERY_TIME, QUERY_MIN, .get = get_start},
    {"age", "how long it has been running", QUERY_AGE, .get = get_age},
    ACCOUNT_COLUMNS,
    {"rss", "resident memory", QUERY_BYTES, .arg = FACT_RSS, .get = get_fact},
    {"vms", "virtual memory", QUERY_BYTES, .arg = FACT_VMS, .get = get_fact},
    {"shared", "resident memory that files and other processes share", QUERY_BYTES,
     .arg = FACT_SHARED, .get = get_fact},
    {"threads", "number of threads", QUERY_NUMBER, .get = get_threads},
    {"losses", "reports that were not fully accounted", QUERY_NUMBER, .get = get_losses},
    {"book_size", "memory that its books take", QUERY_BYTES, .get = get_book},
    {"book_pid", "process id as the process itself sees it", QUERY_NUMBER, QUERY_SAME,
     .get = get_book_pid},
    {"other", "of host, what is neither heap nor pinned", QUERY_BYTES, .get = process_other},
    {"holds", "is it still there, so that its figures count", QUERY_YES, .get = process_holds},
    {"notes", "why the figures are not the whole truth, or where the process is", QUERY_TEXT,
     .get = process_notes},
    {"watchers", "the daemons that watch its books: root:PID, user:PID", QUERY_TEXT,
     .get = process_watchers},
    {0},
};

uint32_t space_find(const char *name, size_t len)
{
    for (uint32_t space = 1; space <= MEMOIR_SPACE_MAX; space++) {
        const char *known = ledger_space_name(space);
        if (strlen(known) == len && memcmp(known, name, len) == 0)
            return space;
    }
    return 0;
}

bool process_resolve(const struct query_column *columns_of, const char *name, size_t len,
                     struct query_field *ret_field)
{
    static const char prefix[] = "device.";
    size_t at = sizeof(prefix) - 1;
    if (len <= at || memcmp(name, prefix, at) != 0)
        return false;
    int32_t ordinal = 0;
    size_t first = at;
    for (; at < len && name[at] >= '0' && name[at] <= '9' && at - first < 6; at++)
        ordinal = ordinal * 10 + (name[at] - '0');
    if (at == first || (at < len && name[at] != '.'))
        return false;
    uint32_t space = at < len ? space_find(name + at + 1, len - at - 1) : 0;
    if (at < len && space < MEMOIR_SPACE_DRAM)
        return false;
    for (const struct query_column *c = columns_of; c->name; c++)
        if (strcmp(c->name, "device") == 0)
            *ret_field = (struct query_field){.column = c, .space = space, .ordinal = ordinal};
    return true;
}

static bool resolve(const char *name, size_t len, struct query_field *ret_field)
{
    return process_resolve(columns, name, len, ret_field);
}

/* Rows lie far apart in memory, so a run spends its time waiting for them unless they are asked for some
 * rows before: first what most columns look at, then the accounts, whose place is known by then. */
enum { PREFETCH = 16 };

static void prefetch(const struct ledger_process *p)
{
    __builtin_prefetch(p);
    __builtin_prefetch(&p->pid);
    __builtin_prefetch(&p->uid);
    __builtin_prefetch(p->name);
    __builtin_prefetch(&p->rss_bytes);
}

static void prefetch_accounts(const struct ledger_process *p)
{
    for (size_t i = 0; i < p->n_accounts && i < PREFETCH; i++)
        __builtin_prefetch(&p->accounts[i]);
}

static int scan_processes(struct query_scan *scan)
{
    size_t n = 0;
    struct ledger_process *const *processes =
        scan->world->ledger ? ledger_processes(scan->world->ledger, &n) : NULL;
    for (size_t i = 0; i < n; i++) {
        if (i + PREFETCH < n)
            prefetch(processes[i + PREFETCH]);
        if (i + PREFETCH / 2 < n)
            prefetch_accounts(processes[i + PREFETCH / 2]);
        int r = scan->each(scan, &(struct query_row){.process = processes[i]});
        if (r)
            return r;
    }
    return 0;
}

const struct query_table query_table_processes = {
    .name = "processes",
    .help = "one row for each process that keeps a book",
    .columns = columns,
    .needs = QUERY_NEEDS_BOOKS | QUERY_NEEDS_FACTS,
    .show = "pid,user,program,age,device,heap,pinned,blocks,rss,state",
    .show_by = "count,device,heap,pinned,blocks,rss",
    .sort = "-device,-rss,+pid",
    .scan = scan_processes,
    .owner = process_owner,
    .usual = process_lives,
    .unusual_by = "state",
    .resolve = resolve,
};
