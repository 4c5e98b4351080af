/* Costly fields: who is looked at next, and what comes of it.
 *
 * First everybody is looked at once, the largest first, to learn what he is. Sizes come after that, by what a
 * fresh figure is worth: how much the resident memory changed since the last look, a little for its size,
 * times the age. A process that does not change keeps its figures for SIZES_STILL_NS. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "ledger/host_parse.h"
#include "ledger/host_rows.h"
#include "ledger/ledger.h"

#define SIZES_FRESH_NS  (2 * NS_PER_S)
#define SIZES_STILL_NS  (120 * NS_PER_S)
#define REST_NS         (600 * NS_PER_S) /* after a look that came to nothing */
#define SIZES_BASE_NS   (25 * NS_PER_US)
#define SIZES_GB_NS     (11 * NS_PER_MS)
#define SIZES_MOST_NS   (2 * NS_PER_S) /* who would take longer has no PSS: it would stall him */
#define ORIGIN_COST_NS  (60 * NS_PER_US)
#define ORIGIN_KINDS    (HOST_PROBE_COMMAND | HOST_PROBE_ORIGIN | HOST_PROBE_CGROUP)
#define SCORE_ORIGIN    (UINT64_C(1) << 62)
#define SCORE_AGE_MAX_S 600

static uint64_t sizes_cost(const struct host_row *row)
{
    if (row->sizes_cost_ns)
        return row->sizes_cost_ns;
    return SIZES_BASE_NS + row->p.rss_bytes / 1000 * SIZES_GB_NS / 1000000;
}

static uint64_t sizes_score(const struct host *host, const struct host_row *row)
{
    uint64_t rss = row->p.rss_bytes, was = row->sizes_rss;
    uint64_t change = rss > was ? rss - was : was - rss;
    uint64_t age_ns = row->sizes_tried_ns ? host->time_ns - row->sizes_tried_ns : UINT64_MAX;
    if (!(row->p.valid & HOST_HAS_MEMORY) || sizes_cost(row) > SIZES_MOST_NS)
        return 0;
    if (row->sizes_tried_ns && (row->sizes_tried_ns > host->time_ns ||
                                age_ns < (change ? SIZES_FRESH_NS : SIZES_STILL_NS)))
        return 0;
    uint64_t age_s = age_ns / NS_PER_S < SCORE_AGE_MAX_S ? age_ns / NS_PER_S : SCORE_AGE_MAX_S;
    uint64_t score = (change / 1024 + rss / (256 * 1024) + 1) * (age_s + 1);
    return score < SCORE_ORIGIN ? score : SCORE_ORIGIN - 1;
}

/* Is a process that someone looks at due? */
static bool watched_due(const struct host *host, const struct host_row *row)
{
    uint64_t each_ns = HOST_WATCHED_EACH_S * NS_PER_S, cost_ns = sizes_cost(row);
    if (cost_ns * HOST_WATCHED_SHARE > each_ns)
        each_ns = cost_ns * HOST_WATCHED_SHARE;
    return row->watched_ns > host->time_ns && row->p.valid & HOST_HAS_MEMORY &&
           cost_ns <= SIZES_MOST_NS && row->sizes_tried_ns <= host->time_ns &&
           host->time_ns - row->sizes_tried_ns >= each_ns;
}

void host_watch(struct host *host, pid_t pid)
{
    struct host_process *p = host_process_find(host, pid);
    if (!p)
        return;
    struct host_row *row = host_row(p);
    row->watched_ns = host->time_ns + HOST_WATCHED_S * NS_PER_S;
    if (watched_due(host, row))
        host->n_queue = 0; /* who is next is decided anew */
}

static uint64_t todo_of(const struct host *host, const struct host_row *row, struct host_todo *ret)
{
    const struct host_process *p = &row->p;
    *ret = (struct host_todo){.pid = p->pid, .start_ticks = p->start_ticks};
    if (p->kernel || row->rest_until_ns > host->time_ns || p->state == 'Z' || p->state == 'X')
        return 0;
    if ((row->done & ORIGIN_KINDS) != ORIGIN_KINDS) {
        ret->kinds = ORIGIN_KINDS & ~row->done;
        ret->cost_ns = ORIGIN_COST_NS;
        return SCORE_ORIGIN + p->rss_bytes / 1024;
    }
    ret->kinds = HOST_PROBE_SIZES | HOST_PROBE_CGROUP;
    ret->cost_ns = sizes_cost(row);
    if (watched_due(host, row))
        return SCORE_ORIGIN - 1;
    return sizes_score(host, row);
}

