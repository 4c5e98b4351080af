/* The table of all processes of the machine: one row each, joined with what its books say, if it keeps any. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memoir/memoir.h>

#include "base/clock.h"
#include "ledger/host.h"
#include "ledger/host_books.h"
#include "ledger/ledger.h"
#include "ledger/proc.h"
#include "query/table_process.h"

typedef struct query_value value;

/* A field of the process table: known, unknown, or (a thread of the kernel) nothing of the kind. */
static bool has(const struct query_row *row, uint32_t bit, value *ret)
{
    if (row->host->valid & bit)
        return true;
    if (!row->host->kernel && row->host->state != 'Z')
        ret->state = QUERY_UNKNOWN;
    return false;
}

/* ---- who ---- */

static void get_pid(const struct query_world *world, const struct query_row *row,
                    const struct query_field *field, value *ret)
{
    query_set_number(ret, (uint64_t)(field->column->arg ? row->host->parent_pid : row->host->pid));
}

static void get_program(const struct query_world *world, const struct query_row *row,
                        const struct query_field *field, value *ret)
{
    query_set_text(ret, row->host->name);
}

static void get_user(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, value *ret)
{
    const struct host_process *p = row->host;
    if (!(p->valid & HOST_HAS_STATUS)) {
        ret->state = QUERY_UNKNOWN;
        return;
    }
    const char *name = p->valid & HOST_HAS_USER ? p->user : NULL;
    if (!name && world->user_name)
        name = world->user_name(p->uid, world->context);
    if (!name && *p->user) /* the number, which lasts as long as the row */
        name = p->user;
    if (name)
        query_set_text(ret, name);
    else
        query_set_user(ret, world, p->uid);
}

static void get_uid(const struct query_world *world, const struct query_row *row,
                    const struct query_field *field, value *ret)
{
    if (row->host->valid & HOST_HAS_STATUS)
        query_set_number(ret, row->host->uid);
    else
        ret->state = QUERY_UNKNOWN;
}

static void get_state(const struct query_world *world, const struct query_row *row,
                      const struct query_field *field, value *ret)
{
    static const struct {
        char letter;
        const char *word;
    } words[] = {{'R', "running"}, {'S', "sleeping"}, {'D', "waiting"}, {'I', "idle"},
                 {'T', "stopped"}, {'t', "traced"},   {'Z', "zombie"},  {'X', "dead"}};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (words[i].letter == row->host->state)
            query_set_text(ret, words[i].word);
}

static void get_text(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, value *ret)
{
    const struct host_process *p = row->host;
    uint32_t bit = field->column->arg;
    const char *text = bit == HOST_HAS_COMMAND     ? p->command
                       : bit == HOST_HAS_EXE       ? p->exe
                       : bit == HOST_HAS_CONTAINER ? p->container
                                                   : p->pod;
    if (p->valid & bit)
        query_set_text(ret, text);
    else if (!p->kernel &&
             (bit == HOST_HAS_COMMAND || bit == HOST_HAS_EXE || !(p->valid & HOST_HAS_CGROUP)))
        ret->state = QUERY_UNKNOWN;
}

/* An environment is its owner's only; the name of a cgroup is for all. */
static void get_job(const struct query_world *world, const struct query_row *row,
                    const struct query_field *field, value *ret)
{
    const struct host_process *p = row->host;
    bool own = query_may_see(world->sees_all, world->viewer_uid, p->uid);
    if (!(p->valid & HOST_HAS_JOB))
        return;
    if (p->job_private && !own)
        ret->state = QUERY_UNKNOWN;
    else
        query_set_text(ret, p->job);
}

static void get_rank(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, value *ret)
{
    if (row->host->valid & HOST_HAS_RANK)
        query_set_number(ret, row->host->rank);
}

static void get_tracked(const struct query_world *world, const struct query_row *row,
                        const struct query_field *field, value *ret)
{
    enum host_tracked tracked = host_tracked_of(row->host, row->process);
    if (tracked == HOST_TRACKED_UNKNOWN)
        ret->state = QUERY_UNKNOWN;
    else
        query_set_text(ret, host_tracked_name(tracked));
}

static void get_kernel(const struct query_world *world, const struct query_row *row,
                       const struct query_field *field, value *ret)
{
    query_set_number(ret, row->host->kernel);
}

static void get_start(const struct query_world *world, const struct query_row *row,
                      const struct query_field *field, value *ret)
{
    if (has(row, HOST_HAS_STAT, ret))
        query_set_number(ret, row->host->start_realtime_ns);
}

static void get_age(const struct query_world *world, const struct query_row *row,
                    const struct query_field *field, value *ret)
{
    uint64_t since = row->host->start_realtime_ns;
    if (has(row, HOST_HAS_STAT, ret))
        query_set_number(ret, world->now_real_ns > since ? world->now_real_ns - since : 0);
}

