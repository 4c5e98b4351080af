/* The process table of memoird. See hosts.h. */
#include "daemon/hosts.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/worker.h"
#include "bpf/tasks.h"
#include "daemon/cgroup_table.h"
#include "daemon/commands.h"
#include "ledger/host.h"
#include "ledger/host_probe.h"

enum { PROBES_MAX = 2000 /* in a second, whatever they take */ };

struct hosts {
    struct worker worker;         /* whose lock is for what says so */
    bool always;                  /* constant */
    struct cgroup_table *cgroups; /* has a lock of its own */

    /* Locked. */
    struct host *host;
    uint64_t asked_ns; /* when a question last did; 0: never */
    unsigned share;
    bool failed;         /* the thread's last refresh */
    bool may_mark;       /* by BPF */
    struct tasks *tasks; /* tell which processes changed; NULL: all are read */

    /* The thread's only. */
    struct commands *commands; /* NULL until the first probe */
    bool helpless;             /* it could not be started, and that was said */
    bool marks_tried;
    uint64_t debt_ns;
    uint64_t idle_ns; /* from one refresh to the next without questions */
};

/* ---- probes ---- */

static struct commands *helper(struct hosts *h)
{
    if (h->commands || h->helpless)
        return h->commands;
    int r = commands_new(&h->commands);
    if (r < 0) {
        h->helpless = true;
        log_warn("cannot start a helper: %s, the process table has no PSS and no command lines",
                 strerror(-r));
    }
    return h->commands;
}

/* The processes to look at, unless memoird exits. */
static bool next_todo(struct hosts *h, struct host_todo *todo)
{
    worker_lock(&h->worker);
    bool any = !h->worker.stop && host_probe_next(h->host, todo);
    worker_unlock(&h->worker);
    return any;
}

/* What a second's share of the processor allows; a process that takes longer is paid for by later seconds. */
static void probe_some(struct hosts *h, unsigned share)
{
    uint64_t budget = NS_PER_S / 1000 * share, spent = 0;
    struct host_todo todo;
    struct host_probe probe;
    if (h->debt_ns >= budget) {
        h->debt_ns -= budget;
        return;
    }
    budget -= h->debt_ns;
    h->debt_ns = 0;
    for (int i = 0; i < PROBES_MAX && spent < budget && helper(h) && next_todo(h, &todo); i++) {
        uint64_t began = clock_ns(CLOCK_THREAD_CPUTIME_ID);
        int r = commands_probe(h->commands, todo.pid, todo.kinds, HOSTS_PROBE_WAIT_MS, &probe);
        worker_lock(&h->worker);
        if (r != -EBUSY) /* the helper rests: no error */
            host_probe_done(h->host, &todo, r, &probe);
        worker_unlock(&h->worker);
        spent += clock_ns(CLOCK_THREAD_CPUTIME_ID) - began + (r == 0 ? probe.cpu_ns : 0);
        if (r == -EBUSY)
            break;
    }
    if (spent > budget)
        h->debt_ns = spent - budget;
}

/* ---- who changed ---- */

_Static_assert(sizeof(struct host_mark) == sizeof(struct task_mark) &&
                   offsetof(struct host_mark, mark) == offsetof(struct task_mark, mark),
               "one is taken for the other");

static int marks_read(void *context, const struct host_mark **ret_marks, size_t *ret_n)
{
    return tasks_read(context, (const struct task_mark **)ret_marks, ret_n);
}

/* Once there are so many processes that it is worth the loading. */
static void marks_start(struct hosts *h)
{
    size_t n;
    char why[EXITS_WHY_MAX];
    struct tasks *tasks;
    worker_lock(&h->worker);
    (void)host_processes(h->host, &n);
    bool wanted = h->may_mark && !h->marks_tried && n >= HOSTS_MARKS_MIN;
    worker_unlock(&h->worker);
    if (!wanted)
        return;
    h->marks_tried = true;
    if (tasks_open(&tasks, why) < 0)
        return; /* it only costs more; who looks for the reason finds that of the exits */
    worker_lock(&h->worker);
    h->tasks = tasks;
    host_set_marks(h->host, marks_read, tasks);
    worker_unlock(&h->worker);
}