/* Keep the best HOST_QUEUE_MAX, the best last. */
static void queue_add(struct host *host, uint64_t score, const struct host_todo *todo)
{
    bool full = host->n_queue == HOST_QUEUE_MAX;
    size_t at = host->n_queue, low = full;
    if (full && score <= host->scores[0])
        return;
    while (at > low && host->scores[at - 1] > score)
        at--;
    if (full) { /* the first one goes */
        memmove(host->scores, host->scores + 1, (at - 1) * sizeof(*host->scores));
        memmove(host->queue, host->queue + 1, (at - 1) * sizeof(*host->queue));
        at--;
    } else {
        memmove(host->scores + at + 1, host->scores + at,
                (host->n_queue - at) * sizeof(*host->scores));
        memmove(host->queue + at + 1, host->queue + at,
                (host->n_queue - at) * sizeof(*host->queue));
        host->n_queue++;
    }
    host->scores[at] = score;
    host->queue[at] = *todo;
}

bool host_probe_next(struct host *host, struct host_todo *ret_todo)
{
    if (host->n_queue == 0)
        for (size_t i = 0; i < host->n; i++) {
            struct host_todo todo;
            uint64_t score = todo_of(host, host_row(host->rows[i]), &todo);
            if (score)
                queue_add(host, score, &todo);
        }
    if (host->n_queue == 0)
        return false;
    *ret_todo = host->queue[--host->n_queue];
    return true;
}

/* ---- what came of it ---- */

static void text_keep(char **kept, const char **shown, const char *text)
{
    char *copy = strdup(text);
    if (!copy)
        return;
    free(*kept);
    *kept = copy;
    *shown = copy;
}

static void words_take(struct host_process *p)
{
    char job[HOST_WORD_MAX];
    host_cgroup_words(p->cgroup->path, p->container, p->pod, job, sizeof(p->container));
    p->valid &= ~(uint32_t)(HOST_HAS_CONTAINER | HOST_HAS_POD);
    p->valid |= (*p->container ? HOST_HAS_CONTAINER : 0u) | (*p->pod ? HOST_HAS_POD : 0u);
    if (!*job) {
        if (!p->job_private) /* it left the cgroup that had one */
            p->valid &= ~(uint32_t)HOST_HAS_JOB;
        return;
    }
    memcpy(p->job, job, sizeof(job)); /* nobody can write another one's there */
    p->job_private = false;
    p->valid |= HOST_HAS_JOB;
}

static void cgroup_take(struct host *host, struct host_process *p, const struct host_probe *probe)
{
    if (p->cgroup && strcmp(p->cgroup->path, probe->cgroup) == 0)
        return;
    const struct host_cgroup *cgroup =
        host_cgroup_ref(host->cgroups, probe->cgroup, probe->cgroup_v1);
    if (!cgroup)
        return;
    host_cgroup_unref(host->cgroups, p->cgroup);
    p->cgroup = cgroup;
    p->valid |= HOST_HAS_CGROUP;
    words_take(p);
}

static void origin_take(struct host_row *row, const struct host_probe *probe)
{
    struct host_process *p = &row->p;
    p->valid &= ~(uint32_t)(HOST_HAS_EXE | HOST_HAS_RANK | HOST_HAS_TRACKED);
    p->valid |= probe->valid & (HOST_HAS_EXE | HOST_HAS_RANK | HOST_HAS_TRACKED);
    p->rank = probe->rank;
    p->tracked = (enum host_tracked)probe->tracked;
    text_keep(&row->exe, &p->exe, probe->exe);
    if (p->valid & HOST_HAS_JOB && !p->job_private)
        return;
    p->valid &= ~(uint32_t)HOST_HAS_JOB;
    p->valid |= probe->valid & HOST_HAS_JOB;
    memcpy(p->job, probe->job, sizeof(p->job));
    p->job_private = true;
}

static void sizes_take(const struct host *host, struct host_row *row,
                       const struct host_probe *probe)
{
    struct host_process *p = &row->p;
    uint32_t bits = probe->valid & (HOST_HAS_PSS | HOST_HAS_OOM);
    if (!(bits & HOST_HAS_PSS)) {
        row->sizes_tried_ns += REST_NS; /* not permitted: in the future, so that nobody asks */
        p->valid &= ~(uint32_t)HOST_HAS_PSS;
    }
    p->valid = (p->valid & ~(uint32_t)(HOST_HAS_PSS | HOST_HAS_OOM)) | bits;
    p->pss_bytes = probe->pss_bytes;
    p->uss_bytes = probe->uss_bytes;
    p->dirty_bytes = probe->dirty_bytes;
    p->oom_score = probe->oom_score;
    p->pss_ns = host->now_ns();
    row->sizes_cost_ns = probe->cpu_ns;
}