/* ---- figures ---- */

enum figure {
    RSS,
    VMS,
    SHARED,
    TEXT,
    DATA,
    ANON,
    FILES,
    SHMEM,
    LIB,
    SWAP,
    PEAK,
    PSS,
    USS,
    DIRTY,
    MINOR,
    MAJOR,
    THREADS,
    OOM,
};

static const struct {
    uint32_t bit;
    uint16_t at;
    bool small; /* 32 bits */
} figures[] = {
#define FIGURE(name, bit, member) [name] = {bit, offsetof(struct host_process, member)}
    FIGURE(RSS, HOST_HAS_MEMORY, rss_bytes),
    FIGURE(VMS, HOST_HAS_MEMORY, vms_bytes),
    FIGURE(SHARED, HOST_HAS_MEMORY, shared_bytes),
    FIGURE(TEXT, HOST_HAS_MEMORY, text_bytes),
    FIGURE(DATA, HOST_HAS_MEMORY, data_bytes),
    FIGURE(ANON, HOST_HAS_PARTS, anon_bytes),
    FIGURE(FILES, HOST_HAS_PARTS, file_bytes),
    FIGURE(SHMEM, HOST_HAS_PARTS, shmem_bytes),
    FIGURE(LIB, HOST_HAS_PARTS, lib_bytes),
    FIGURE(SWAP, HOST_HAS_PARTS, swap_bytes),
    FIGURE(PEAK, HOST_HAS_PEAK, peak_bytes),
    FIGURE(PSS, HOST_HAS_PSS, pss_bytes),
    FIGURE(USS, HOST_HAS_PSS, uss_bytes),
    FIGURE(DIRTY, HOST_HAS_PSS, dirty_bytes),
    FIGURE(MINOR, HOST_HAS_STAT, minor_faults),
    FIGURE(MAJOR, HOST_HAS_STAT, major_faults),
    [THREADS] = {HOST_HAS_STAT, offsetof(struct host_process, threads), true},
    [OOM] = {HOST_HAS_OOM, offsetof(struct host_process, oom_score), true},
#undef FIGURE
};

static void get_figure(const struct query_world *world, const struct query_row *row,
                       const struct query_field *field, value *ret)
{
    uint32_t figure = field->column->arg;
    const char *at = (const char *)row->host + figures[figure].at;
    if (has(row, figures[figure].bit, ret))
        query_set_number(ret,
                         figures[figure].small ? *(const uint32_t *)at : *(const uint64_t *)at);
}

enum { AGE_PSS, AGE_DETAILS };

static void get_figure_age(const struct query_world *world, const struct query_row *row,
                           const struct query_field *field, value *ret)
{
    bool pss = field->column->arg == AGE_PSS;
    uint64_t then = pss ? row->host->pss_ns : row->host->details_ns,
             now = host_time_ns(world->host);
    if (has(row, pss ? HOST_HAS_PSS : HOST_HAS_STAT, ret))
        query_set_number(ret, now > then ? now - then : 0);
}

static void get_rate(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, value *ret)
{
    double rate;
    if (row->host->kernel)
        return;
    if (host_rate(world->host, row->host, (enum host_window)field->column->arg, &rate))
        query_set_rate(ret, (int64_t)rate);
    else
        ret->state = QUERY_UNKNOWN;
}

static void get_steady(const struct query_world *world, const struct query_row *row,
                       const struct query_field *field, value *ret)
{
    double rate;
    if (row->host->kernel)
        return;
    if (host_steady(world->host, row->host, &rate))
        query_set_rate(ret, (int64_t)rate);
    else
        ret->state = QUERY_UNKNOWN;
}

static void get_tree(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, struct query_value *ret)
{
    struct host_family family;
    if (row->host->kernel)
        return;
    if (host_family(world->host, row->host, &family) < 0) {
        ret->state = QUERY_UNKNOWN;
        return;
    }
    query_set_number(ret, family.rss_bytes);
    ret->marks = family.partial ? QUERY_AT_LEAST : 0;
}

static void get_book(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, value *ret)
{
    if (row->process->n_books)
        query_set_number(ret, row->process->book_bytes);
}

/* ---- cgroups ---- */

static void get_cgroup(const struct query_world *world, const struct query_row *row,
                       const struct query_field *field, value *ret)
{
    if (row->host->cgroup)
        query_set_text(ret, row->host->cgroup->path);
    else
        ret->state = QUERY_UNKNOWN;
}

enum { CGROUP_LIMIT, CGROUP_HEADROOM, CGROUP_USED };

