/* Sizes of processes for history. See history_host.h. */
#include "daemon/history_host.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/accountable.h"
#include "base/clock.h"
#include "daemon/hosts.h"
#include "history/sample.h"
#include "ledger/host.h"
#include "ledger/host_books.h"
#include "ledger/proc.h"

struct candidate {
    uint64_t score;
    struct host_process *process;
};

struct history_host {
    struct hosts *hosts;
    uint64_t began_ns;
    uint64_t filled_ns; /* CLOCK_MONOTONIC: when the last picture was filled */
    struct host_join join;
    struct candidate *candidates;
    size_t size;
};

/* What host_process.user_data says: it is in the picture by its book, was in the last one, or was noted the last time. */
static char in_picture, was_in_picture, noted;

int history_host_new(struct hosts *hosts, struct history_host **ret_host)
{
    struct history_host *host = calloc(1, sizeof(*host));
    if (!host)
        return -ENOMEM;
    host->hosts = hosts;
    host->began_ns = host->filled_ns = clock_monotonic_ns();
    *ret_host = host;
    return 0;
}

void history_host_free(struct history_host *host)
{
    if (!host)
        return;
    host_join_release(&host->join);
    free(host->candidates);
    free(host);
}

/* A proportional size counts once, in the picture after it was measured: in between it is not known. */
static void sizes_copy(const struct history_host *host, struct sample_process *to,
                       const struct host_process *from)
{
    to->has_rss = from->valid & HOST_HAS_MEMORY;
    to->rss_bytes = from->rss_bytes;
    uint64_t since_ns = host->filled_ns;
    if (!from->user_data) /* not in the last picture: measured while it was too young for one */
        since_ns -= HISTORY_HOST_PSS_S * NS_PER_S;
    to->has_pss = to->has_rss && from->valid & HOST_HAS_PSS && from->pss_ns >= since_ns;
    to->pss_bytes = from->pss_bytes;
}

/* ---- those that keep books ---- */

/* For a process that is younger than the table. */
static void look_at(struct sample_process *p)
{
    struct proc_stat stat;
    p->has_rss = proc_stat_read(p->claim.pid, &stat) == 0 && !stat.dead && stat.rss_bytes > 0 &&
                 proc_same_start(stat.start_ticks, p->claim.start_ticks);
    p->rss_bytes = p->has_rss ? stat.rss_bytes : 0;
}

/* Of several books of one process, the one that joins its row gets its sizes, so that they count once. */
static int fill_known(struct history_host *host, const struct host *table, struct sample *sample)
{
    struct host_join *join = &host->join;
    int r = host_join_begin(join, table);
    if (r < 0)
        return r;
    for (size_t i = 0; i < sample->n_processes; i++) {
        struct sample_process *p = &sample->processes[i];
        if (!host_join_add(join, &p->claim, (uint32_t)i) && p->claim.pid)
            look_at(p);
    }
    for (size_t i = 0; i < join->n_rows; i++) {
        struct host_process *row = join->rows[i];
        if (join->joined[i].claim != HOST_JOIN_NONE) {
            sizes_copy(host, &sample->processes[join->joined[i].claim], row);
            row->user_data = &in_picture;
        } else if (row->user_data == &in_picture) {
            row->user_data = &was_in_picture;
        }
    }
    return 0;
}

/* ---- the others ---- */

static int larger_first(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return (x->process->pid > y->process->pid) - (x->process->pid < y->process->pid);
}

static bool worth_it(const struct history_host *host, const struct host_process *p,
                     uint64_t real_ns)
{
    const uint32_t needed = HOST_HAS_MEMORY | HOST_HAS_STAT | HOST_HAS_STATUS;
    if (p->user_data == &in_picture || p->kernel || (p->valid & needed) != needed)
        return false;
    if (real_ns < p->start_realtime_ns + HISTORY_HOST_AGE_S * NS_PER_S)
        return false;
    return p->valid & HOST_HAS_COMMAND ||
           clock_monotonic_ns() - host->began_ns > HISTORY_HOST_NAME_S * NS_PER_S;
}

