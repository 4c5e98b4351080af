/* Sizes of processes for history. See history_host.h. */
#include "daemon/history_host.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
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
};

/* What host_process.user_data says: its book is in the picture; its book was in the last one; it was noted in the last one. */
static char in_picture, was_in_picture, noted;

int history_host_new(struct hosts *hosts, uint64_t now_ns, struct history_host **ret_host)
{
    struct history_host *host = calloc(1, sizeof(*host));
    if (!host)
        return -ENOMEM;
    host->hosts = hosts;
    host->began_ns = host->filled_ns = now_ns;
    *ret_host = host;
    return 0;
}

void history_host_free(struct history_host *host)
{
    if (!host)
        return;
    host_join_release(&host->join);
    free(host);
}

/* A proportional size counts once, in the picture after it was measured: in between it is not known. */
static void sizes_copy(const struct history_host *host, struct sample_process *to,
                       const struct host_process *from)
{
    /* One that was not in the last picture may have been measured while it was too young for it. */
    uint64_t before_ns = from->user_data ? 0 : HISTORY_HOST_PSS_S * NS_PER_S;
    to->has_rss = from->valid & HOST_HAS_MEMORY;
    to->rss_bytes = from->rss_bytes;
    to->has_pss =
        to->has_rss && from->valid & HOST_HAS_PSS && from->pss_ns + before_ns >= host->filled_ns;
    to->pss_bytes = from->pss_bytes;
}

/* ---- those that keep books ---- */

/* For a process that is younger than the table. One that is exiting has no memory any more; 0 is no PID. */
static void look_at(struct sample_process *p)
{
    struct proc_stat stat;
    if (proc_stat_read(p->claim.pid, &stat) < 0 || stat.rss_bytes == 0 ||
        !proc_same_start(stat.start_ticks, p->claim.start_ticks))
        return;
    p->has_rss = true;
    p->rss_bytes = stat.rss_bytes;
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
        if (!host_join_add(join, &p->claim, (uint32_t)i))
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

static bool worth_it(const struct history_host *host, const struct host_process *p, uint64_t now_ns,
                     uint64_t real_ns)
{
    const uint32_t needed = HOST_HAS_MEMORY | HOST_HAS_STAT | HOST_HAS_STATUS;
    if (p->user_data == &in_picture || p->kernel || (p->valid & needed) != needed)
        return false;
    if (real_ns < p->start_realtime_ns + HISTORY_HOST_AGE_S * NS_PER_S)
        return false;
    return p->valid & HOST_HAS_COMMAND || now_ns >= host->began_ns + HISTORY_HOST_NAME_S * NS_PER_S;
}

/* One that was noted counts twice, so that processes of about the same size do not take turns. NULL without memory, or
 * where there is none; else for free(). */
static struct candidate *collect(const struct history_host *host, const struct host *table,
                                 uint64_t now_ns, uint64_t real_ns, size_t *ret_n)
{
    size_t n, kept = 0;
    struct host_process *const *rows = host_processes(table, &n);
    struct candidate *candidates = reallocarray(NULL, n, sizeof(*candidates));
    for (size_t i = 0; candidates && i < n; i++)
        if (worth_it(host, rows[i], now_ns, real_ns))
            candidates[kept++] =
                (struct candidate){rows[i]->rss_bytes << (rows[i]->user_data == &noted), rows[i]};
    *ret_n = kept;
    return candidates;
}

static bool note(const struct history_host *host, struct sample *sample,
                 const struct host_process *p)
{
    struct sample_process *process = sample_add_process(sample);
    if (!process) {
        sample->left_out += HISTORY_HOST_VALUES;
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

static void fill_others(const struct history_host *host, const struct host *table, uint64_t now_ns,
                        struct sample *sample, size_t processes_max, uint64_t per_user_max)
{
    size_t n = 0, left = processes_max;
    MEMOIR_CLEANUP(freep)
    struct candidate *candidates = collect(host, table, now_ns, sample->real_ns, &n);
    if (n > processes_max)
        qsort(candidates, n, sizeof(*candidates), larger_first);
    for (size_t i = 0; i < n; i++) {
        struct host_process *p = candidates[i].process;
        bool fits = left && sample_reserve(sample, p->uid, HISTORY_HOST_VALUES, per_user_max) &&
                    note(host, sample, p);
        p->user_data = fits ? &noted : NULL;
        left -= fits;
    }
}

/* ---- the machine ---- */

static void fill_system(const struct host *table, struct sample *sample)
{
    const struct host_system *s = host_system(table);
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

void history_host_fill_from(struct history_host *host, const struct host *table, uint64_t now_ns,
                            struct sample *sample, size_t processes_max, uint64_t per_user_max)
{
    bool joined = fill_known(host, table, sample) == 0; /* without memory no sizes this time */
    if (joined && processes_max)
        fill_others(host, table, now_ns, sample, processes_max, per_user_max);
    fill_system(table, sample);
    host->filled_ns = now_ns;
}

void history_host_fill(struct history_host *host, struct sample *sample, size_t processes_max,
                       uint64_t per_user_max)
{
    const struct host *table = host->hosts ? hosts_lock_idle(host->hosts) : NULL;
    if (!table)
        return; /* no sizes this time */
    history_host_fill_from(host, table, clock_monotonic_ns(), sample, processes_max, per_user_max);
    hosts_unlock(host->hosts);
}