static void get_cgroup_figure(const struct query_world *world, const struct query_row *row,
                              const struct query_field *field, value *ret)
{
    const struct host_cgroup *cgroup = row->host->cgroup;
    bool used = field->column->arg == CGROUP_USED;
    if (!cgroup || (used ? !cgroup->has_used : !cgroup->known))
        ret->state = QUERY_UNKNOWN;
    else if (used)
        query_set_number(ret, cgroup->used_bytes);
    else if (cgroup->limited)
        query_set_number(ret, field->column->arg == CGROUP_LIMIT ? cgroup->limit_bytes
                                                                 : cgroup->headroom_bytes);
}

/* ---- the table ---- */

static const struct query_column columns[] = {
    {"pid", "process id", QUERY_NUMBER, QUERY_SAME, .get = get_pid},
    {"parent", "process id of the parent", QUERY_NUMBER, QUERY_SAME, .arg = 1, .get = get_pid},
    {"program", "name of the program, or of the script that it runs", QUERY_TEXT,
     .needs = QUERY_NEEDS_PROBES, .get = get_program},
    {"user", "who owns the process", QUERY_TEXT, .get = get_user},
    {"uid", "the same as a number", QUERY_NUMBER, QUERY_SAME, .get = get_uid},
    {"node", "name of the machine", QUERY_TEXT, .get = query_get_node},
    QUERY_COLUMN_NODES,
    {"state", "running, sleeping, waiting (for a disk), stopped, zombie ...", QUERY_TEXT,
     .get = get_state},
    {"kernel_thread", "is it a thread of the kernel", QUERY_YES, .get = get_kernel},
    {"tracked", "are all of its allocations accounted, and if not, why", QUERY_TEXT,
     .flags = QUERY_PRIVATE, .needs = QUERY_NEEDS_PROBES, .get = get_tracked},
    {"start", "when it was started", QUERY_TIME, QUERY_MIN, .get = get_start},
    {"age", "how long it has been running", QUERY_AGE, .get = get_age},
    {"rss", "resident memory", QUERY_BYTES, .arg = RSS, .get = get_figure},
    {"tree", NULL, QUERY_BYTES, QUERY_MAX, .get = get_tree},
    {"pss", "resident memory, what is shared by n processes counted as an n-th", QUERY_BYTES,
     .needs = QUERY_NEEDS_PROBES, .arg = PSS, .get = get_figure},
    {"uss", "resident memory that is not shared: what the end of the process gives back",
     QUERY_BYTES, .needs = QUERY_NEEDS_PROBES, .arg = USS, .get = get_figure},
    {"dirty", "resident memory that was written to", QUERY_BYTES, .needs = QUERY_NEEDS_PROBES,
     .arg = DIRTY, .get = get_figure},
    {"pss_age", "how old pss, uss, dirty and oom_score are", QUERY_AGE, .needs = QUERY_NEEDS_PROBES,
     .arg = AGE_PSS, .get = get_figure_age},
    {"swap", "memory that is swapped out", QUERY_BYTES, .arg = SWAP, .get = get_figure},
    {"vms", "virtual memory", QUERY_BYTES, .arg = VMS, .get = get_figure},
    {"shared", "resident memory that files and other processes share", QUERY_BYTES, .arg = SHARED,
     .get = get_figure},
    {"anon", "of rss, the process's own", QUERY_BYTES, .arg = ANON, .get = get_figure},
    {"file", "of rss, files", QUERY_BYTES, .arg = FILES, .get = get_figure},
    {"shmem", "of rss, shared memory and tmpfs", QUERY_BYTES, .arg = SHMEM, .get = get_figure},
    {"text", "virtual memory of its code", QUERY_BYTES, .arg = TEXT, .get = get_figure},
    {"data", "virtual memory of its data and stack", QUERY_BYTES, .arg = DATA, .get = get_figure},
    {"lib", "virtual memory of the code of its libraries", QUERY_BYTES, .arg = LIB,
     .get = get_figure},
    {"peak_rss", "the most that rss has been", QUERY_BYTES, .arg = PEAK, .get = get_figure},
    {"growth", "by how much rss grew a second, over the last 10 seconds; below 0 where it shrank",
     QUERY_RATE, .arg = HOST_10S, .get = get_rate},
    {"growth_1m", "the same over the last minute", QUERY_RATE, .arg = HOST_1MIN, .get = get_rate},
    {"growth_10m", "the same over the last 10 minutes", QUERY_RATE, .arg = HOST_10MIN,
     .get = get_rate},
    {"growth_steady",
     "the least that rss grew a second in any third of the last 30 seconds (growth-window); 0 where it "
     "did not grow in one of them",
     QUERY_RATE, .get = get_steady},
    {"book_size", "memory that its books take; absent without one", QUERY_BYTES, .get = get_book},
    {"minor_faults", "pages that it got without a disk", QUERY_NUMBER, .arg = MINOR,
     .get = get_figure},
    {"major_faults", "pages that had to be read from a disk", QUERY_NUMBER, .arg = MAJOR,
     .get = get_figure},
    {"threads", "number of threads", QUERY_NUMBER, .arg = THREADS, .get = get_figure},
    {"oom_score", "how likely the kernel is to kill it when memory runs out", QUERY_NUMBER,
     QUERY_MAX, .needs = QUERY_NEEDS_PROBES, .arg = OOM, .get = get_figure},
    {"details_age", "how old state, threads, faults and the parts of rss are", QUERY_AGE,
     .arg = AGE_DETAILS, .get = get_figure_age},
    {"cgroup", "path of its cgroup", QUERY_TEXT, .needs = QUERY_NEEDS_PROBES, .get = get_cgroup},
    {"cgroup_limit", "the limit on memory of that cgroup, or of one around it", QUERY_BYTES,
     QUERY_SAME, .needs = QUERY_NEEDS_PROBES, .arg = CGROUP_LIMIT, .get = get_cgroup_figure},
    {"headroom", "how much the cgroup may still take", QUERY_BYTES, QUERY_MIN,
     .needs = QUERY_NEEDS_PROBES, .arg = CGROUP_HEADROOM, .get = get_cgroup_figure},
    {"cgroup_used", "what the cgroup takes, with its page cache", QUERY_BYTES, QUERY_SAME,
     .needs = QUERY_NEEDS_PROBES, .arg = CGROUP_USED, .get = get_cgroup_figure},
    {"container", "identity of its container", QUERY_TEXT, .needs = QUERY_NEEDS_PROBES,
     .arg = HOST_HAS_CONTAINER, .get = get_text},
    {"pod", "identity of its pod", QUERY_TEXT, .needs = QUERY_NEEDS_PROBES, .arg = HOST_HAS_POD,
     .get = get_text},
    {"job", "its batch job", QUERY_TEXT, .needs = QUERY_NEEDS_PROBES, .get = get_job},
    {"rank", "its number in an MPI program", QUERY_NUMBER, QUERY_SAME, .flags = QUERY_PRIVATE,
     .needs = QUERY_NEEDS_PROBES, .get = get_rank},
    {"command", "the command line", QUERY_TEXT, .flags = QUERY_PRIVATE, .needs = QUERY_NEEDS_PROBES,
     .arg = HOST_HAS_COMMAND, .get = get_text},
    {"exe", "path of the program", QUERY_TEXT, .flags = QUERY_PRIVATE, .needs = QUERY_NEEDS_PROBES,
     .arg = HOST_HAS_EXE, .get = get_text},
    ACCOUNT_COLUMNS,
    {0},
};

