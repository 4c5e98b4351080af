/* Resident sizes. See rss.h.
 *
 * The table of a round is built from that of the round before: a process that is still there brings its
 * descriptor along, and what is left over is closed. */
#include "daemon/rss.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/hash.h"
#include "history/sample.h"
#include "ledger/proc.h"

struct entry {
    pid_t pid; /* 0: free */
    int fd;    /* -1: not tried; else an error, which stays: no permission, or no descriptor */
    uint64_t start_ticks;
    bool known; /* `bytes` was read once */
    uint64_t bytes;
};

struct rss {
    struct entry *entries, *old;
    size_t size, old_size; /* powers of two, or 0 */
    int files_max;         /* descriptors from here on are for others */
    size_t looks, turn;    /* how many this time, and where the next time begins */
    long page_bytes;
};

int rss_new(struct rss **ret_rss)
{
    struct rss *rss = calloc(1, sizeof(*rss));
    if (!rss)
        return -ENOMEM;
    struct rlimit limit = {.rlim_cur = 1024};
    getrlimit(RLIMIT_NOFILE, &limit);
    rlim_t share = limit.rlim_cur / RSS_FILES_SHARE;
    rss->files_max = share < INT_MAX ? (int)share : INT_MAX;
    rss->page_bytes = sysconf(_SC_PAGESIZE);
    *ret_rss = rss;
    return 0;
}

static void entries_close(struct entry *entries, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (entries[i].pid && entries[i].fd >= 0)
            close(entries[i].fd);
}

void rss_free(struct rss *rss)
{
    if (!rss)
        return;
    entries_close(rss->entries, rss->size);
    free(rss->entries);
    free(rss->old);
    free(rss);
}

/* The entry of a process, or the free place for it. */
static struct entry *entry_find(struct entry *entries, size_t size, pid_t pid, uint64_t start_ticks)
{
    size_t at = hash_combine((uint64_t)pid, start_ticks) & (size - 1);
    while (entries[at].pid && (entries[at].pid != pid || entries[at].start_ticks != start_ticks))
        at = (at + 1) & (size - 1);
    return &entries[at];
}

/* A descriptor that shows this process or, once it is gone, nothing. */
static int statm_open(const struct rss *rss, const struct sample_process *p)
{
    char path[32];
    struct proc_stat stat;
    snprintf(path, sizeof(path), "/proc/%d/statm", (int)p->pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (fd >= rss->files_max) {
        close(fd);
        return -EMFILE;
    }
    if (proc_stat_read(p->pid, &stat) < 0 || !proc_same_start(stat.start_ticks, p->start_ticks)) {
        close(fd);
        return -ESRCH;
    }
    return fd;
}

static bool statm_read(const struct rss *rss, int fd, uint64_t *ret_bytes)
{
    char text[128];
    unsigned long long pages;
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
    if (n <= 0)
        return false;
    text[n] = '\0';
    char *end = strchr(text, ' ');
    if (!end)
        return false;
    pages = strtoull(end, NULL, 10);
    *ret_bytes = pages * (uint64_t)rss->page_bytes;
    return true;
}

static bool table_renew(struct rss *rss, size_t n)
{
    size_t size = 64;
    while (size < n * 2)
        size *= 2;
    struct entry *fresh = rss->old_size == size ? rss->old : NULL;
    if (!fresh) {
        fresh = malloc(size * sizeof(*fresh));
        if (!fresh)
            return false;
        free(rss->old);
    }
    memset(fresh, 0, size * sizeof(*fresh));
    rss->old = rss->entries;
    rss->old_size = rss->size;
    rss->entries = fresh;
    rss->size = size;
    return true;
}

static void fill_one(struct rss *rss, struct sample_process *p)
{
    struct entry *entry = entry_find(rss->entries, rss->size, p->pid, p->start_ticks);
    if (entry->pid)
        return; /* a second exec image of the same process: the first has it */
    struct entry *before =
        rss->old_size ? entry_find(rss->old, rss->old_size, p->pid, p->start_ticks) : NULL;
    *entry = (struct entry){.pid = p->pid, .fd = -1, .start_ticks = p->start_ticks};
    if (before && before->pid) {
        *entry = *before;
        before->fd = -1;
    }
    if (entry->fd == -1)
        entry->fd = statm_open(rss, p);
    if (entry->fd >= 0)
        entry->known = statm_read(rss, entry->fd, &entry->bytes);
}

/* Its turn, where there is no descriptor for it; in between the last value stands. */
static void look_once(struct rss *rss, struct entry *entry)
{
    struct proc_stat stat;
    rss->looks++;
    entry->known = proc_stat_read(entry->pid, &stat) == 0 &&
                   proc_same_start(stat.start_ticks, entry->start_ticks);
    if (entry->known)
        entry->bytes = stat.rss_bytes;
}

void rss_fill(struct rss *rss, struct sample *sample)
{
    if (!table_renew(rss, sample->n_processes))
        return; /* no memory: no resident sizes this time */
    size_t n = sample->n_processes;
    rss->looks = 0;
    for (size_t i = 0; i < n; i++)
        if (sample->processes[i].pid_proved)
            fill_one(rss, &sample->processes[i]);
    size_t done = 0;
    for (; done < n && rss->looks < RSS_LOOKS_MAX; done++) {
        const struct sample_process *p = &sample->processes[(rss->turn + done) % n];
        struct entry *entry = entry_find(rss->entries, rss->size, p->pid, p->start_ticks);
        if (entry->pid && entry->fd < 0)
            look_once(rss, entry);
    }
    rss->turn = n ? (rss->turn + done) % n : 0;
    for (size_t i = 0; i < n; i++) {
        struct sample_process *p = &sample->processes[i];
        const struct entry *entry = entry_find(rss->entries, rss->size, p->pid, p->start_ticks);
        p->has_rss = p->pid_proved && entry->known;
        p->rss_bytes = entry->bytes;
    }
    entries_close(rss->old, rss->old_size);
    if (rss->old)
        memset(rss->old, 0, rss->old_size * sizeof(*rss->old));
}
