/* The process table. See host.h.
 *
 * A refresh asks as little as it can. Who was born is told by the last pid in loadavg: the pids since then
 * are tried one by one, and the directory is listed only if they are many, and every LIST_TURN refreshes for
 * those who were given a pid of choice. A descriptor of statm belongs to its process for good: once that is gone it reads nothing, whoever
 * has the pid by then, so no start time needs to be compared. Without descriptors left, stat is read in its
 * place, which tells the start time as well. Where somebody can tell whose memory changed (host_set_marks), the others
 * are not asked at all. */
#include "ledger/host.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "ledger/host_rows.h"

enum {
    LIST_TURN = 16, /* refreshes */
    PREFETCH = 4,   /* rows; they lie far apart in memory */
    BORN_MIN = 64,  /* new pids are tried one by one, up to this many */
    BORN_SHARE = 3, /* and a third of those that are known */
    CGROUPS_PER_REFRESH = 64,
};

/* ---- rows ---- */

static uint64_t pid_hash(const struct host *host, pid_t pid)
{
    return hash_combine(host->seed, (uint64_t)pid);
}

static struct host_row *row_find(const struct host *host, pid_t pid)
{
    uint64_t hash = pid_hash(host, pid);
    struct index_node *node = index_first(&host->index, hash);
    for (; node; node = index_next(node->next, hash)) {
        struct host_row *row = index_row(node, struct host_row, node);
        if (row->p.pid == pid)
            return row;
    }
    return NULL;
}

static void row_free(struct host *host, struct host_row *row)
{
    host_file_close(host, &row->statm_fd);
    host_file_close(host, &row->stat_fd);
    host_file_close(host, &row->status_fd);
    host_cgroup_unref(host->cgroups, row->p.cgroup);
    index_remove(&host->index, &row->node);
    free(row->command);
    free(row->exe);
    free(row);
}

static int rows_reserve(struct host *host)
{
    if (host->n < host->size)
        return 0;
    size_t size = host->size ? host->size * 2 : 256;
    struct host_process **rows = reallocarray(host->rows, size, sizeof(*rows));
    if (!rows)
        return -ENOMEM;
    host->rows = rows;
    host->size = size;
    return 0;
}

/* A process that was not there before. 1; 0 when it is gone already, or -ENOMEM. */
static int row_add(struct host *host, pid_t pid)
{
    if (host->n >= HOST_PROCESSES_MAX) {
        host->left_out++;
        return 0;
    }
    int r = rows_reserve(host);
    if (r == 0)
        r = index_reserve(&host->index);
    if (r < 0)
        return r;
    struct host_row *row = calloc(1, sizeof(*row));
    if (!row)
        return -ENOMEM;
    row->p.pid = pid;
    row->p.command = row->p.exe = "";
    row->statm_fd = row->stat_fd = row->status_fd = -1;
    row->seen = true;
    index_insert(&host->index, &row->node, pid_hash(host, pid));
    host_ring_start(host, row);
    if (!host_row_first(host, row)) {
        row_free(host, row);
        return 0;
    }
    host->rows[host->n++] = &row->p;
    return 1;
}

/* ---- who says what changed ---- */

struct marks {
    const struct host_mark *all;
    size_t n, next;
};

/* Before any statm is read: what changes after that has another mark the next time. */
static struct marks marks_take(const struct host *host)
{
    struct marks marks = {0};
    if (host->marks && host->marks(host->marks_context, &marks.all, &marks.n) < 0)
        marks.n = 0;
    return marks;
}

/* Rows go by pid as well. */
static uint64_t mark_of(struct marks *marks, pid_t pid)
{
    while (marks->next < marks->n && marks->all[marks->next].pid < pid)
        marks->next++;
    return marks->next < marks->n && marks->all[marks->next].pid == pid
               ? marks->all[marks->next].mark
               : 0;
}

/* ---- all of them ---- */

static pid_t pid_of(const char *name)
{
    pid_t pid = 0;
    for (; *name >= '0' && *name <= '9' && pid < (1 << 26); name++)
        pid = pid * 10 + (*name - '0');
    return *name ? 0 : pid;
}