/* Whom a probe was about is told by a pid, which may be another process's by then: perhaps another user's, whose
 * command line it has. The descriptor of statm reads nothing once its process is gone. */
static bool still_lives(const struct host_row *row)
{
    char text[HOST_STATM_MAX];
    return row->statm_fd < 0 || host_pread(row->statm_fd, text, sizeof(text)) > 0;
}

void host_probe_done(struct host *host, const struct host_todo *todo, int error,
                     const struct host_probe *probe)
{
    struct host_process *p = host_process_find(host, todo->pid);
    if (!p || p->start_ticks != todo->start_ticks)
        return;
    struct host_row *row = host_row(p);
    if (!still_lives(row)) {
        row->rest_until_ns = host->time_ns + REST_NS; /* until a refresh removes it */
        return;
    }
    row->done |= todo->kinds & ORIGIN_KINDS;
    if (todo->kinds & HOST_PROBE_SIZES) {
        row->sizes_tried_ns = host->time_ns;
        row->sizes_rss = p->rss_bytes;
    }
    if (error < 0) {
        row->rest_until_ns = host->time_ns + REST_NS;
        return;
    }
    if (todo->kinds & HOST_PROBE_SIZES)
        sizes_take(host, row, probe);
    if (todo->kinds & HOST_PROBE_COMMAND) {
        p->valid &= ~(uint32_t)HOST_HAS_COMMAND;
        p->valid |= probe->valid & HOST_HAS_COMMAND;
        text_keep(&row->command, &p->command, probe->command);
    }
    if (todo->kinds & HOST_PROBE_ORIGIN)
        origin_take(row, probe);
    if (probe->valid & HOST_HAS_CGROUP)
        cgroup_take(host, p, probe);
    if (todo->kinds & (HOST_PROBE_COMMAND | HOST_PROBE_ORIGIN))
        host_name_renew(p);
}

bool host_refine(struct host *host, uint64_t cpu_ns)
{
    struct host_todo todo;
    struct host_probe probe;
    if (host->debt_ns >= cpu_ns) { /* of a process that took longer than we had */
        host->debt_ns -= cpu_ns;
        return false;
    }
    uint64_t spent = host->debt_ns;
    bool all = false;
    host->debt_ns = 0;
    while (spent < cpu_ns && !all) {
        all = !host_probe_next(host, &todo);
        if (all)
            break;
        uint64_t began = clock_ns(CLOCK_THREAD_CPUTIME_ID);
        int r = host_probe_read(host->proc, todo.pid, todo.kinds, &probe);
        host_probe_done(host, &todo, r, &probe);
        spent += clock_ns(CLOCK_THREAD_CPUTIME_ID) - began;
    }
    if (!all)
        host->debt_ns = spent - cpu_ns;
    host_cgroups_refresh(host->cgroups, host->time_ns, HOST_CGROUP_AGE_NS, HOST_CGROUPS_MAX);
    return all;
}

/* ---- tracked? ---- */

static const char *const tracked_names[] = {
    [HOST_TRACKED_UNKNOWN] = "unknown",
    [HOST_TRACKED_YES] = "yes",
    [HOST_TRACKED_ASKED] = "no: asked, but it keeps no book",
    [HOST_TRACKED_NOT_ASKED] = "no: not asked",
    [HOST_TRACKED_STATIC] = "no: static",
    [HOST_TRACKED_GO] = "no: Go",
    [HOST_TRACKED_SETUID] = "no: setuid",
    [HOST_TRACKED_32BIT] = "no: 32-bit",
    [HOST_TRACKED_MACHINE] = "no: of another processor",
    [HOST_TRACKED_LIBC] = "no: another C library",
    [HOST_TRACKED_KERNEL] = "no: kernel",
};

const char *host_tracked_name(enum host_tracked tracked)
{
    return tracked_names[tracked];
}

enum host_tracked host_tracked_find(const char *name)
{
    for (size_t i = 0; name && i < sizeof(tracked_names) / sizeof(tracked_names[0]); i++)
        if (tracked_names[i] && strcmp(tracked_names[i], name) == 0)
            return (enum host_tracked)i;
    return HOST_TRACKED_UNKNOWN;
}

enum host_tracked host_tracked_of(const struct host_process *process,
                                  const struct ledger_process *books)
{
    for (size_t i = 0; books && i < books->n_books; i++)
        if (book_source_counts_heap(books->books[i]->identity->source))
            return HOST_TRACKED_YES;
    return process->valid & HOST_HAS_TRACKED ? process->tracked : HOST_TRACKED_UNKNOWN;
}
