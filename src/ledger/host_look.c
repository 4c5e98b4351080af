/* One process of the table: what its files say, read as seldom as possible. */
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/procfs.h"
#include "ledger/host_parse.h"
#include "ledger/host_rows.h"
#include "ledger/name.h"
#include "ledger/proc.h"

enum {
    TEXT_MAX = 4096,
    STATUS_TURN = 4, /* looks in turn at stat for one at status */
    COOL_AFTER =
        HOST_TURN,    /* refreshes without a change, then its further descriptors are closed */
    USERS_MAX = 4096, /* names of users that are remembered; others have numbers */
};

ssize_t host_pread(int fd, char *ret_text, size_t size)
{
    ssize_t n = fd < 0 ? -1 : pread(fd, ret_text, size - 1, 0);
    if (n < 0)
        return fd < 0 ? -EBADF : -errno;
    ret_text[n] = '\0';
    return n;
}

/* ---- files of a process ---- */

static int file_open(const struct host *host, pid_t pid, const char *file)
{
    char path[48];
    snprintf(path, sizeof(path), "%d/%s", (int)pid, file);
    int fd = openat(host->proc_fd, path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* Read through the descriptor that is kept, or else open one, and keep it if asked to and if it may be. */
static ssize_t file_read(struct host *host, pid_t pid, const char *file, int *kept, bool keep,
                         char *ret_text, size_t size)
{
    if (*kept >= 0)
        return host_pread(*kept, ret_text, size);
    int fd = file_open(host, pid, file);
    if (fd < 0)
        return fd;
    ssize_t n = host_pread(fd, ret_text, size);
    if (keep && n > 0 && host->files < host->files_max) {
        *kept = fd;
        host->files++;
    } else {
        close(fd);
    }
    return n;
}

void host_file_close(struct host *host, int *kept)
{
    if (*kept < 0)
        return;
    close(*kept);
    *kept = -1;
    host->files--;
}

/* ---- what it is ---- */

static void user_look_up(struct host *host, struct host_process *p)
{
    p->valid &= ~(uint32_t)HOST_HAS_USER;
    if (!host->user_names)
        return;
    struct host_user *found = NULL;
    for (size_t i = 0; i < host->n_users && !found; i++)
        if (host->users[i].uid == p->uid)
            found = &host->users[i];
    if (!found) {
        struct host_user *users = host->n_users < USERS_MAX
                                      ? reallocarray(host->users, host->n_users + 1, sizeof(*users))
                                      : NULL;
        if (!users)
            return;
        host->users = users;
        found = &users[host->n_users++];
        char text[4096];
        struct passwd pw, *entry = NULL;
        (void)getpwuid_r(p->uid, &pw, text, sizeof(text), &entry);
        *found = (struct host_user){.uid = p->uid};
        if (entry && strlen(entry->pw_name) < sizeof(found->name))
            snprintf(found->name, sizeof(found->name), "%s", entry->pw_name);
    }
    if (*found->name) {
        memcpy(p->user, found->name, sizeof(p->user));
        p->valid |= HOST_HAS_USER;
    } else {
        snprintf(p->user, sizeof(p->user), "%u", p->uid);
    }
}

void host_name_renew(struct host_process *p)
{
    ledger_name(p->exe, p->comm, p->command, p->name, sizeof(p->name));
}

/* A program that another one replaced has to be looked at anew. */
static void forget_program(struct host_row *row)
{
    row->done = 0;
    row->rest_until_ns = 0;
}

static void stat_take(struct host_row *row, const struct procfs_stat *stat)
{
    struct host_process *p = &row->p;
    if (memcmp(p->comm, stat->comm, sizeof(p->comm)) != 0) {
        memcpy(p->comm, stat->comm, sizeof(p->comm));
        forget_program(row);
        host_name_renew(p);
    }
    p->state = stat->state;
    p->parent_pid = stat->parent;
    p->kernel = stat->flags & PROCFS_KERNEL_THREAD;
    p->minor_faults = stat->minor_faults;
    p->major_faults = stat->major_faults;
    p->threads = stat->threads;
    p->valid |= HOST_HAS_STAT;
}

/* false: there is no such process any more. */
static bool stat_look(struct host *host, struct host_row *row, bool keep)
{
    char text[TEXT_MAX];
    struct procfs_stat stat;
    if (file_read(host, row->p.pid, "stat", &row->stat_fd, keep, text, sizeof(text)) <= 0)
        return false;
    if (!procfs_stat_parse(text, &stat)) {
        row->p.valid &= ~(uint32_t)HOST_HAS_STAT;
        return true;
    }
    uint64_t start = proc_initial_ticks(stat.start_ticks);
    if (!(row->p.valid & HOST_HAS_STAT)) {
        row->p.start_ticks = start;
        row->p.start_realtime_ns = proc_ticks_realtime_ns(start);
    } else if (start != row->p.start_ticks) {
        return false;
    }
    stat_take(row, &stat);
    row->p.details_ns = host->time_ns;
    return true;
}

/* false: it is a thread, no process. */
static bool status_look(struct host *host, struct host_row *row, bool keep)
{
    char text[TEXT_MAX];
    struct host_status status;
    struct host_process *p = &row->p;
    uint32_t old_uid = p->uid;
    bool knew = p->valid & HOST_HAS_STATUS;
    p->valid &= ~(uint32_t)(HOST_HAS_STATUS | HOST_HAS_PARTS | HOST_HAS_PEAK);
    if (file_read(host, p->pid, "status", &row->status_fd, keep, text, sizeof(text)) <= 0 ||
        host_parse_status(text, &status) < 0)
        return true;
    if (status.group != p->pid)
        return false;
    p->uid = status.uid;
    p->anon_bytes = status.anon;
    p->file_bytes = status.file;
    p->shmem_bytes = status.shmem;
    p->lib_bytes = status.lib;
    p->swap_bytes = status.swap;
    p->peak_bytes = status.peak;
    p->valid |= HOST_HAS_STATUS | (status.has_parts ? HOST_HAS_PARTS : 0u) |
                (status.has_peak ? HOST_HAS_PEAK : 0u);
    if (!knew || old_uid != p->uid)
        user_look_up(host, p);
    return true;
}

static void memory_take(struct host *host, struct host_row *row, const char *text)
{
    struct procfs_statm statm;
    struct host_process *p = &row->p;
    if (!procfs_statm_parse(text, &statm) || statm.vms == 0) {
        p->valid &= ~(uint32_t)HOST_HAS_MEMORY; /* the kernel's, or given up by one that ends */
        return;
    }
    uint64_t page = host->page_bytes, text_bytes = statm.text * page;
    if (p->valid & HOST_HAS_MEMORY && p->text_bytes != text_bytes)
        forget_program(row);
    p->vms_bytes = statm.vms * page;
    p->rss_bytes = statm.rss * page;
    p->shared_bytes = statm.shared * page;
    p->text_bytes = text_bytes;
    p->data_bytes = statm.data * page;
    p->valid |= HOST_HAS_MEMORY;
}

/* ---- one process ---- */

enum look { LOOK_SAME, LOOK_CHANGED, LOOK_GONE };

static enum look statm_look(struct host *host, struct host_row *row, bool keep)
{
    char text[HOST_STATM_MAX];
    ssize_t n = file_read(host, row->p.pid, "statm", &row->statm_fd, keep, text, sizeof(text));
    if (n <= 0)
        return LOOK_GONE;
    if ((size_t)n == row->statm_len && memcmp(text, row->statm, (size_t)n) == 0)
        return LOOK_SAME;
    memcpy(row->statm, text, (size_t)n);
    row->statm_len = (uint8_t)n;
    memory_take(host, row, text);
    return LOOK_CHANGED;
}

/* Without a descriptor of its own: who has the pid now? */
static enum look strange_look(struct host *host, struct host_row *row)
{
    if (!stat_look(host, row, false))
        return LOOK_GONE;
    return statm_look(host, row, true);
}

static void cool_down(struct host *host, struct host_row *row)
{
    host_file_close(host, &row->stat_fd);
    host_file_close(host, &row->status_fd);
}

/* false: it is gone. */
bool host_row_refresh(struct host *host, struct host_row *row, uint64_t mark)
{
    uint64_t turn = host->refreshes + (uint64_t)row->p.pid;
    bool same = mark && mark == row->mark && turn % HOST_TURN != 0;
    if (row->p.kernel)
        return turn % HOST_TURN != 0 || stat_look(host, row, false);
    if (same) {
        host_ring_note(host, row);
        return true;
    }
    row->mark = mark;
    uint64_t rss = row->p.rss_bytes, shared = row->p.shared_bytes;
    enum look look = row->statm_fd >= 0 ? statm_look(host, row, true) : strange_look(host, row);
    if (look == LOOK_GONE)
        return false;
    if (look == LOOK_CHANGED) {
        /* Who changes now will change again. */
        bool keep = row->changed + COOL_AFTER > host->refreshes;
        row->changed = host->refreshes;
        if (!stat_look(host, row, keep))
            return false;
        /* Its parts are of the resident memory, which is the same if only something was mapped. */
        if (row->p.rss_bytes != rss || row->p.shared_bytes != shared)
            (void)status_look(host, row, keep);
    } else if (turn % HOST_TURN == 0) {
        if (row->changed + COOL_AFTER <= host->refreshes)
            cool_down(host, row);
        if (!stat_look(host, row, false))
            return false;
        if (turn / HOST_TURN % STATUS_TURN == 0)
            (void)status_look(host, row, false);
    }
    host_ring_note(host, row);
    return true;
}

bool host_row_first(struct host *host, struct host_row *row)
{
    /* First whether it is a process at all. Then in this order: what stat says is then of the process that the descriptor belongs to, or of a later one,
     * and in that case the descriptor reads nothing at the next refresh. */
    if (!status_look(host, row, false) || statm_look(host, row, true) == LOOK_GONE ||
        !stat_look(host, row, false))
        return false;
    host_name_renew(&row->p);
    if (row->p.kernel) {
        host_file_close(host, &row->statm_fd); /* it would say 0 for ever */
        row->p.tracked = HOST_TRACKED_KERNEL;
        row->p.valid |= HOST_HAS_TRACKED;
    }
    host_ring_note(host, row);
    return true;
}