/* ---- the thread ---- */

static bool is_asked(const struct hosts *h, uint64_t now_ns)
{
    return h->asked_ns && now_ns - h->asked_ns < HOSTS_WANTED_S * NS_PER_S;
}

/* When the next refresh is due: a second after `last_ns`, or later without questions; UINT64_MAX: never. */
static uint64_t refresh_due_ns(const struct hosts *h, uint64_t last_ns, uint64_t now_ns)
{
    if (is_asked(h, now_ns))
        return last_ns + NS_PER_S;
    return h->always ? last_ns + h->idle_ns : UINT64_MAX;
}

/* Until something is due: the processes, or the cgroups. False at the end. */
static bool wait_for_turn(struct hosts *h, uint64_t last_ns, bool *ret_processes, bool *ret_cgroups)
{
    worker_lock(&h->worker);
    for (;;) {
        uint64_t now = clock_monotonic_ns();
        uint64_t due = refresh_due_ns(h, last_ns, now),
                 cgroups_due = cgroup_table_due_ns(h->cgroups, now);
        *ret_processes = now >= due;
        *ret_cgroups = now >= cgroups_due;
        if (h->worker.stop || *ret_processes || *ret_cgroups)
            break;
        if (cgroups_due < due)
            due = cgroups_due;
        worker_wait(&h->worker, due);
    }
    bool go_on = !h->worker.stop;
    worker_unlock(&h->worker);
    return go_on;
}

/* Between a second and HOSTS_IDLE_MAX_MS, so that refreshes of this cost stay within their share: longer by and by, since
 * the first one costs more, and shorter at once. */
static uint64_t idle_interval(uint64_t before_ns, uint64_t cost_ns)
{
    uint64_t ns = cost_ns * HOSTS_IDLE_SHARE, most = HOSTS_IDLE_MAX_MS * NS_PER_MS;
    if (before_ns * 2 < most)
        most = before_ns * 2;
    if (ns > most)
        ns = most;
    return ns > NS_PER_S ? ns : NS_PER_S;
}

static unsigned share_now(const struct hosts *h, uint64_t now_ns)
{
    return is_asked(h, now_ns) ? h->share : (h->share + HOSTS_IDLE_PROBES - 1) / HOSTS_IDLE_PROBES;
}

static void processes_turn(struct hosts *h, uint64_t now_ns)
{
    worker_lock(&h->worker);
    uint64_t began = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    int r = host_refresh(h->host);
    h->idle_ns = idle_interval(h->idle_ns, clock_ns(CLOCK_THREAD_CPUTIME_ID) - began);
    h->failed = r < 0;
    unsigned share = share_now(h, now_ns);
    worker_unlock(&h->worker);
    if (r >= 0)
        marks_start(h);
    if (r >= 0 && share > 0)
        probe_some(h, share);
}

static void run(void *context)
{
    struct hosts *h = context;
    uint64_t last_ns = 0;
    bool processes, cgroups;
    while (wait_for_turn(h, last_ns, &processes, &cgroups)) {
        if (cgroups)
            cgroup_table_turn(h->cgroups);
        if (processes) {
            last_ns = clock_monotonic_ns();
            processes_turn(h, last_ns);
        }
    }
    commands_free(h->commands);
}

/* ---- begin and end ---- */

/* Books and clients come first: without kept descriptors the table only costs more. */
static size_t files_max(void)
{
    struct rlimit limit = {.rlim_cur = 0};
    getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur > HOSTS_FILES_LEFT
               ? (limit.rlim_cur - HOSTS_FILES_LEFT) / HOSTS_FILES_SHARE + 1
               : 1;
}

int hosts_new(bool always, unsigned share, struct hosts **ret_hosts)
{
    struct hosts *h = calloc(1, sizeof(*h));
    if (!h)
        return -ENOMEM;
    h->always = always;
    h->share = share;
    int r = host_new(&(struct host_options){.files_max = files_max()}, &h->host);
    if (r == 0)
        r = cgroup_table_new(NULL, &h->cgroups);
    if (r == 0) /* questions wait for it: on a busy machine it must not come later than they do */
        r = worker_start(&h->worker, "processes", 0, run, h);
    if (r < 0) {
        cgroup_table_free(h->cgroups);
        host_free(h->host);
        free(h);
        return r;
    }
    *ret_hosts = h;
    return 0;
}