/* The pid that was given last, as loadavg has it; 0: not known. */
static uint64_t last_pid_read(const struct host *host)
{
    char text[256];
    if (host_pread(host->loadavg_fd, text, sizeof(text)) <= 0)
        return 0;
    const char *last = strrchr(text, ' ');
    return last ? strtoull(last, NULL, 10) : 0;
}

static int by_pid(const void *a, const void *b)
{
    pid_t x = (*(struct host_process *const *)a)->pid, y = (*(struct host_process *const *)b)->pid;
    return (x > y) - (x < y);
}

/* New pids are mostly the largest. */
static bool in_order(const struct host *host)
{
    for (size_t i = 1; i < host->n; i++)
        if (host->rows[i - 1]->pid > host->rows[i]->pid)
            return false;
    return true;
}

/* Those that were given a pid since: a few names are sooner tried than all listed. */
static int add_born(struct host *host, uint64_t after, uint64_t last, bool *ret_added)
{
    for (uint64_t pid = after + 1; pid <= last; pid++) {
        int r = row_find(host, (pid_t)pid) ? 0 : row_add(host, (pid_t)pid);
        if (r < 0)
            return r;
        *ret_added |= r > 0;
    }
    return 0;
}

/* Those that have a mark and no row. */
static int add_marked(struct host *host, const struct marks *marks, bool *ret_added)
{
    size_t n_old = host->n, at = 0;
    for (size_t i = 0; i < marks->n; i++) {
        while (at < n_old && host->rows[at]->pid < marks->all[i].pid)
            at++;
        if (marks->all[i].pid <= 0 || (at < n_old && host->rows[at]->pid == marks->all[i].pid))
            continue;
        int r = row_find(host, marks->all[i].pid) ? 0 : row_add(host, marks->all[i].pid);
        if (r < 0)
            return r;
        *ret_added |= r > 0;
    }
    return 0;
}

/* Marks those that are there, and adds the others. */
static int add_listed(struct host *host, bool *ret_added)
{
    const struct dirent *entry;
    for (size_t i = 0; i < host->n; i++)
        host_row(host->rows[i])->seen = false;
    rewinddir(host->list);
    while ((errno = 0, entry = readdir(host->list))) {
        pid_t pid = pid_of(entry->d_name);
        if (pid == 0)
            continue;
        struct host_row *row = row_find(host, pid);
        if (row) {
            row->seen = true;
            continue;
        }
        int r = row_add(host, pid);
        if (r < 0)
            return r;
        *ret_added |= r > 0;
    }
    return -errno;
}

/* Look at those that were there before, and close the gaps that others leave. */
static int refresh_old(struct host *host, struct marks *marks, size_t n_old, bool listed)
{
    size_t kept = 0;
    int r = 0;
    for (size_t i = 0; i < host->n; i++) {
        struct host_row *row = host_row(host->rows[i]);
        if (i + PREFETCH < n_old)
            host_row_prefetch(host_row(host->rows[i + PREFETCH]));
        if (i >= n_old ||
            ((!listed || row->seen) && host_row_refresh(host, row, mark_of(marks, row->p.pid)))) {
            host->rows[kept++] = &row->p;
            continue;
        }
        pid_t pid = row->p.pid;
        bool again = listed && row->seen; /* the pid is in use: by another one? */
        row_free(host, row);
        if (!again)
            continue;
        size_t n = host->n;
        host->n = i; /* its own place is free now */
        int more = row_add(host, pid);
        host->n = n;
        if (more > 0)
            host->rows[kept++] = host->rows[i];
        else if (more < 0)
            r = more;
    }
    host->n = kept;
    return r;
}

int host_refresh(struct host *host)
{
    uint64_t before = host->last_pid, last = last_pid_read(host);
    struct marks marks = marks_take(host);
    bool known = marks.n > 0 ||
                 (last != 0 && last >= before && last - before <= BORN_MIN + host->n / BORN_SHARE);
    bool listed = host->n == 0 || !known || host->refreshes % LIST_TURN == 0;
    bool added = false;
    size_t n_old = host->n;
    host->last_pid = last;
    host->refreshes++;
    host->time_ns = host->now_ns();
    host->n_queue = 0; /* scores are of another time */
    host_ticks_advance(host);
    int r = listed        ? add_listed(host, &added)
            : marks.n > 0 ? add_marked(host, &marks, &added)
                          : add_born(host, before, last, &added);
    int r2 = refresh_old(host, &marks, n_old, listed && r == 0);
    if (added && !in_order(host))
        qsort(host->rows, host->n, sizeof(*host->rows), by_pid);
    host_system_read(host);
    host_cgroups_refresh(host->cgroups, host->time_ns, HOST_CGROUP_AGE_NS, CGROUPS_PER_REFRESH);
    return r < 0 ? r : r2;
}