static size_t collect(struct history_host *host, const struct host *table, uint64_t real_ns)
{
    size_t n, kept = 0;
    struct host_process *const *rows = host_processes(table, &n);
    if (n > host->size) {
        struct candidate *grown = reallocarray(host->candidates, n * 2, sizeof(*grown));
        if (!grown)
            return 0;
        host->candidates = grown;
        host->size = n * 2;
    }
    for (size_t i = 0; i < n; i++)
        if (worth_it(host, rows[i], real_ns)) /* who is in has to be passed by far */
            host->candidates[kept++] =
                (struct candidate){rows[i]->rss_bytes << (rows[i]->user_data == &noted), rows[i]};
    return kept;
}

static bool within_share(struct sample *sample, const struct host_process *p, uint64_t per_user_max)
{
    enum { VALUES = 2 };
    uint32_t *taken = &sample->by_user[accountable_uid(p->uid) % SAMPLE_USERS];
    if (p->uid != 0 && p->uid != geteuid() && *taken + VALUES > per_user_max) {
        sample->left_out += VALUES;
        return false;
    }
    *taken += VALUES;
    return true;
}

static bool note(const struct history_host *host, struct sample *sample,
                 const struct host_process *p)
{
    struct sample_process *process = sample_add_process(sample);
    if (!process) {
        sample->left_out++;
        return false;
    }
    process->start_ticks = p->start_ticks;
    process->began_ns = p->start_realtime_ns;
    process->pid = p->pid;
    process->bookless = true;
    process->uid = p->uid;
    memcpy(process->program, p->name, sizeof(process->program));
    sizes_copy(host, process, p);
    return true;
}

static void fill_others(struct history_host *host, const struct host *table, struct sample *sample,
                        size_t processes_max, uint64_t per_user_max)
{
    size_t n = processes_max ? collect(host, table, sample->real_ns) : 0;
    if (n > processes_max)
        qsort(host->candidates, n, sizeof(*host->candidates), larger_first);
    for (size_t i = 0; i < n; i++) {
        struct host_process *p = host->candidates[i].process;
        p->user_data =
            i < processes_max && within_share(sample, p, per_user_max) && note(host, sample, p)
                ? &noted
                : NULL;
    }
}

/* ---- the machine ---- */

static void fill_system(const struct host *table, struct sample *sample)
{
    const struct host_system *s = host_system(table);
    if (sample->first_total == SIZE_MAX)
        return;
    if (s->valid & HOST_HAS_PSI) {
        sample_add_value(sample, 0, HISTORY_PRESSURE_SOME, HISTORY_PRESSURE, s->some.avg10);
        sample_add_value(sample, 0, HISTORY_PRESSURE_FULL, HISTORY_PRESSURE, s->full.avg10);
    }
    if (!(s->valid & HOST_HAS_TOTAL))
        return;
    sample_add_value(sample, 0, HISTORY_SYSTEM_TOTAL, HISTORY_SYSTEM, s->total_bytes);
    if (s->valid & HOST_HAS_AVAILABLE) {
        sample_add_value(sample, 0, HISTORY_SYSTEM_AVAILABLE, HISTORY_SYSTEM, s->available_bytes);
        sample_add_value(sample, 0, HISTORY_SYSTEM_USED, HISTORY_SYSTEM, s->used_bytes);
    }
    if (s->swap_total_bytes)
        sample_add_value(sample, 0, HISTORY_SYSTEM_SWAP, HISTORY_SYSTEM,
                         s->swap_total_bytes - s->swap_free_bytes);
    for (uint32_t part = 0; part < HOST_PARTS; part++)
        sample_add_value(sample, 0, HISTORY_SYSTEM_PARTS + part, HISTORY_SYSTEM, s->parts[part]);
}

void history_host_fill(struct history_host *host, struct sample *sample, size_t processes_max,
                       uint64_t per_user_max)
{
    const struct host *table = host->hosts ? hosts_lock_idle(host->hosts) : NULL;
    if (!table)
        return;                               /* no sizes this time */
    if (fill_known(host, table, sample) == 0) /* without memory no sizes this time */
        fill_others(host, table, sample, processes_max, per_user_max);
    fill_system(table, sample);
    host->filled_ns = clock_monotonic_ns();
    hosts_unlock(host->hosts);
}