/* ---- joining ---- */

/* A row lies anywhere: its figures come into the cache while rows before it are looked at. */
static void prefetch_process(const struct host_process *p)
{
    for (size_t at = 0; at < offsetof(struct host_process, container); at += 64)
        __builtin_prefetch((const char *)p + at);
}

static int scan_host(struct query_scan *scan)
{
    enum { AHEAD = 4 };
    static const struct ledger_process no_book = {.exe = (char *)"", .command = (char *)""};
    const struct ledger_process **books;
    size_t n;
    if (!scan->world->host)
        return 0;
    struct host_process *const *rows = host_processes(scan->world->host, &n);
    int r = host_books_join(scan->world->host, scan->world->ledger, &books);
    if (r < 0)
        return r;
    for (size_t i = 0; i < n && r == 0; i++) {
        if (i + AHEAD < n)
            prefetch_process(rows[i + AHEAD]);
        r = scan->each(
            scan, &(struct query_row){.process = books[i] ? books[i] : &no_book, .host = rows[i]});
    }
    free(books);
    return r;
}

static bool owner(const struct query_row *row, uint32_t *ret_uid)
{
    *ret_uid = row->host->valid & HOST_HAS_STATUS ? row->host->uid : 0;
    return true;
}

/* Threads of the kernel hold nothing. */
static bool usual(const struct query_row *row)
{
    return !row->host->kernel;
}

static bool resolve(const char *name, size_t len, struct query_field *ret_field)
{
    return process_resolve(columns, name, len, ret_field);
}

const struct query_table query_table_host = {
    .name = "host",
    .help = "one row for each process of the machine, whether it keeps a book or not",
    .columns = columns,
    .needs = QUERY_NEEDS_HOST | QUERY_NEEDS_BOOKS,
    .costly = true,
    .show = "pid,user,program,age,rss,pss,swap,heap,pinned,device,growth,tracked",
    .show_by = "count,rss,pss,swap,heap,pinned,device",
    .sort = "-rss,+pid",
    .lasting_texts = true,
    .scan = scan_host,
    .owner = owner,
    .usual = usual,
    .unusual_by = "kernel_thread",
    .resolve = resolve,
};