void host_set_marks(struct host *host, host_marks_fn *marks, void *context)
{
    host->marks = marks;
    host->marks_context = context;
}

struct host_process *const *host_processes(const struct host *host, size_t *ret_n)
{
    *ret_n = host->n;
    return host->rows;
}

struct host_process *host_process_find(const struct host *host, pid_t pid)
{
    struct host_row *row = row_find(host, pid);
    return row ? &row->p : NULL;
}

uint64_t host_time_ns(const struct host *host)
{
    return host->time_ns;
}

uint64_t host_left_out(const struct host *host)
{
    return host->left_out;
}

/* ---- begin and end ---- */

/* The last pid is told as our own namespace counts. A /proc of another one (the machine's, in a container) has
 * other pids, and then everything is listed each time. */
static bool is_of_others(const struct host *host)
{
    char self[32], own[32];
    ssize_t n = readlinkat(host->proc_fd, "self", self, sizeof(self) - 1);
    if (n < 0)
        return false;
    self[n] = '\0';
    snprintf(own, sizeof(own), "%d", (int)getpid());
    return strcmp(self, own) != 0;
}

static int host_open(struct host *host)
{
    host->proc_fd = open(host->proc, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (host->proc_fd < 0)
        return -errno;
    host->list = opendir(host->proc);
    if (!host->list)
        return -errno;
    if (!is_of_others(host))
        host->loadavg_fd = openat(host->proc_fd, "loadavg", O_RDONLY | O_CLOEXEC);
    host_system_open(host);
    return host_cgroups_new(host->cgroup_root, &host->cgroups);
}

static size_t files_share(void)
{
    struct rlimit limit = {.rlim_cur = 1024};
    getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur == RLIM_INFINITY ? HOST_PROCESSES_MAX : (size_t)limit.rlim_cur / 2;
}

int host_new(const struct host_options *options, struct host **ret_host)
{
    MEMOIR_CLEANUP(host_freep)
    struct host *host = calloc(1, sizeof(*host));
    if (!host)
        return -ENOMEM;
    host->proc_fd = host->loadavg_fd = host->meminfo_fd = host->pressure_fd = -1;
    host->proc = strdup(options->proc ? options->proc : "/proc");
    host->cgroup_root = strdup(options->cgroups ? options->cgroups : "/sys/fs/cgroup");
    if (!host->proc || !host->cgroup_root)
        return -ENOMEM;
    host->files_max = options->files_max ? options->files_max : files_share();
    host->user_names = options->user_names;
    host->now_ns = options->now_ns ? options->now_ns : clock_monotonic_ns;
    host_windows_init(host);
    host->page_bytes = (uint32_t)sysconf(_SC_PAGESIZE);
    if (getrandom(&host->seed, sizeof(host->seed), GRND_NONBLOCK) < 0)
        host->seed = clock_boot_ns();
    int r = host_open(host);
    if (r < 0)
        return r;
    *ret_host = MEMOIR_TAKE(host);
    return 0;
}

void host_free(struct host *host)
{
    if (!host)
        return;
    for (size_t i = 0; i < host->n; i++)
        row_free(host, host_row(host->rows[i]));
    index_release(&host->index);
    free(host->rows);
    host_cgroups_free(host->cgroups);
    host_system_close(host);
    if (host->loadavg_fd >= 0)
        close(host->loadavg_fd);
    if (host->list)
        closedir(host->list);
    if (host->proc_fd >= 0)
        close(host->proc_fd);
    free(host->users);
    free(host->families);
    free(host->proc);
    free(host->cgroup_root);
    free(host);
}

void host_freep(struct host **host)
{
    host_free(*host);
}