void hosts_free(struct hosts *hosts)
{
    if (!hosts)
        return;
    worker_stop(&hosts->worker);
    cgroup_table_free(hosts->cgroups);
    host_free(hosts->host);
    tasks_free(hosts->tasks);
    free(hosts);
}

/* ---- who asks ---- */

void hosts_set_share(struct hosts *hosts, unsigned share)
{
    worker_lock(&hosts->worker);
    hosts->share = share;
    worker_unlock(&hosts->worker);
}

void hosts_set_steady(struct hosts *h, uint64_t window_ns)
{
    worker_lock(&h->worker);
    host_set_steady(h->host, window_ns);
    worker_unlock(&h->worker);
}

void hosts_allow_marks(struct hosts *hosts)
{
    worker_lock(&hosts->worker);
    hosts->may_mark = true;
    worker_unlock(&hosts->worker);
}

static bool is_stale(const struct hosts *h, uint64_t now_ns, uint64_t most_ms)
{
    uint64_t then = host_time_ns(h->host);
    return then == 0 || now_ns - then > most_ms * NS_PER_MS;
}

/* A question came; locked. The thread is woken for what it does not know: who asks a thousand times a second would
 * otherwise find it awake, and the table locked, as often. */
static void ask(struct hosts *h, uint64_t now_ns, bool stale)
{
    if (stale || now_ns - h->asked_ns > NS_PER_S)
        worker_wake(&h->worker);
    h->asked_ns = now_ns;
}

bool hosts_ready(struct hosts *hosts)
{
    uint64_t now = clock_monotonic_ns();
    if (!worker_try_lock(&hosts->worker))
        return false;
    bool stale = is_stale(hosts, now, HOSTS_STALE_MS);
    ask(hosts, now, stale);
    bool ready = hosts->failed || !stale;
    worker_unlock(&hosts->worker);
    return ready;
}

/* Unlocks where there is none. */
static const struct host *table_or_null(struct hosts *hosts, bool stale)
{
    if (!stale || host_refresh(hosts->host) >= 0)
        return hosts->host;
    worker_unlock(&hosts->worker);
    return NULL;
}

const struct host *hosts_lock(struct hosts *hosts)
{
    worker_lock(&hosts->worker);
    uint64_t now = clock_monotonic_ns();
    bool stale = is_stale(hosts, now, HOSTS_STALE_MS);
    ask(hosts, now, stale);
    return table_or_null(hosts, stale);
}

const struct host *hosts_lock_idle(struct hosts *hosts)
{
    worker_lock(&hosts->worker);
    return table_or_null(hosts,
                         is_stale(hosts, clock_monotonic_ns(), HOSTS_IDLE_MAX_MS + HOSTS_STALE_MS));
}

const struct host *hosts_peek(struct hosts *hosts)
{
    return worker_try_lock(&hosts->worker) ? hosts->host : NULL;
}

void hosts_unlock(struct hosts *hosts)
{
    worker_unlock(&hosts->worker);
}

void hosts_watch(struct hosts *hosts, pid_t pid)
{
    if (!worker_try_lock(&hosts->worker))
        return;
    host_watch(hosts->host, pid);
    worker_unlock(&hosts->worker);
}

/* ---- cgroups ---- */

bool hosts_cgroups_ready(struct hosts *hosts)
{
    if (cgroup_table_ready(hosts->cgroups))
        return true;
    /* A thread that cannot be woken now is awake, or will be when this is asked again. */
    if (worker_try_lock(&hosts->worker)) {
        worker_wake(&hosts->worker);
        worker_unlock(&hosts->worker);
    }
    return false;
}

const struct cgroups *hosts_cgroups_lock(struct hosts *hosts)
{
    return cgroup_table_lock(hosts->cgroups);
}

void hosts_cgroups_unlock(struct hosts *hosts)
{
    cgroup_table_unlock(hosts->cgroups);
}
